package aaif

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A Number is a JSON number as its author wrote it: 30, 30.0 and 3e1 stay what they are. The zero value, "", is
// a field that is absent.
type Number string

// Int is the Number of an integer.
func Int(n int64) Number { return Number(strconv.FormatInt(n, 10)) }

// Float is the Number of a double; it has to be finite.
func Float(f float64) Number { return Number(jsontext.AppendFloat(nil, f, 64)) }

// IsSet says whether the field is there.
func (n Number) IsSet() bool { return n != "" }

// Float64 is the nearest double, 0 where the field is absent.
func (n Number) Float64() float64 {
	f, _ := strconv.ParseFloat(string(n), 64)
	return f
}

// Int64 is the number without its fraction, at most math.MaxInt64 and at least math.MinInt64; 0 where the
// field is absent.
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

// Seconds is the number as a duration, within the longest ones that Go has.
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

// MarshalJSONTo writes the number as it is.
func (n Number) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteValue(jsontext.Value(n))
}

// UnmarshalJSONFrom keeps the number as it is.
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

// A typeError is a JSON value of the wrong type. Documents are validated before they are decoded, so only
// those meet it who decode the types themselves.
type typeError struct {
	want string
	got  jsontext.Kind
}

func (e *typeError) Error() string {
	return "aaif: want a " + e.want + ", have " + e.got.String()
}
