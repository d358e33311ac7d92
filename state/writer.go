package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/go-json-experiment/json/jsontext"
)

// maxInteger is the largest integer that every JSON reader represents exactly (RFC 7493,
// section 2.2).
const maxInteger = 1<<53 - 1

// A writer writes JSON in the form of RFC 8785, member by member: [fields] have the order
// of an object's members.
//
// Strings are made valid UTF-8, so that no output of a tool or a model prevents a write. err holds
// the first other error.
type writer struct {
	b     []byte
	err   error
	cache *texts // nil: none
}

func (w *writer) fail(member string, err error) {
	if w.err == nil && err != nil {
		w.err = fmt.Errorf("%s: %w", member, err)
	}
}

func (w *writer) begin() { w.b = append(w.b, '{') }
func (w *writer) end()   { w.b = append(w.b, '}') }

// name begins a member with one of our names, which need no escapes.
func (w *writer) name(name string) {
	w.comma()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

// anyName begins a member with an arbitrary name.
func (w *writer) anyName(name string) {
	w.comma()
	w.string(name)
	w.b = append(w.b, ':')
}

// comma writes a comma unless the object or array is empty so far.
func (w *writer) comma() {
	if c := w.b[len(w.b)-1]; c != '{' && c != '[' && c != ':' {
		w.b = append(w.b, ',')
	}
}

func (w *writer) string(s string) { w.b = envelope.AppendString(w.b, cleanText(s)) }

// cleanText returns s as valid UTF-8.
func cleanText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// text writes a string member, also if it is empty.
func (w *writer) text(name, s string) {
	w.name(name)
	w.string(s)
}

// opt writes a string member unless it is empty.
func (w *writer) opt(name, s string) {
	if s != "" {
		w.text(name, s)
	}
}

func (w *writer) int(path string, n int64) {
	if n > maxInteger || n < -maxInteger {
		w.fail(path, envelope.ErrNumber)
	}
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *writer) uint(path string, n uint64) {
	if n > maxInteger {
		w.fail(path, envelope.ErrNumber)
	}
	w.b = strconv.AppendUint(w.b, n, 10)
}

// lastTime is the last time that RFC 3339 can express.
var lastTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

func (w *writer) time(t time.Time) {
	if t.After(lastTime) {
		t = lastTime // for instance the deadline of a timeout of a million years
	}
	w.b = append(w.b, '"')
	w.b = t.UTC().AppendFormat(w.b, time.RFC3339Nano)
	w.b = append(w.b, '"')
}

// canonical writes a JSON value in canonical form, without a name. A number that a double
// cannot represent has no canonical form; it becomes a string of its digits, as RFC 8785,
// section 3.2.2.3, advises.
func (w *writer) canonical(member string, v jsontext.Value) {
	b, err := envelope.AppendCanonical(w.b, json.RawMessage(v))
	if errors.Is(err, envelope.ErrNumber) {
		if v, err = quoteNumbers(v); err == nil {
			b, err = envelope.AppendCanonical(w.b, json.RawMessage(v))
		}
	}
	if err != nil {
		w.fail(member, err)
		w.b = append(w.b, "null"...) // the output is not used after an error
		return
	}
	w.b = b
}

// quoteNumbers returns v with strings in place of the numbers that a double cannot
// represent.
func quoteNumbers(v jsontext.Value) (jsontext.Value, error) {
	var out bytes.Buffer
	dec, enc := jsontext.NewDecoder(bytes.NewReader(v)), jsontext.NewEncoder(&out)
	for {
		if dec.PeekKind() != '0' {
			tok, err := dec.ReadToken()
			if err == io.EOF {
				return out.Bytes(), nil
			} else if err != nil {
				return nil, err
			}
			if err := enc.WriteToken(tok); err != nil {
				return nil, err
			}
			continue
		}
		n, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		if _, err := envelope.Canonical(json.RawMessage(n)); err != nil {
			n = envelope.AppendString(nil, string(n))
		}
		if err := enc.WriteValue(n); err != nil {
			return nil, err
		}
	}
}

var errNotObject = errors.New("must be a JSON object")

// quote writes a JSON value as a string with its text.
func (w *writer) quote(member string, v jsontext.Value) {
	if !v.IsValid() {
		w.fail(member, errors.New("is not valid JSON"))
	}
	w.b = envelope.AppendString(w.b, []byte(v))
}
