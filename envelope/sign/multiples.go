package sign

import (
	"filippo.io/edwards25519"
	"filippo.io/edwards25519/field"
)

// multiples is a table of multiples of one point. A multiple by any scalar is then a sum
// of one entry for each digit, without doublings. The time of a look-up depends on the
// scalar, so the table must be used with public data only: for verification.
type multiples struct {
	width   int       // of a digit, in bits
	entries [][]niels // entries[i][j] is (j+1)·2^(width·i) times the point
}

// niels is a point in the form for additions of a precomputed point: with Z = 1, and with
// the terms that depend only on it computed beforehand (RFC 8032, section 5.1.4, with
// Niels's formulas).
type niels struct {
	yPlusX, yMinusX, xy2d field.Element
}

// d2 is 2·d of the curve's equation -x²+y² = 1+d·x²·y².
var d2 = func() *field.Element {
	one := new(field.Element).One()
	d := new(field.Element).Mult32(one, 121665)
	d.Multiply(d.Negate(d), new(field.Element).Invert(new(field.Element).Mult32(one, 121666)))
	return d.Add(d, d)
}()

// newMultiples makes the table of p with signed digits of width bits. It has
// about 2^(width-1)·256/width entries of 120 bytes.
func newMultiples(p *edwards25519.Point, width int) *multiples {
	digits, half := 256/width+1, 1<<(width-1)
	points := make([]*edwards25519.Point, 0, digits*half)
	base := edwards25519.NewIdentityPoint().Set(p)
	for range digits {
		sum := edwards25519.NewIdentityPoint()
		for range half {
			sum = new(edwards25519.Point).Add(sum, base)
			points = append(points, sum)
		}
		base.Add(sum, sum) // base times 2^(width-1), doubled
	}
	all := affine(points)
	m := &multiples{width: width}
	for i := range digits {
		m.entries = append(m.entries, all[i*half:(i+1)*half])
	}
	return m
}

// affine converts points to Z = 1, with one inversion for all of them.
func affine(points []*edwards25519.Point) []niels {
	products := make([]field.Element, len(points)) // products of the Z before each
	product := new(field.Element).One()
	for i, p := range points {
		products[i].Set(product)
		_, _, z, _ := p.ExtendedCoordinates()
		product.Multiply(product, z)
	}
	inverse := product.Invert(product)
	out := make([]niels, len(points))
	for i := len(points) - 1; i >= 0; i-- {
		x, y, z, _ := points[i].ExtendedCoordinates()
		zInverse := new(field.Element).Multiply(inverse, &products[i])
		inverse.Multiply(inverse, z)
		x.Multiply(x, zInverse)
		y.Multiply(y, zInverse)
		out[i].yPlusX.Add(y, x)
		out[i].yMinusX.Subtract(y, x)
		out[i].xy2d.Multiply(x, y)
		out[i].xy2d.Multiply(&out[i].xy2d, d2)
	}
	return out
}

// sum is a point in extended coordinates: x = X/Z, y = Y/Z, x·y = T/Z.
type sum struct{ x, y, z, t field.Element }

func (s *sum) zero() {
	s.x.Zero()
	s.y.One()
	s.z.One()
	s.t.Zero()
}

// add adds the product of m's point and a scalar: 32 bytes, little-endian, below 2^255.
func (s *sum) add(m *multiples, scalar *[32]byte) {
	half := 1 << (m.width - 1)
	carry := 0
	for i, entries := range m.entries {
		digit := bitsAt(scalar, i*m.width, m.width) + carry
		if carry = 0; digit > half {
			digit -= 2 * half
			carry = 1
		}
		switch {
		case digit > 0:
			s.addNiels(&entries[digit-1], false)
		case digit < 0:
			s.addNiels(&entries[-digit-1], true)
		}
	}
}

// bitsAt returns n bits, at most 8, starting at bit number from; bits beyond the end are
// zero.
func bitsAt(scalar *[32]byte, from, n int) int {
	at := from / 8
	v := 0
	if at < len(scalar) {
		v = int(scalar[at])
	}
	if at+1 < len(scalar) {
		v |= int(scalar[at+1]) << 8
	}
	return v >> (from % 8) & (1<<n - 1)
}

// addNiels adds or subtracts q. The formula has no exceptions on this curve.
func (s *sum) addNiels(q *niels, negative bool) {
	var a, b, c, d, e, f, g, h field.Element
	plus, minus := &q.yPlusX, &q.yMinusX
	if negative {
		plus, minus = minus, plus
	}
	a.Multiply(a.Subtract(&s.y, &s.x), minus)
	b.Multiply(b.Add(&s.y, &s.x), plus)
	c.Multiply(&s.t, &q.xy2d)
	d.Add(&s.z, &s.z)
	e.Subtract(&b, &a)
	h.Add(&b, &a)
	if negative {
		f.Add(&d, &c)
		g.Subtract(&d, &c)
	} else {
		f.Subtract(&d, &c)
		g.Add(&d, &c)
	}
	s.x.Multiply(&e, &f)
	s.y.Multiply(&g, &h)
	s.t.Multiply(&e, &h)
	s.z.Multiply(&f, &g)
}

// encode encodes the point (RFC 8032, section 5.1.2).
func (s *sum) encode() (out [32]byte) {
	var inverse, x, y field.Element
	inverse.Invert(&s.z)
	x.Multiply(&s.x, &inverse)
	y.Multiply(&s.y, &inverse)
	copy(out[:], y.Bytes())
	out[31] |= byte(x.IsNegative() << 7)
	return out
}
