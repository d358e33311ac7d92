package sign

import (
	"bytes"
	"testing"

	"filippo.io/edwards25519"
)

// The sums that are computed with tables equal those of the library's multiplication.
func TestMultiplesAgreeWithTheLibrary(t *testing.T) {
	t.Parallel()
	random := newRandom(7)
	scalars := [][]byte{make([]byte, 32)}
	for _, edge := range []struct {
		at    int
		value byte
	}{{0, 1}, {0, 2}, {0, 31}, {0, 32}, {0, 33}, {0, 63}, {0, 64}, {0, 127}, {0, 128}, {0, 129}, {0, 255}, {15, 128}, {16, 1}, {31, 8}, {31, 15}, {31, 16}} {
		s := make([]byte, 32)
		s[edge.at] = edge.value
		scalars = append(scalars, s)
	}
	minusOne := edwards25519.NewScalar().Negate(scalarOf(t, scalars[1]))
	scalars = append(scalars, minusOne.Bytes(), bytes.Repeat([]byte{0x0f}, 32), append(bytes.Repeat([]byte{0xff}, 31), 0x0f))
	for range 50 {
		wide := make([]byte, 64)
		random.Read(wide)
		s, err := edwards25519.NewScalar().SetUniformBytes(wide)
		if err != nil {
			t.Fatal(err)
		}
		scalars = append(scalars, s.Bytes())
	}
	base := edwards25519.NewGeneratorPoint()
	other := edwards25519.NewIdentityPoint().ScalarBaseMult(scalarOf(t, scalars[len(scalars)-1]))
	for _, width := range []int{2, 3, 5, tableWidth, 7, 8} {
		tables := []*multiples{newMultiples(base, width), newMultiples(other, width)}
		for i, one := range scalars {
			two := scalars[(i*7+3)%len(scalars)]
			var got sum
			got.zero()
			got.add(tables[0], (*[32]byte)(one))
			got.add(tables[1], (*[32]byte)(two))
			want := edwards25519.NewIdentityPoint().ScalarMult(reduced(t, one), base)
			want.Add(want, edwards25519.NewIdentityPoint().ScalarMult(reduced(t, two), other))
			if encoded := got.encode(); !bytes.Equal(encoded[:], want.Bytes()) {
				t.Fatalf("width %d: %x·B + %x·P is %x, want %x", width, one, two, encoded, want.Bytes())
			}
		}
	}
}

func scalarOf(t *testing.T, b []byte) *edwards25519.Scalar {
	t.Helper()
	s, err := edwards25519.NewScalar().SetCanonicalBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reduced returns a scalar of any bytes, reduced by the order of the group.
func reduced(t *testing.T, b []byte) *edwards25519.Scalar {
	t.Helper()
	s, err := edwards25519.NewScalar().SetUniformBytes(append(append([]byte(nil), b...), make([]byte, 32)...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A table of the identity, which is its own negative, and doublings in the middle of a
// sum.
func TestMultiplesOfTheIdentityAndOfOnePointTwice(t *testing.T) {
	t.Parallel()
	identity := edwards25519.NewIdentityPoint()
	base := edwards25519.NewGeneratorPoint()
	m, id, minus := newMultiples(base, tableWidth), newMultiples(identity, tableWidth), newMultiples(new(edwards25519.Point).Negate(base), tableWidth)
	k := [32]byte{5, 200, 31: 1}
	var s sum
	s.zero()
	s.add(id, &k)
	if got := s.encode(); !bytes.Equal(got[:], identity.Bytes()) {
		t.Errorf("a multiple of the identity is %x", got)
	}
	s.add(m, &k)
	s.add(m, &k)
	want := new(edwards25519.Point).ScalarMult(reduced(t, k[:]), base)
	if got := s.encode(); !bytes.Equal(got[:], new(edwards25519.Point).Add(want, want).Bytes()) {
		t.Errorf("twice a multiple is %x", got)
	}
	s.add(minus, &k)
	s.add(minus, &k)
	if got := s.encode(); !bytes.Equal(got[:], identity.Bytes()) {
		t.Errorf("what is taken away again leaves %x", got)
	}
}
