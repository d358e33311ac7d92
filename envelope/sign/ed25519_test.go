package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"filippo.io/edwards25519"
)

// newRandom returns a seeded source, so that a failure can be repeated.
func newRandom(seed uint64) *rand.ChaCha8 {
	var b [32]byte
	b[0], b[1] = byte(seed), byte(seed>>8)
	return rand.NewChaCha8(b)
}

func tablesLeft(n int32) *atomic.Int32 {
	var left atomic.Int32
	left.Store(n)
	return &left
}

// bothWays verifies with and without the key's table, and fails the test if the results
// differ.
func bothWays(t *testing.T, key *publicKey, message, sig []byte) bool {
	t.Helper()
	plain, tabled := &publicKey{}, &publicKey{}
	for _, k := range []*publicKey{plain, tabled} {
		k.encoded, k.minus = key.encoded, key.minus
	}
	tabled.table.Store(newMultiples(&tabled.minus, tableWidth))
	without := plain.verify(message, sig, tablesLeft(0))
	with := tabled.verify(message, sig, tablesLeft(0))
	if without != with {
		t.Fatalf("verdicts differ: %t without a table, %t with it; key %x, signature %x", without, with, key.encoded, sig)
	}
	return with
}

func TestEd25519AgreesWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	random := newRandom(1)
	for i := range 300 {
		seed := make([]byte, ed25519.SeedSize)
		random.Read(seed)
		message := make([]byte, i*7)
		random.Read(message)

		want := ed25519.NewKeyFromSeed(seed)
		k, err := newPrivateKey(seed)
		if err != nil {
			t.Fatal(err)
		}
		if !k.Equal(want) {
			t.Fatalf("seed %x gives another key", seed)
		}
		sig := ed25519.Sign(k, message)
		pub, err := newPublicKey(ed25519.PublicKey(k[32:]))
		if err != nil {
			t.Fatal(err)
		}
		if !bothWays(t, pub, message, sig) {
			t.Fatalf("seed %x: own signature refused", seed)
		}
		// After one changed bit anywhere, both we and the standard library refuse the
		// signature.
		bit := i % 512
		sig[bit/8] ^= 1 << (bit % 8)
		if got, want := bothWays(t, pub, message, sig), ed25519.Verify(ed25519.PublicKey(k[32:]), message, sig); got != want || got {
			t.Fatalf("seed %x with bit %d flipped: %t, want %t", seed, bit, got, want)
		}
	}
}

// TestRFC8032Vectors checks the first three vectors of RFC 8032, section 7.1.
func TestRFC8032Vectors(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ seed, public, message, sig string }{
		{"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
			"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
			"", "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
		{"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
			"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
			"72", "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
		{"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
			"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
			"af82", "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"},
	} {
		seed, _ := hex.DecodeString(v.seed)
		message, _ := hex.DecodeString(v.message)
		k, err := newPrivateKey(seed)
		if err != nil {
			t.Fatal(err)
		}
		sig := ed25519.Sign(k, message)
		if fmt.Sprintf("%x %x", k[32:], sig) != v.public+" "+v.sig {
			t.Errorf("seed %s: got public key %x and signature %x", v.seed, k[32:], sig)
		}
		if pub, err := newPublicKey(ed25519.PublicKey(k[32:])); err != nil || !bothWays(t, pub, message, sig) {
			t.Errorf("seed %s: refused (%v)", v.seed, err)
		}
	}
}

// TestMalleableSignaturesAreRefused adds the order of the group to S. A verifier that
// does not check the range of S would accept the result as another signature for the same
// message.
func TestMalleableSignaturesAreRefused(t *testing.T) {
	t.Parallel()
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	_, private, err := ed25519.GenerateKey(newRandom(2))
	if err != nil {
		t.Fatal(err)
	}
	public, err := newPublicKey(private.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("message")
	sig := ed25519.Sign(private, message)
	if !bothWays(t, public, message, sig) {
		t.Fatal("good signature refused")
	}
	for n := int64(1); n <= 8; n++ {
		s := reversed(sig[32:])
		sum := new(big.Int).SetBytes(s)
		sum.Add(sum, new(big.Int).Mul(order, big.NewInt(n)))
		forged := append(bytes.Clone(sig[:32]), reversed(sum.FillBytes(make([]byte, 32)))...)
		if bothWays(t, public, message, forged) {
			t.Errorf("S + %d·L accepted", n)
		}
	}
	for _, sig := range [][]byte{nil, sig[:63], append(bytes.Clone(sig), 0), make([]byte, 64)} {
		if bothWays(t, public, message, sig) {
			t.Errorf("accepted %x", sig)
		}
	}
}

func reversed(b []byte) []byte {
	out := bytes.Clone(b)
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// TestKeyWithAPartOfSmallOrderIsRefused adds a point of order 8 to an honest public key:
// verifiers in use disagree on signatures of such a key.
func TestKeyWithAPartOfSmallOrderIsRefused(t *testing.T) {
	t.Parallel()
	honest, err := newPrivateKey(make([]byte, ed25519.SeedSize))
	if err != nil {
		t.Fatal(err)
	}
	mixed := pointOf(t, []byte(honest[32:]))
	T8 := pointOf(t, smallOrder["order 8"])
	for n := range 8 {
		_, err := newPublicKey(mixed.Bytes())
		if n == 0 && err != nil || n > 0 && err == nil {
			t.Errorf("an honest key and %d times a point of order 8: %v", n, err)
		}
		mixed.Add(mixed, T8)
	}
}

// TestTablesAreBounded lets many keys ask for the few remaining tables.
func TestTablesAreBounded(t *testing.T) {
	t.Parallel()
	left, made := tablesLeft(2), 0
	for i := range 5 {
		private, err := newPrivateKey(bytes.Repeat([]byte{byte(i)}, ed25519.SeedSize))
		if err != nil {
			t.Fatal(err)
		}
		key, err := newPublicKey(ed25519.PublicKey(private[32:]))
		if err != nil {
			t.Fatal(err)
		}
		sig := ed25519.Sign(private, nil)
		for range 2 * tableAfter {
			if !key.verify(nil, sig, left) {
				t.Fatal("good signature refused")
			}
		}
		if key.table.Load() != nil {
			made++
		}
	}
	if made != 2 {
		t.Errorf("%d tables, want 2", made)
	}
}

// smallOrder has the encodings of the eight points of small order, also the encodings
// that are not canonical; weak has the other encodings that must not be accepted as keys.
var (
	smallOrder = map[string]string{
		"identity":                "0100000000000000000000000000000000000000000000000000000000000000",
		"identity, sign bit set":  "0100000000000000000000000000000000000000000000000000000000000080",
		"order 2":                 "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"order 2, sign bit set":   "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
		"order 4":                 "0000000000000000000000000000000000000000000000000000000000000000",
		"order 4, negative":       "0000000000000000000000000000000000000000000000000000000000000080",
		"order 8":                 "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"order 8, negative":       "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"order 8, other":          "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"order 8, other negative": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"y = p":                   "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"y = p, sign bit set":     "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
		"y = p + 1":               "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"y = p + 1, sign bit set": "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	}
	weak = map[string]string{
		"no point of the curve":    "0200000000000000000000000000000000000000000000000000000000000000",
		"too short":                "d75a98",
		"empty":                    "",
		"one byte too many":        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a00",
		"y = p + 18":               "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"y = p + 18, sign bit set": "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
		// Not canonical: y is p or more.
		"y = p + 3":  "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"y = p + 14": "fbffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	}
)

func TestWeakPublicKeysAreRefused(t *testing.T) {
	t.Parallel()
	for _, list := range []map[string]string{smallOrder, weak} {
		for name, key := range list {
			b, err := hex.DecodeString(key)
			if err != nil {
				t.Fatal(err)
			}
			_, err = newPublicKey(b)
			if err == nil {
				t.Errorf("%s: accepted", name)
			} else if spelling := strings.HasPrefix(name, "y = p") || strings.HasSuffix(name, "sign bit set"); spelling != strings.Contains(err.Error(), "canonically") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// pointOf decodes a point from bytes, or from hex.
func pointOf[T string | []byte](t *testing.T, encoded T) *edwards25519.Point {
	t.Helper()
	b := []byte(encoded)
	if len(b) == 64 {
		b, _ = hex.DecodeString(string(encoded))
	}
	p, err := new(edwards25519.Point).SetBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// forge returns the S for an encoding of R whose prime-order part is [r]B, as the owner
// of the key can compute it: S = r + k·a.
func forge(t *testing.T, key ed25519.PrivateKey, r *edwards25519.Scalar, R, message []byte) []byte {
	t.Helper()
	expanded := sha512.Sum512(key.Seed())
	a, err := edwards25519.NewScalar().SetBytesWithClamping(expanded[:32])
	if err != nil {
		t.Fatal(err)
	}
	digest := sha512.Sum512(slices.Concat(R, key[32:], message))
	k, err := edwards25519.NewScalar().SetUniformBytes(digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(R, edwards25519.NewScalar().MultiplyAdd(k, a, r).Bytes())
}

// The owner of a key can make signatures on which verifiers in use disagree: R is of
// small or of mixed order, or is not canonically encoded. Our verdict is the standard
// library's, with a table and without.
func TestEdgesOfRAgreeWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	random := newRandom(3)
	seed := make([]byte, ed25519.SeedSize)
	verdicts := map[bool]int{}
	judge := func(name string, key ed25519.PrivateKey, message, sig []byte) {
		t.Helper()
		public, err := newPublicKey(ed25519.PublicKey(key[32:]))
		if err != nil {
			t.Fatal(err)
		}
		want := ed25519.Verify(ed25519.PublicKey(key[32:]), message, sig)
		if got := bothWays(t, public, message, sig); got != want {
			t.Errorf("%s: %t, and crypto/ed25519 says %t; key %x, signature %x", name, got, want, key[32:], sig)
		}
		verdicts[want]++
	}
	for range 40 {
		random.Read(seed)
		key := ed25519.NewKeyFromSeed(seed)
		message := make([]byte, 40)
		random.Read(message)
		wide := make([]byte, 64)
		random.Read(wide)
		r, err := edwards25519.NewScalar().SetUniformBytes(wide)
		if err != nil {
			t.Fatal(err)
		}
		zero := edwards25519.NewScalar()
		honest := new(edwards25519.Point).ScalarBaseMult(r)
		judge("an honest R", key, message, forge(t, key, r, honest.Bytes(), message))
		for name, text := range smallOrder {
			encoded, _ := hex.DecodeString(text)
			judge("R "+name, key, message, forge(t, key, zero, encoded, message))
			if p, err := new(edwards25519.Point).SetBytes(encoded); err == nil {
				mixed := new(edwards25519.Point).Add(honest, p)
				judge("R of mixed order, "+name, key, message, forge(t, key, r, mixed.Bytes(), message))
			}
		}
	}
	if verdicts[true] < 80 || verdicts[false] < 400 {
		t.Errorf("%v: the cases do not tell good from bad", verdicts)
	}
}

// S close to the order of the group, with everything else right.
func TestEdgesOfSAgreeWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public, err := newPublicKey(ed25519.PublicKey(key[32:]))
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("message")
	good := ed25519.Sign(key, message)
	for _, s := range []*big.Int{new(big.Int), big.NewInt(1), new(big.Int).Sub(order, big.NewInt(1)), order, new(big.Int).Add(order, big.NewInt(1)),
		new(big.Int).Lsh(big.NewInt(1), 252), new(big.Int).Lsh(big.NewInt(1), 253), new(big.Int).Lsh(big.NewInt(1), 255), new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))} {
		sig := slices.Concat(good[:32], reversed(s.FillBytes(make([]byte, 32))))
		if got, want := bothWays(t, public, message, sig), ed25519.Verify(ed25519.PublicKey(key[32:]), message, sig); got != want || got {
			t.Errorf("S = %v: %t, and crypto/ed25519 says %t", s, got, want)
		}
	}
}
