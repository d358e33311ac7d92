package endpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// Decode reads a JSON value into v, a pointer, like json.Unmarshal, but leaves out
// members, at any depth, whose type is not v's. Its error says that data is not
// JSON, or as a whole of another type than v.
func Decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && mismatch.Field != "" {
		return nil
	}
	return err
}

// Encode is the JSON of v, without the escapes for HTML that json.Marshal writes.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Text is a JSON string. Other values become their JSON, as arguments of a call do
// that a server sends as an object; null becomes empty.
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

// Count is a JSON number, of which the fraction is cut off. A string that has a
// number in it counts as that, all else as 0.
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
