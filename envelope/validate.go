package envelope

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Rule is a rule that an invalid envelope violates: a number of the draft's section
// "Validity Rules", or one of the words below.
type Rule string

// The rules that an envelope can violate. Rules 7 to 10 bind consumers and producers, and
// no envelope can violate them.
const (
	RuleRequired Rule = "1"      // the ten required fields are present
	RuleType     Rule = "2"      // type is one of five
	RuleReplyTo  Rule = "3"      // a result or an error names the task that it answers
	RulePayload  Rule = "4"      // payload is an object
	RuleVersion  Rule = "5"      // v is "1"
	RulePriority Rule = "6"      // priority is one of four
	RuleFields   Rule = "fields" // a field's type or length, AEE table "Envelope Fields"
	RuleJSON     Rule = "json"   // the text is not JSON, or exceeds the limits of I-JSON or ours
	RuleCBOR     Rule = "cbor"   // the bytes are not CBOR that has a JSON equivalent
)

// Problem is one error in an envelope.
type Problem struct {
	Field   string `json:"field,omitempty"` // "" for the envelope as a whole
	Rule    Rule   `json:"rule"`
	Message string `json:"message"`
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Field != "" {
		b.WriteString(p.Field)
		b.WriteByte(' ')
	}
	b.WriteString(p.Message)
	switch p.Rule {
	case RuleFields:
		b.WriteString(" (AEE, Envelope Fields)")
	case RuleJSON, RuleCBOR:
	default:
		fmt.Fprintf(&b, " (AEE validity rule %s)", p.Rule)
	}
	return b.String()
}

// InvalidError lists all problems of an envelope.
type InvalidError struct {
	Problems []Problem
	partial  Envelope
}

// Partial returns the part of the envelope that could be decoded: enough to reply to its
// sender, never to act on. Fields that could not be decoded are empty.
func (e *InvalidError) Partial() *Envelope {
	c := e.partial
	return &c
}

func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		parts[i] = p.String()
	}
	return "invalid envelope: " + strings.Join(parts, "; ")
}

func invalid(list ...Problem) *InvalidError { return &InvalidError{Problems: list} }

type problems []Problem

func (p *problems) add(f field, r Rule, format string, args ...any) {
	*p = append(*p, Problem{fieldNames[f], r, fmt.Sprintf(format, args...)})
}

// typeRule returns the rule that a field of the wrong JSON type violates.
func typeRule(f field) Rule {
	switch f {
	case fieldV:
		return RuleVersion
	case fieldType:
		return RuleType
	case fieldPriority:
		return RulePriority
	case fieldPayload:
		return RulePayload
	}
	return RuleFields
}

// Validate returns all problems of e as an *[InvalidError], or nil. [Parse] and
// [Envelope.AppendJSON] call it or do the same checks.
func (e *Envelope) Validate() error {
	var bad problems
	left := DefaultMaxValues + 1
	if !e.wellFormed(&left) {
		e.malformations(&bad)
	}
	if len(e.Extra) > 0 {
		e.checkExtra(&bad, &left)
	}
	if len(bad) == 0 {
		e.check(&bad, 1<<numFields-1)
	}
	if len(bad) > 0 {
		return invalid(bad...)
	}
	return nil
}

// wellFormed reports whether the texts are valid UTF-8 and the raw fields valid JSON.
func (e *Envelope) wellFormed(left *int) bool {
	return utf8.ValidString(e.ID) && utf8.ValidString(e.TS) && utf8.ValidString(e.From) && utf8.ValidString(e.To) &&
		utf8.ValidString(e.Intent) && utf8.ValidString(e.Corr) && utf8.ValidString(e.ReplyTo) && utf8.ValidString(e.V) &&
		fieldJSON(e.Trace, left) == nil && fieldJSON(e.Requires, left) == nil && fieldJSON(e.Payload, left) == nil && fieldJSON(e.Sig, left) == nil
}

// fieldJSON checks that raw is nil or a valid field value. It subtracts the values inside
// from left, which counts as in [scanner].
func fieldJSON(raw []byte, left *int) error {
	if raw == nil {
		return nil
	}
	*left++ // a field itself does not count
	return memberJSON(raw, left)
}

func memberJSON(raw []byte, left *int) error {
	s := scanner{data: raw, maxDepth: defaultMaxDepth - 1, left: *left}
	err := s.whole()
	*left = s.left
	return err
}

// malformations reports which fields are not well-formed.
func (e *Envelope) malformations(bad *problems) {
	for _, t := range [...]struct {
		f    field
		text string
	}{
		{fieldV, e.V}, {fieldID, e.ID}, {fieldTS, e.TS}, {fieldFrom, e.From}, {fieldTo, e.To},
		{fieldIntent, e.Intent}, {fieldCorr, e.Corr}, {fieldReplyTo, e.ReplyTo},
	} {
		if !utf8.ValidString(t.text) {
			bad.add(t.f, RuleJSON, "is not valid UTF-8")
		}
	}
	left := DefaultMaxValues + 1
	for _, r := range [...]struct {
		f   field
		raw []byte
	}{{fieldTrace, e.Trace}, {fieldRequires, e.Requires}, {fieldPayload, e.Payload}, {fieldSig, e.Sig}} {
		if err := fieldJSON(r.raw, &left); err != nil {
			bad.add(r.f, RuleJSON, "is not valid JSON: %v", err)
		}
	}
}

// checkExtra validates the extra members.
func (e *Envelope) checkExtra(bad *problems, left *int) {
	var unique nameSet
	for _, m := range e.Extra {
		name := []byte(m.Name)
		if _, known := fieldOf(name); known || !utf8.ValidString(m.Name) || !unique.add(name) {
			*bad = append(*bad, Problem{quoteName(name), RuleJSON, "cannot be an extra member: its name is a field's, is there twice, or is not valid UTF-8"})
		}
		if err := memberJSON(m.Value, left); err != nil {
			*bad = append(*bad, Problem{quoteName([]byte(m.Name)), RuleJSON, fmt.Sprintf("is not valid JSON: %v", err)})
		}
	}
	unique.release()
}

// check applies the rules to the fields with a bit in present, whose texts are
// well-formed.
func (e *Envelope) check(bad *problems, present uint16) {
	has := func(f field) bool { return present&(1<<f) != 0 }
	if has(fieldV) && e.V != Version {
		bad.add(fieldV, RuleVersion, `must be "1", not %s`, quoteName([]byte(e.V)))
	}
	atLeast(bad, present, fieldID, e.ID, 8)
	atLeast(bad, present, fieldTS, e.TS, 10)
	if has(fieldType) {
		switch e.Type {
		case TypeTask, TypeEvent, TypeStream, TypeResult, TypeError:
		default:
			bad.add(fieldType, RuleType, "must be task, result, event, error or stream, not %s", quoteName([]byte(e.Type)))
		}
	}
	atLeast(bad, present, fieldFrom, e.From, 1)
	atLeast(bad, present, fieldTo, e.To, 1)
	atLeast(bad, present, fieldIntent, e.Intent, 3)
	atLeast(bad, present, fieldCorr, e.Corr, 8)
	if e.Type.Terminal() && !hasRunes(e.ReplyTo, 8) {
		bad.add(fieldReplyTo, RuleReplyTo, "must be the id of the task that the %s answers, at least 8 characters", e.Type)
	}
	if has(fieldPriority) && e.Priority.Rank() < 0 {
		bad.add(fieldPriority, RulePriority, "must be low, normal, high or urgent, not %s", quoteName([]byte(e.Priority)))
	}
	if e.Trace != nil {
		e.checkTrace(bad)
	}
	if e.Requires != nil && first(e.Requires) != '{' {
		bad.add(fieldRequires, RuleFields, "must be an object or null")
	}
	if has(fieldPayload) && first(e.Payload) != '{' {
		bad.add(fieldPayload, RulePayload, "must be a JSON object")
	}
	if c := first(e.Sig); e.Sig != nil && c != '{' && c != '"' {
		bad.add(fieldSig, RuleFields, "must be an object, a string or null")
	}
}

func (e *Envelope) checkTrace(bad *problems) {
	if first(e.Trace) != '{' {
		bad.add(fieldTrace, RuleFields, "must be an object or null")
		return
	}
	eachMember(e.Trace, func(name, value []byte) error {
		if (string(name) == "trace_id" || string(name) == "span_id") && value[0] != '"' {
			bad.add(fieldTrace, RuleFields, "must have a string as %s", name)
		}
		return nil
	})
}

func atLeast(bad *problems, present uint16, f field, text string, n int) {
	if present&(1<<f) == 0 || hasRunes(text, n) {
		return
	}
	unit := "characters"
	if n == 1 {
		unit = "character"
	}
	bad.add(f, RuleFields, "must have at least %d %s", n, unit)
}

// hasRunes reports whether text, which is valid UTF-8, has at least n characters.
func hasRunes(text string, n int) bool {
	if n <= 8 && len(text) >= 8 && word(text)&highBits == 0 {
		return true // eight ASCII characters
	}
	for i := 0; i < len(text) && n > 0; i++ {
		if text[i]&0xC0 != 0x80 { // not a continuation byte
			n--
		}
	}
	return n <= 0
}

// first returns the first byte of raw that is not white space, or 0.
func first(raw []byte) byte {
	for _, c := range raw {
		switch c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}
