package schema

import (
	"bytes"
	"encoding/json"
	"math/big"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A bound is a number of a schema, prepared for comparisons.
type bound struct {
	rat   *big.Rat
	i     int64 // its value, if small
	small bool
}

func newBound(r *big.Rat) *bound {
	if r == nil {
		return nil
	}
	b := &bound{rat: r}
	if r.IsInt() && r.Num().IsInt64() {
		b.i, b.small = r.Num().Int64(), true
	}
	return b
}

// smallInt parses a plain integer of up to 18 digits, the most common kind of number.
func smallInt(raw []byte) (int64, bool) {
	digits := raw
	if digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if raw[0] == '-' {
		n = -n
	}
	return n, true
}

// ratOf returns a number's exact value. checkNumber has limited its cost.
func ratOf(raw []byte) *big.Rat {
	r, ok := new(big.Rat).SetString(string(raw))
	if !ok {
		return new(big.Rat) // unreachable: parse accepts JSON numbers only
	}
	return r
}

// compare returns -1, 0 or 1 if the number is below, at or above the bound.
func (b *bound) compare(raw []byte) int {
	if n, ok := smallInt(raw); ok && b.small {
		switch {
		case n < b.i:
			return -1
		case n > b.i:
			return 1
		}
		return 0
	}
	if n, part, ok := smallDecimal(raw); ok && b.small {
		switch {
		case n < b.i:
			return -1
		case n > b.i:
			return 1
		}
		return part
	}
	return ratOf(raw).Cmp(b.rat)
}

// smallDecimal parses a plain number with a point: its integer part, and the sign of what follows
// the point, 0 if these are zeros. It avoids computing with fractions for usual numbers such as
// 12.5.
func smallDecimal(raw []byte) (n int64, part int, ok bool) {
	point := bytes.IndexByte(raw, '.')
	if point < 1 {
		return 0, 0, false
	}
	if n, ok = smallInt(raw[:point]); !ok {
		return 0, 0, false
	}
	for _, c := range raw[point+1:] {
		if c < '0' || c > '9' {
			return 0, 0, false
		}
		if c != '0' {
			part = 1
		}
	}
	if raw[0] == '-' {
		part = -part
	}
	return n, part, true
}

// divides reports whether the number is a multiple of the bound.
func (b *bound) divides(raw []byte) bool {
	if n, ok := smallInt(raw); ok && b.small {
		return n%b.i == 0
	}
	return new(big.Rat).Quo(ratOf(raw), b.rat).IsInt()
}

// String returns the bound in decimal notation.
func (b *bound) String() string {
	if b.rat.IsInt() {
		return clip.Text(b.rat.Num().String(), 40)
	}
	f, _ := b.rat.Float64()
	text, _ := json.Marshal(f)
	return string(text)
}

// isInteger reports whether a number has no fractional part; 1.0 and 1e3 have none.
func isInteger(raw []byte) bool {
	return !bytes.ContainsAny(raw, ".eE") || ratOf(raw).IsInt()
}
