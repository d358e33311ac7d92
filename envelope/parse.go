package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
)

// Limits limit what a decoder accepts. They are checked before memory is allocated. The
// zero value means the defaults.
type Limits struct {
	// MaxBytes is the size of the largest encoded envelope. Default 1 MiB, the default
	// max_payload of a NATS server.
	MaxBytes int
	// MaxDepth is how many objects and arrays may be nested, including the envelope
	// itself. Default 64, at most 1000.
	MaxDepth int
	// MaxValues is how many JSON values the fields may contain: elements of arrays and
	// members of objects at any depth. Default [DefaultMaxValues].
	MaxValues int
}

// DefaultMaxValues is the default of [Limits].MaxValues. It is also the limit for a
// payload that is validated against a schema.
const DefaultMaxValues = 250_000

const (
	defaultMaxBytes = 1 << 20
	defaultMaxDepth = 64
	hardDepth       = 1000
)

func (l Limits) withDefaults() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = defaultMaxBytes
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = defaultMaxDepth
	}
	l.MaxDepth = min(l.MaxDepth, hardDepth)
	if l.MaxValues <= 0 {
		l.MaxValues = DefaultMaxValues
	}
	return l
}

// ErrTooLarge is wrapped by the error for input over Limits.MaxBytes.
var ErrTooLarge = errors.New("envelope too large")

// Parse decodes and validates one JSON envelope with the default [Limits]. The envelope
// shares the memory of data: the caller must not change data afterwards. Every error is
// an *[InvalidError], or wraps [ErrTooLarge].
func Parse(data []byte) (*Envelope, error) { return ParseLimits(data, Limits{}) }

// ParseStored is [Parse] for an envelope that is in memory already and was accepted under the
// limits of a node or a server, such as one from a record or from the journal: it may be of any
// size, with any number of values, and as deep as [Limits] can allow.
func ParseStored(data []byte) (*Envelope, error) {
	return ParseLimits(data, Limits{MaxBytes: len(data), MaxDepth: hardDepth, MaxValues: len(data)})
}

// ParseLimits is [Parse] with the caller's limits.
func ParseLimits(data []byte, limits Limits) (*Envelope, error) {
	limits = limits.withDefaults()
	if len(data) > limits.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(data), limits.MaxBytes)
	}
	p := parser{scanner: newScanner(data, limits)}
	if err := p.envelope(); err != nil {
		return nil, invalid(Problem{Rule: RuleJSON, Message: err.Error()})
	}
	return p.finish()
}

// field numbers the 14 fields, in the order of the draft's table.
type field uint8

const (
	fieldV field = iota
	fieldID
	fieldTS
	fieldType
	fieldFrom
	fieldTo
	fieldIntent
	fieldCorr
	fieldReplyTo
	fieldTrace
	fieldPriority
	fieldRequires
	fieldPayload
	fieldSig
	numFields
)

var fieldNames = [numFields]string{"v", "id", "ts", "type", "from", "to", "intent", "corr", "reply_to", "trace", "priority", "requires", "payload", "sig"}

// fieldOf is a switch because a map look-up costs more than all its comparisons together.
func fieldOf(name []byte) (field, bool) {
	switch string(name) {
	case "v":
		return fieldV, true
	case "id":
		return fieldID, true
	case "ts":
		return fieldTS, true
	case "type":
		return fieldType, true
	case "from":
		return fieldFrom, true
	case "to":
		return fieldTo, true
	case "intent":
		return fieldIntent, true
	case "corr":
		return fieldCorr, true
	case "reply_to":
		return fieldReplyTo, true
	case "trace":
		return fieldTrace, true
	case "priority":
		return fieldPriority, true
	case "requires":
		return fieldRequires, true
	case "payload":
		return fieldPayload, true
	case "sig":
		return fieldSig, true
	}
	return 0, false
}

type parser struct {
	scanner
	seen  uint16            // one bit for each field
	value [numFields][]byte // each field's JSON text
	extra []Member
}

// fieldKeys are the fields' names with quotes and colon, as most programs write them.
var fieldKeys = func() (keys [numFields]string) {
	for f, name := range fieldNames {
		keys[f] = `"` + name + `":`
	}
	return keys
}()

// key scans the name and the colon of the field next, if they follow without white space:
// most programs write the fields in the draft's order.
func (p *parser) key(next field) bool {
	if next >= numFields {
		return false
	}
	k := fieldKeys[next]
	if rest := p.data[p.pos:]; len(rest) <= len(k) || string(rest[:len(k)]) != k {
		return false
	}
	p.pos += len(k)
	p.space()
	return true
}

// envelope scans the whole text and records the position of each field.
func (p *parser) envelope() error {
	p.space()
	if p.pos >= len(p.data) {
		return p.fail("empty message")
	}
	if p.data[p.pos] != '{' {
		return p.fail("there is no JSON object")
	}
	var unknown nameSet
	more, err := p.open('}')
	for f := field(0); more && err == nil; f++ {
		var name []byte
		known := p.key(f)
		if !known {
			if name, err = p.name(); err != nil {
				return err
			}
			f, known = fieldOf(name)
		}
		switch {
		case known && p.seen&(1<<f) != 0:
			return p.fail("duplicate name " + quoteName([]byte(fieldNames[f])))
		case !known && !unknown.add(name):
			return p.fail("duplicate name " + quoteName(name))
		}
		if known {
			p.left++ // a field itself does not count
		}
		from := p.pos
		if err = p.scanner.value(1); err != nil {
			return err
		}
		value := p.data[from:p.pos:p.pos]
		if known {
			p.seen |= 1 << f
			p.value[f] = value
		} else {
			p.extra = append(p.extra, Member{string(name), value})
		}
		more, err = p.next('}')
	}
	if err != nil {
		return err
	}
	unknown.release()
	return p.end()
}

// finish builds the envelope from the fields and validates it. It reports all problems at
// once.
func (p *parser) finish() (*Envelope, error) {
	var bad problems
	const required = 1<<fieldV | 1<<fieldID | 1<<fieldTS | 1<<fieldType | 1<<fieldFrom | 1<<fieldTo |
		1<<fieldIntent | 1<<fieldCorr | 1<<fieldPriority | 1<<fieldPayload
	if missing := required &^ uint(p.seen); missing != 0 {
		if p.logEnvelope() {
			return nil, invalid(Problem{Rule: RuleRequired, Message: mve5Message})
		}
		for ; missing != 0; missing &= missing - 1 {
			f := field(bits.TrailingZeros(missing))
			bad.add(f, RuleRequired, "is missing")
		}
	}

	e := &Envelope{Extra: p.extra}
	texts := p.strings(stringFields, &bad)
	e.V, e.ID, e.TS, e.From, e.To, e.Intent, e.Corr = texts[fieldV], texts[fieldID], texts[fieldTS], texts[fieldFrom], texts[fieldTo], texts[fieldIntent], texts[fieldCorr]
	e.Type, e.Priority = Type(texts[fieldType]), Priority(texts[fieldPriority])
	e.ReplyTo = texts[fieldReplyTo]
	e.emptyReplyTo = e.ReplyTo == "" && p.kind(fieldReplyTo) == '"'
	e.Trace = p.raw(fieldTrace)
	e.Requires = p.raw(fieldRequires)
	e.Payload = p.raw(fieldPayload)
	e.Sig = p.raw(fieldSig)
	e.check(&bad, p.seen)
	if len(bad) > 0 {
		err := invalid(bad...)
		err.partial = *e
		return nil, err
	}
	return e, nil
}

// kind returns the first byte of a field's value, 0 if the field is absent.
func (p *parser) kind(f field) byte {
	if v := p.value[f]; len(v) > 0 {
		return v[0]
	}
	return 0
}

func (p *parser) raw(f field) json.RawMessage {
	if p.kind(f) == 'n' && f != fieldPayload {
		return nil
	}
	return p.value[f]
}

// stringFields are the fields whose value is a string, or null in reply_to.
const stringFields = 1<<fieldV | 1<<fieldID | 1<<fieldTS | 1<<fieldType | 1<<fieldFrom | 1<<fieldTo |
	1<<fieldIntent | 1<<fieldCorr | 1<<fieldReplyTo | 1<<fieldPriority

// strings decodes the fields with a bit in wanted, in one allocation. A field of another
// type is a problem.
func (p *parser) strings(wanted uint16, bad *problems) (texts [numFields]string) {
	var stack [256]byte
	buf := stack[:0]
	var ends [numFields]int
	for f := range numFields {
		if wanted&(1<<f) != 0 && p.kind(f) != 0 {
			if known := interned(f, p.value[f]); known != "" {
				texts[f] = known
			} else if p.kind(f) == '"' {
				buf = append(buf, p.value[f][1:len(p.value[f])-1]...)
			} else if !(f == fieldReplyTo && p.kind(f) == 'n') {
				bad.add(f, typeRule(f), "must be a string")
				p.seen &^= 1 << f // report one problem for this field only
			}
		}
		ends[f] = len(buf)
	}
	escaped := bytes.IndexByte(buf, '\\') >= 0
	all := string(buf)
	from := 0
	for f, end := range ends {
		if end > from {
			texts[f] = all[from:end]
			if escaped {
				texts[f] = string(unescape(buf[from:end]))
			}
		}
		from = end
	}
	return texts
}

// interned returns the constant for a field's usual values, which saves memory.
func interned(f field, value []byte) string {
	switch f {
	case fieldV:
		if string(value) == `"1"` {
			return Version
		}
	case fieldType:
		switch string(value) {
		case `"task"`:
			return string(TypeTask)
		case `"result"`:
			return string(TypeResult)
		case `"event"`:
			return string(TypeEvent)
		case `"error"`:
			return string(TypeError)
		case `"stream"`:
			return string(TypeStream)
		}
	case fieldPriority:
		switch string(value) {
		case `"low"`:
			return string(PriorityLow)
		case `"normal"`:
			return string(PriorityNormal)
		case `"high"`:
			return string(PriorityHigh)
		case `"urgent"`:
			return string(PriorityUrgent)
		}
	}
	return ""
}

// UnmarshalJSON is [Parse] over a copy of data, for use with encoding/json.
func (e *Envelope) UnmarshalJSON(data []byte) error {
	parsed, err := Parse(append([]byte(nil), data...))
	if err != nil {
		return err
	}
	*e = *parsed
	return nil
}
