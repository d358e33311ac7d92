package envelope

import (
	"bytes"
	"encoding/json"
)

// AppendJSON validates e and appends its JSON to dst: the 14 fields in the draft's order,
// nulls included, then the extra members. Object-valued fields are copied unchanged. On
// error it returns dst unchanged.
func (e *Envelope) AppendJSON(dst []byte) ([]byte, error) {
	return e.AppendJSONSealed(dst, nil)
}

// AppendJSONSealed is [Envelope.AppendJSON] with the value of field sig that seal
// appends, in place of e.Sig. seal is called after e was found valid. If seal is nil,
// e.Sig is written.
func (e *Envelope) AppendJSONSealed(dst []byte, seal func(dst []byte) ([]byte, error)) ([]byte, error) {
	if err := e.Validate(); err != nil {
		return dst, err
	}
	b := append(dst, `{"v":"1","id":`...)
	b = AppendString(b, e.ID)
	b = append(b, `,"ts":`...)
	b = AppendString(b, e.TS)
	b = append(b, `,"type":"`...)
	b = append(b, e.Type...)
	b = append(b, `","from":`...)
	b = AppendString(b, e.From)
	b = append(b, `,"to":`...)
	b = AppendString(b, e.To)
	b = append(b, `,"intent":`...)
	b = AppendString(b, e.Intent)
	b = append(b, `,"corr":`...)
	b = AppendString(b, e.Corr)
	b = append(b, `,"reply_to":`...)
	b = e.AppendReplyTo(b)
	b = append(b, `,"trace":`...)
	b = appendRaw(b, e.Trace)
	b = append(b, `,"priority":"`...)
	b = append(b, e.Priority...)
	b = append(b, `","requires":`...)
	b = appendRaw(b, e.Requires)
	b = append(b, `,"payload":`...)
	b = append(b, e.Payload...)
	b = append(b, `,"sig":`...)
	if seal == nil {
		b = appendRaw(b, e.Sig)
	} else {
		var err error
		if b, err = seal(b); err != nil {
			return dst, err
		}
	}
	for _, m := range e.Extra {
		b = append(b, ',')
		b = AppendString(b, m.Name)
		b = append(b, ':')
		b = append(b, m.Value...)
	}
	return append(b, '}'), nil
}

// AppendReplyTo appends field reply_to as JSON: a string, or null.
func (e *Envelope) AppendReplyTo(dst []byte) []byte {
	if e.ReplyTo == "" && !e.emptyReplyTo {
		return append(dst, "null"...)
	}
	return AppendString(dst, e.ReplyTo)
}

// MarshalJSON is [Envelope.AppendJSON] for encoding/json, which removes white space from
// the object-valued fields.
func (e *Envelope) MarshalJSON() ([]byte, error) {
	return e.AppendJSON(make([]byte, 0, 512+len(e.Payload)))
}

func appendRaw(dst, raw []byte) []byte {
	if raw == nil {
		return append(dst, "null"...)
	}
	return append(dst, raw...)
}

// EncodeJSON returns the JSON of v, like json.Marshal, but without its escapes of <, > and &.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// AppendString appends s as a JSON string in the form of RFC 8785: it escapes only what
// must be escaped, in the shortest form. s must be valid UTF-8.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := plainEnd(s, 0); i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
