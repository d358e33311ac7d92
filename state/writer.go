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

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/go-json-experiment/json/jsontext"
)

// maxInteger is the greatest integer that every JSON reader keeps (RFC 7493,
// section 2.2).
const maxInteger = 1<<53 - 1

// A writer writes JSON in the form of RFC 8785, member by member. Its callers
// give the members of an object in the order of their names, which is why
// nothing has to be sorted afterwards.
//
// Texts are made valid UTF-8: what a tool or a model said must never keep a
// run from being stored. The first other error stays in err.
type writer struct {
	b   []byte
	err error
}

func (w *writer) fail(member string, err error) {
	if w.err == nil && err != nil {
		w.err = fmt.Errorf("%s: %w", member, err)
	}
}

func (w *writer) begin() { w.b = append(w.b, '{') }
func (w *writer) end()   { w.b = append(w.b, '}') }

// name begins a member of ours, whose name needs no escapes.
func (w *writer) name(name string) {
	w.comma()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

// anyName begins a member of others.
func (w *writer) anyName(name string) {
	w.comma()
	w.string(name)
	w.b = append(w.b, ':')
}

// comma separates what follows from what was written before, if anything was.
func (w *writer) comma() {
	if c := w.b[len(w.b)-1]; c != '{' && c != '[' && c != ':' {
		w.b = append(w.b, ',')
	}
}

func (w *writer) string(s string) { w.b = envelope.AppendString(w.b, cleanText(s)) }

// cleanText is s in valid UTF-8.
func cleanText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// text writes a text member, empty or not.
func (w *writer) text(name, s string) {
	w.name(name)
	w.string(s)
}

// opt writes a text member unless it is empty.
func (w *writer) opt(name, s string) {
	if s != "" {
		w.text(name, s)
	}
}

func (w *writer) number(name string, n aaif.Number) {
	if n.IsSet() {
		w.name(name)
		w.canonical(name, jsontext.Value(n))
	}
}

func (w *writer) int(name string, n int64) {
	if n > maxInteger || n < -maxInteger {
		w.fail(name, envelope.ErrNumber)
	}
	w.name(name)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *writer) optInt(name string, n int64) {
	if n != 0 {
		w.int(name, n)
	}
}

func (w *writer) uint(name string, n uint64) {
	if n > maxInteger {
		w.fail(name, envelope.ErrNumber)
	}
	w.name(name)
	w.b = strconv.AppendUint(w.b, n, 10)
}

func (w *writer) optUint(name string, n uint64) {
	if n != 0 {
		w.uint(name, n)
	}
}

func (w *writer) optTrue(name string, v bool) {
	if v {
		w.name(name)
		w.b = append(w.b, "true"...)
	}
}

// lastTime is the last one that RFC 3339 can write.
var lastTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

func (w *writer) optTime(name string, t time.Time) {
	if t.IsZero() {
		return
	}
	if t.After(lastTime) {
		t = lastTime // a deadline after a timeout of a million years
	}
	w.name(name)
	w.b = append(w.b, '"')
	w.b = t.UTC().AppendFormat(w.b, time.RFC3339Nano)
	w.b = append(w.b, '"')
}

// writeEach writes a list of objects, whose members each writes, in order; an empty
// one is left out.
func writeEach[T any](w *writer, name string, all []T, each func(*T)) {
	if len(all) == 0 {
		return
	}
	w.name(name)
	w.b = append(w.b, '[')
	for i := range all {
		w.comma()
		w.begin()
		each(&all[i])
		w.end()
	}
	w.b = append(w.b, ']')
}

func (w *writer) texts(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.name(name)
	w.b = append(w.b, '[')
	for _, s := range list {
		w.comma()
		w.string(s)
	}
	w.b = append(w.b, ']')
}

// canonical writes a JSON value in canonical form, without a name. A number that
// a double changes has no such form; it becomes a string of its digits, as RFC
// 8785, section 3.2.2.3, advises.
func (w *writer) canonical(member string, v jsontext.Value) {
	b, err := envelope.AppendCanonical(w.b, json.RawMessage(v))
	if errors.Is(err, envelope.ErrNumber) {
		if v, err = quoteNumbers(v); err == nil {
			b, err = envelope.AppendCanonical(w.b, json.RawMessage(v))
		}
	}
	if err != nil {
		w.fail(member, err)
		w.b = append(w.b, "null"...) // w.b stays what it was; nobody will see it
		return
	}
	w.b = b
}

// quoteNumbers is v with the numbers that a double changes as strings.
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

// object writes a raw JSON object in canonical form, unless there is none.
func (w *writer) object(name string, raw json.RawMessage, t *texts) {
	if raw == nil {
		return
	}
	if jsontext.Value(raw).Kind() != '{' {
		w.fail(name, errNotObject)
		return
	}
	w.name(name)
	w.cached(name, raw, t, (*writer).canonical)
}

// value writes any raw JSON value in canonical form, unless there is none.
func (w *writer) value(name string, raw json.RawMessage) {
	if raw != nil {
		w.name(name)
		w.canonical(name, jsontext.Value(raw))
	}
}

// quoted writes a raw JSON value as a string that holds its text, unless there
// is none. slot names the place for the cache.
func (w *writer) quoted(name, slot string, raw json.RawMessage, t *texts) {
	if raw != nil {
		w.name(name)
		w.cached(slot, raw, t, (*writer).quote)
	}
}

func (w *writer) quote(member string, v jsontext.Value) {
	if !v.IsValid() {
		w.fail(member, errors.New("is not valid JSON"))
	}
	w.b = envelope.AppendString(w.b, []byte(v))
}
