package endpoint

import (
	"encoding/json"
	"errors"
	"strconv"
)

// Decode decodes a JSON value into v, a pointer, like json.Unmarshal, but ignores members, at any
// depth, whose type does not fit v. It returns an error if data is not JSON, or if the whole value
// has another type than v.
func Decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && mismatch.Field != "" {
		return nil
	}
	return err
}

// Text is a string that can be decoded from any JSON value: null becomes "", and a value of another
// type becomes its JSON, for example the arguments of a call that a server sends as an object.
type Text string

// UnmarshalJSON reads a Text from any JSON value.
func (t *Text) UnmarshalJSON(raw []byte) error {
	var s string
	switch raw[0] {
	case '"':
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
	case 'n':
	default:
		s = string(raw)
	}
	*t = Text(s)
	return nil
}

// Count is a whole number that can be decoded from any JSON value: it drops a fraction, accepts a
// string that contains a number, and takes every other value as 0.
type Count int64

// UnmarshalJSON reads a Count from any JSON value.
func (c *Count) UnmarshalJSON(raw []byte) error {
	var text Text
	if err := text.UnmarshalJSON(raw); err != nil {
		return err
	}
	*c = 0
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		*c = Count(n)
	} else if f, err := strconv.ParseFloat(string(text), 64); err == nil && f > -1<<53 && f < 1<<53 {
		*c = Count(f)
	}
	return nil
}
