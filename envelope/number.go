package envelope

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrNumber is wrapped by the error for a number that I-JSON (RFC 7493, section 2.2)
// cannot represent: an IEEE 754 double would change it. Two documents that differ in such
// a number have the same canonical form, so neither may be signed or hashed.
var ErrNumber = errors.New("number beyond the precision of I-JSON")

// safeDigits is the number of significant decimal digits that every double preserves: a
// decimal with at most that many digits is unchanged after a conversion to a double and
// back, and is the shortest that denotes the double.
const safeDigits = 15

// appendNumber appends a JSON number in the form of ECMAScript, which is that of RFC
// 8785. It refuses numbers that a double cannot represent.
func appendNumber(dst, text []byte) ([]byte, error) {
	if len(text) <= safeDigits && plainInteger(text) {
		return append(dst, text...), nil
	}
	f, err := exactFloat(text)
	if err != nil {
		return dst, err
	}
	return appendFloat(dst, f), nil
}

// plainInteger reports whether text is an integer without a fraction and an exponent. -0
// is not, because it is written as 0.
func plainInteger(text []byte) bool {
	if text[0] == '-' {
		text = text[1:]
		if text[0] == '0' {
			return false
		}
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// exactFloat parses a JSON number that a double represents exactly: its shortest form as
// a double denotes the same decimal.
func exactFloat(text []byte) (float64, error) {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(f, 0) {
		return 0, numberError(text)
	}
	if len(text) <= safeDigits && math.Abs(f) >= 1e-290 && math.Abs(f) <= 1e290 {
		return f, nil
	}
	var buf [32]byte
	wantDigits, wantExp := decimal(text)
	haveDigits, haveExp := decimal(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	if wantDigits != haveDigits || wantExp != haveExp {
		return 0, numberError(text)
	}
	return f, nil
}

func numberError(text []byte) error {
	if len(text) > 40 {
		return fmt.Errorf("%w: %s…", ErrNumber, text[:40])
	}
	return fmt.Errorf("%w: %s", ErrNumber, text)
}

// decimal splits a JSON number: its significant digits without zeros at either end, and
// the power of ten of the first digit. Zero has no digits.
func decimal(text []byte) (digits string, exp int) {
	s := strings.TrimPrefix(string(text), "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		// ParseFloat has refused an exponent that is too large for Atoi, unless the
		// number is zero.
		exp, _ = strconv.Atoi(s[i+1:])
		s = s[:i]
	}
	whole, frac, _ := strings.Cut(s, ".")
	exp += len(whole) - 1
	s = whole + frac
	trimmed := strings.TrimLeft(s, "0")
	exp -= len(s) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, "0")
	if trimmed == "" {
		return "", 0
	}
	return trimmed, exp
}

// appendFloat appends f in the form of ECMAScript, which is that of RFC 8785.
func appendFloat(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// ECMAScript writes e-7, Go writes e-07.
	if n := len(dst); n-from >= 4 && dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
