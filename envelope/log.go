package envelope

import (
	"encoding/json"
	"fmt"
)

// LogRecord is an MVE-5 log envelope (AEE, Conformance Levels): v, id, type, from and
// intent, and the emitter's other members. It is not an envelope: it cannot be correlated
// or answered, and no agent accepts one.
type LogRecord struct {
	V      string
	ID     string
	Type   Type
	From   string
	Intent string
	// Others holds all further members, unvalidated, including other envelope fields.
	Others []Member
}

const mve5Message = "this is an MVE-5 log envelope (v, id, type, from, intent only); a full envelope is required here, with at least ts, to, corr, priority and payload too"

// logEnvelope reports whether the message has the five fields of MVE-5 and no other
// required field: then it is a log record that was sent to an agent.
func (p *parser) logEnvelope() bool {
	const five = 1<<fieldV | 1<<fieldID | 1<<fieldType | 1<<fieldFrom | 1<<fieldIntent
	const others = 1<<fieldTS | 1<<fieldTo | 1<<fieldCorr | 1<<fieldPriority | 1<<fieldPayload
	return p.seen&five == five && p.seen&others == 0
}

// ParseLog decodes one MVE-5 record, or a full envelope as a log aggregator sees it. The
// result shares the memory of data.
func ParseLog(data []byte) (*LogRecord, error) {
	limits := Limits{}.withDefaults()
	if len(data) > limits.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(data), limits.MaxBytes)
	}
	p := parser{scanner: newScanner(data, limits)}
	if err := p.envelope(); err != nil {
		return nil, invalid(Problem{Rule: RuleJSON, Message: err.Error()})
	}
	var bad problems
	for _, f := range [...]field{fieldV, fieldID, fieldType, fieldFrom, fieldIntent} {
		if p.seen&(1<<f) == 0 {
			bad.add(f, RuleRequired, "is missing and required by MVE-5")
		}
	}
	const five = 1<<fieldV | 1<<fieldID | 1<<fieldType | 1<<fieldFrom | 1<<fieldIntent
	texts := p.strings(five, &bad)
	e := Envelope{V: texts[fieldV], ID: texts[fieldID], Type: Type(texts[fieldType]), From: texts[fieldFrom], Intent: texts[fieldIntent], ReplyTo: "unchecked"}
	e.check(&bad, p.seen&five)
	if len(bad) > 0 {
		return nil, invalid(bad...)
	}
	r := &LogRecord{V: e.V, ID: e.ID, Type: e.Type, From: e.From, Intent: e.Intent}
	for f := range numFields {
		if five&(1<<f) == 0 && p.value[f] != nil {
			r.Others = append(r.Others, Member{fieldNames[f], json.RawMessage(p.value[f])})
		}
	}
	r.Others = append(r.Others, p.extra...)
	return r, nil
}
