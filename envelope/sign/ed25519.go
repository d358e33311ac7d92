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
	"github.com/oasisprotocol/curve25519-voi/curve"
	"github.com/oasisprotocol/curve25519-voi/curve/scalar"
)

// This file is RFC 8032, section 5.1, over the group of curve25519-voi and the
// field of edwards25519, because whole-package implementations leave half the speed on the table: a
// private key is expanded once instead of at every signature, and a public
// key that is used often gets a table of its multiples. Tests hold it to
// crypto/ed25519.

// privateKey is an expanded Ed25519 private key.
type privateKey struct {
	a      scalar.Scalar // the secret scalar
	prefix [32]byte      // what nonces are derived from
	public [ed25519.PublicKeySize]byte
}

func newPrivateKey(seed []byte) (*privateKey, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("an ed25519 seed has %d bytes, not %d", ed25519.SeedSize, len(seed))
	}
	h := sha512.Sum512(seed)
	h[0] &= 248
	h[31] &= 127
	h[31] |= 64
	k := &privateKey{}
	if _, err := k.a.SetBits(h[:32]); err != nil {
		return nil, fmt.Errorf("expand ed25519 key: %w", err)
	}
	copy(k.prefix[:], h[32:])
	var A curve.EdwardsPoint
	var encoded curve.CompressedEdwardsY
	encoded.SetEdwardsPoint(A.MulBasepoint(curve.ED25519_BASEPOINT_TABLE, &k.a))
	copy(k.public[:], encoded[:])
	return k, nil
}

// sign is RFC 8032, section 5.1.6. Its time does not depend on the key.
func (k *privateKey) sign(sig *[ed25519.SignatureSize]byte, message []byte) error {
	var wide [sha512.Size]byte
	h := sha512.New()
	h.Write(k.prefix[:])
	h.Write(message)
	var r scalar.Scalar
	if _, err := r.SetBytesModOrderWide(h.Sum(wide[:0])); err != nil {
		return err
	}
	var R curve.EdwardsPoint
	var encoded curve.CompressedEdwardsY
	encoded.SetEdwardsPoint(R.MulBasepoint(curve.ED25519_BASEPOINT_TABLE, &r))
	copy(sig[:32], encoded[:])

	h.Reset()
	h.Write(sig[:32])
	h.Write(k.public[:])
	h.Write(message)
	var s scalar.Scalar
	if _, err := s.SetBytesModOrderWide(h.Sum(wide[:0])); err != nil {
		return err
	}
	s.Add(s.Mul(&s, &k.a), &r)
	return s.ToBytes(sig[32:])
}

// publicKey is an Ed25519 public key, prepared for verification.
type publicKey struct {
	encoded  [ed25519.PublicKeySize]byte
	expanded *curve.ExpandedEdwardsPoint // of -A, 1.5 KiB
	used     atomic.Uint32
	table    atomic.Pointer[multiples] // of -A, 160 KiB
}

// tableAfter is the number of verifications after which a key gets its table,
// which costs as much as some twenty of them; maxTables is how many a ring has,
// so that a mesh of many keys does not fill the memory.
const (
	tableAfter = 32
	maxTables  = 256
	tableWidth = 6
)

// ofBase is the table of the base point, which all keys share: 480 KiB.
var ofBase = sync.OnceValue(func() *multiples { return newMultiples(edwards25519.NewGeneratorPoint(), 8) })

// newPublicKey accepts the canonical encodings of points of the prime-order
// subgroup, all that honest key generation can give. With such a key a
// signature that verifies here does so under every published variant of
// Ed25519 verification.
func newPublicKey(key ed25519.PublicKey) (*publicKey, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("an ed25519 public key has %d bytes, not %d", ed25519.PublicKeySize, len(key))
	}
	var encoded curve.CompressedEdwardsY
	var A curve.EdwardsPoint
	if _, err := encoded.SetBytes(key); err != nil {
		return nil, fmt.Errorf("ed25519 public key: %w", err)
	}
	if _, err := A.SetCompressedY(&encoded); err != nil {
		return nil, errors.New("ed25519 public key is not a point of the curve")
	}
	if !encoded.IsCanonicalVartime() {
		return nil, errors.New("ed25519 public key is not canonically encoded")
	}
	if A.IsSmallOrder() || !A.IsTorsionFree() {
		return nil, errors.New("ed25519 public key is not in the prime-order group: no honest key is")
	}
	k := &publicKey{encoded: encoded}
	k.expanded = curve.NewExpandedEdwardsPoint(A.Neg(&A))
	return k, nil
}

// verify is RFC 8032, section 5.1.7, in its stricter form, as crypto/ed25519
// has it: S below the order of the group, and the encoding of [S]B-[k]A equal,
// byte for byte, to R. Both ways to compute that point give the same verdict.
func (k *publicKey) verify(message, sig []byte, tables *atomic.Int32) bool {
	if len(sig) != ed25519.SignatureSize || !scalar.ScMinimalVartime(sig[32:]) {
		return false
	}
	var wide [sha512.Size]byte
	h := sha512.New()
	h.Write(sig[:32])
	h.Write(k.encoded[:])
	h.Write(message)
	var kk scalar.Scalar
	if _, err := kk.SetBytesModOrderWide(h.Sum(wide[:0])); err != nil {
		return false
	}
	if table := k.multiples(tables); table != nil {
		var kBytes [32]byte
		if err := kk.ToBytes(kBytes[:]); err != nil {
			return false
		}
		var R sum
		R.zero()
		R.add(ofBase(), (*[32]byte)(sig[32:]))
		R.add(table, &kBytes)
		return R.encode() == [32]byte(sig[:32])
	}
	var s scalar.Scalar
	if _, err := s.SetCanonicalBytes(sig[32:]); err != nil {
		return false
	}
	var R curve.EdwardsPoint
	R.ExpandedDoubleScalarMulBasepointVartime(&kk, k.expanded, &s)
	var encoded curve.CompressedEdwardsY
	encoded.SetEdwardsPoint(&R)
	return bytes.Equal(encoded[:], sig[:32])
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
	table := k.newTable()
	k.table.Store(table)
	return table
}

// newTable is nil only where two libraries disagree about what a point is.
func (k *publicKey) newTable() *multiples {
	A, err := new(edwards25519.Point).SetBytes(k.encoded[:])
	if err != nil {
		return nil
	}
	return newMultiples(A.Negate(A), tableWidth)
}
