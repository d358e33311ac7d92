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

// This file implements the verification of RFC 8032, section 5.1. The standard library
// signs, so no code here computes with a secret scalar. Verification uses
// filippo.io/edwards25519, from which the standard library's implementation is derived,
// for two reasons: a public key that is used often gets a table of its multiples, and
// fewer public keys are accepted. Tests compare it with crypto/ed25519.

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

// tableAfter is the number of verifications after which a key gets its table, which costs
// as much as some fifteen of them. maxTables is the most tables of a ring, so that a mesh
// with many keys does not exhaust the memory.
const (
	tableAfter = 32
	maxTables  = 256
	tableWidth = 6
)

// ofBase returns the table of the base point, which all keys share: 480 KiB.
var ofBase = sync.OnceValue(func() *multiples { return newMultiples(edwards25519.NewGeneratorPoint(), 8) })

// minusOne is L-1, where L is the order of the prime-order group.
var minusOne = func() *edwards25519.Scalar {
	one, err := edwards25519.NewScalar().SetCanonicalBytes(append([]byte{1}, make([]byte, 31)...))
	if err != nil {
		panic(err)
	}
	return one.Negate(one)
}()

// newPublicKey accepts only canonical encodings of points of the prime-order subgroup,
// which honest key generation always produces. With such a key a signature that verifies
// here also verifies under every published variant of Ed25519 verification.
func newPublicKey(key ed25519.PublicKey) (*publicKey, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("an ed25519 public key has %d bytes, not %d", ed25519.PublicKeySize, len(key))
	}
	A, err := new(edwards25519.Point).SetBytes(key)
	if err != nil {
		return nil, errors.New("ed25519 public key is not a point of the curve")
	}
	if !bytes.Equal(A.Bytes(), key) { // such a key is not in the prime-order group either; this error is more specific
		return nil, errors.New("ed25519 public key is not canonically encoded")
	}
	k := &publicKey{encoded: [ed25519.PublicKeySize]byte(key)}
	k.minus.Negate(A)
	// [L]A is the identity, and so [L-1]A is -A, only for points of the prime-order
	// group, which include the identity.
	identity := edwards25519.NewIdentityPoint()
	if A.Equal(identity) == 1 || new(edwards25519.Point).VarTimeDoubleScalarBaseMult(minusOne, A, edwards25519.NewScalar()).Equal(&k.minus) != 1 {
		return nil, errors.New("ed25519 public key is not in the prime-order group, as every valid key is")
	}
	return k, nil
}

// verify implements RFC 8032, section 5.1.7, in its stricter form, as crypto/ed25519
// does: S must be below the order of the group, and the encoding of [S]B-[k]A must equal
// R byte for byte. Both ways to compute that point give the same result.
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

// multiples returns the key's table, or nil. It makes the table when the key has been
// used tableAfter times, as long as tables, the number of tables that may still be made,
// lasts.
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
