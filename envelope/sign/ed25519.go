package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"filippo.io/edwards25519"
)

// This file is RFC 8032, section 5.1. The standard library signs: no secret scalar is
// computed with here. Verification is over filippo.io/edwards25519, which the standard
// library's own is made from, because a public key that is used often gets a table of its
// multiples, and because the keys that are accepted are fewer. Tests hold it to
// crypto/ed25519.

func newPrivateKey(seed []byte) (ed25519.PrivateKey, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("an ed25519 seed has %d bytes, not %d", ed25519.SeedSize, len(seed))
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// publicKey is an Ed25519 public key, prepared for verification.
type publicKey struct {
	encoded [ed25519.PublicKeySize]byte
	minus   edwards25519.Point // -A
	used    atomic.Uint32
	table   atomic.Pointer[multiples] // of -A, 160 KiB
}

// tableAfter is the number of verifications after which a key gets its table,
// which costs as much as some fifteen of them; maxTables is how many a ring has,
// so that a mesh of many keys does not fill the memory.
const (
	tableAfter = 32
	maxTables  = 256
	tableWidth = 6
)

// ofBase is the table of the base point, which all keys share: 480 KiB.
var ofBase = sync.OnceValue(func() *multiples { return newMultiples(edwards25519.NewGeneratorPoint(), 8) })

// minusOne is L-1, where L is the order of the prime-order group.
var minusOne = func() *edwards25519.Scalar {
	one, err := edwards25519.NewScalar().SetCanonicalBytes(append([]byte{1}, make([]byte, 31)...))
	if err != nil {
		panic(err)
	}
	return one.Negate(one)
}()

// newPublicKey accepts the canonical encodings of points of the prime-order
// subgroup, all that honest key generation can give. With such a key a
// signature that verifies here does so under every published variant of
// Ed25519 verification.
func newPublicKey(key ed25519.PublicKey) (*publicKey, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("an ed25519 public key has %d bytes, not %d", ed25519.PublicKeySize, len(key))
	}
	A, err := new(edwards25519.Point).SetBytes(key)
	if err != nil {
		return nil, errors.New("ed25519 public key is not a point of the curve")
	}
	if !bytes.Equal(A.Bytes(), key) { // none of these is in the prime-order group; this says what is wrong
		return nil, errors.New("ed25519 public key is not canonically encoded")
	}
	k := &publicKey{encoded: [ed25519.PublicKeySize]byte(key)}
	k.minus.Negate(A)
	// [L]A is the identity, and [L-1]A is -A, for a point of the prime-order group and for
	// the identity alone.
	identity := edwards25519.NewIdentityPoint()
	if A.Equal(identity) == 1 || new(edwards25519.Point).VarTimeDoubleScalarBaseMult(minusOne, A, edwards25519.NewScalar()).Equal(&k.minus) != 1 {
		return nil, errors.New("ed25519 public key is not in the prime-order group: no honest key is")
	}
	return k, nil
}

// verify is RFC 8032, section 5.1.7, in its stricter form, as crypto/ed25519
// has it: S below the order of the group, and the encoding of [S]B-[k]A equal,
// byte for byte, to R. Both ways to compute that point give the same verdict.
func (k *publicKey) verify(message, sig []byte, tables *atomic.Int32) bool {
	if len(sig) != ed25519.SignatureSize {
		return false
	}
	var s, digest edwards25519.Scalar
	if _, err := s.SetCanonicalBytes(sig[32:]); err != nil {
		return false
	}
	var wide [sha512.Size]byte
	h := sha512.New()
	h.Write(sig[:32])
	h.Write(k.encoded[:])
	h.Write(message)
	if _, err := digest.SetUniformBytes(h.Sum(wide[:0])); err != nil {
		return false
	}
	if table := k.multiples(tables); table != nil {
		var R sum
		R.zero()
		R.add(ofBase(), (*[32]byte)(sig[32:]))
		R.add(table, (*[32]byte)(digest.Bytes()))
		return R.encode() == [32]byte(sig[:32])
	}
	var R edwards25519.Point
	R.VarTimeDoubleScalarBaseMult(&digest, &k.minus, &s)
	return bytes.Equal(R.Bytes(), sig[:32])
}

// multiples returns the key's table once the key has shown that it is in use,
// and while tables, the number that may still be made, lasts.
func (k *publicKey) multiples(tables *atomic.Int32) *multiples {
	if table := k.table.Load(); table != nil {
		return table
	}
	if k.used.Add(1) != tableAfter || tables.Add(-1) < 0 {
		return nil
	}
	table := newMultiples(&k.minus, tableWidth)
	k.table.Store(table)
	return table
}
