package aaif

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A Number is a JSON number as its author wrote it: 30, 30.0 and 3e1 stay
// distinct. The zero value, "", is an absent field.
type Number string

// Int returns an integer as a Number.
func Int(n int64) Number { return Number(strconv.FormatInt(n, 10)) }

// IsSet reports whether the field is present.
func (n Number) IsSet() bool { return n != "" }

// Float64 returns the nearest double, 0 if the field is absent.
func (n Number) Float64() float64 {
	f, _ := strconv.ParseFloat(string(n), 64)
	return f
}

// Int64 returns the number without its fraction, clamped to the range of int64;
// 0 if the field is absent.
func (n Number) Int64() int64 {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i
	}
	switch f := n.Float64(); {
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	default:
		return int64(f)
	}
}

// Seconds returns the number as a duration, clamped to the longest that Go can
// represent.
func (n Number) Seconds() time.Duration {
	switch ns := n.Float64() * float64(time.Second); {
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns <= math.MinInt64:
		return math.MinInt64
	default:
		return time.Duration(ns)
	}
}

// MarshalJSONTo writes the number unchanged.
func (n Number) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteValue(jsontext.Value(n))
}

// UnmarshalJSONFrom reads the number unchanged.
func (n *Number) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if k := v.Kind(); k != '0' {
		return &typeError{want: "number", got: k}
	}
	*n = Number(strings.Clone(string(v)))
	return nil
}

// A typeError is a JSON value of the wrong type. Documents are validated before
// they are decoded, so it occurs only if a program decodes these types itself.
type typeError struct {
	want string
	got  jsontext.Kind
}

func (e *typeError) Error() string {
	return "aaif: want a " + e.want + ", have " + e.got.String()
}
