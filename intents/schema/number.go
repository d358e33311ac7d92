package schema

import (
	"bytes"
	"encoding/json"
	"math/big"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A bound is a number of a schema, ready to be compared with.
type bound struct {
	rat   *big.Rat
	i     int64 // its value, where small
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

// smallInt reads a plain integer of up to 18 digits, the usual number.
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

// ratOf is a number's exact value. checkNumber has bounded what it costs.
func ratOf(raw []byte) *big.Rat {
	r, ok := new(big.Rat).SetString(string(raw))
	if !ok {
		return new(big.Rat) // out of reach: parse takes JSON numbers only
	}
	return r
}

// compare is -1, 0 or 1 as the number is below, at or above the bound.
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
	return ratOf(raw).Cmp(b.rat)
}

// divides reports whether the number is a multiple of the bound.
func (b *bound) divides(raw []byte) bool {
	if n, ok := smallInt(raw); ok && b.small {
		return n%b.i == 0
	}
	return new(big.Rat).Quo(ratOf(raw), b.rat).IsInt()
}

// String is the bound as people write it.
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
