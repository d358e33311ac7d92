package envelope

import (
	"encoding/json"
)

// Version is the only value that field v may have (AEE, Validity Rules, rule 5).
const Version = "1"

// Type is an envelope's message type (AEE, Message Types).
type Type string

// The five message types. No other value is valid (rule 2).
const (
	TypeTask   Type = "task"   // a request to perform work; expects a result or an error
	TypeResult Type = "result" // a task that succeeded
	TypeEvent  Type = "event"  // a signal that expects no reply
	TypeError  Type = "error"  // a task that failed
	TypeStream Type = "stream" // a partial result or progress, before the terminal envelope
)

// Terminal reports whether an envelope of this type ends its task.
func (t Type) Terminal() bool { return t == TypeResult || t == TypeError }

// Priority is an envelope's urgency. Receivers cap it by their own policy
// (AEE, Security Considerations, "Denial of Service via Priority Field Abuse").
type Priority string

// The four priorities. No other value is valid (rule 6).
const (
	PriorityLow    Priority = "low"
	PriorityNormal Priority = "normal"
	PriorityHigh   Priority = "high"
	PriorityUrgent Priority = "urgent"
)

// Priorities lists the four priorities, the most urgent first.
var Priorities = [...]Priority{PriorityUrgent, PriorityHigh, PriorityNormal, PriorityLow}

// Rank returns 0 for the most urgent priority to 3 for the least urgent, and -1 for an
// invalid value.
func (p Priority) Rank() int {
	switch p {
	case PriorityUrgent:
		return 0
	case PriorityHigh:
		return 1
	case PriorityNormal:
		return 2
	case PriorityLow:
		return 3
	}
	return -1
}

// Envelope is one AEE message: the 14 fields of the draft, and the unknown members that
// came with them. The object-valued fields hold the received JSON, byte for byte; methods
// decode them.
//
// An Envelope is a plain value: many goroutines may read it, or one may change it.
type Envelope struct {
	V        string          // "1"
	ID       string          // unique; a ULID from [NewID]; at least 8 characters
	TS       string          // when it was made; ISO 8601 UTC from [Now]; at least 10 characters
	Type     Type            // task, result, event, error or stream
	From     string          // the sender's entity id; self-asserted unless a signature covers it
	To       string          // the recipient's entity id, or a channel (bus.*)
	Intent   string          // what the message asks for; decides the payload's schema; at least 3 characters
	Corr     string          // links all messages of one workflow; at least 8 characters
	ReplyTo  string          // the id of the task that this envelope answers; "" stands for null
	Trace    json.RawMessage // an object with trace_id and span_id; nil stands for null
	Priority Priority        // low, normal, high or urgent
	Requires json.RawMessage // an object of constraints, see [Requirements]; nil stands for null
	Payload  json.RawMessage // an object; the intent defines its form
	Sig      json.RawMessage // an object or a string, see package sign; nil stands for null

	// Extra holds unknown top-level members in the order in which they were found. Code
	// ignores them (rule 7), and encoding writes them again.
	Extra []Member

	// emptyReplyTo distinguishes reply_to:"" from null, so that a signature over the
	// former still verifies.
	emptyReplyTo bool
}

// Member is one name and its JSON value.
type Member struct {
	Name  string
	Value json.RawMessage
}

// New makes a complete envelope: with a new id, which is also its corr, the current time,
// and priority normal. A nil payload becomes the empty object.
func New(t Type, from, to, intent string, payload json.RawMessage) *Envelope {
	if payload == nil {
		payload = json.RawMessage("{}")
	}
	id, ts := stamp()
	return &Envelope{
		V: Version, ID: id, TS: ts, Type: t,
		From: from, To: to, Intent: intent, Corr: id,
		Priority: PriorityNormal, Payload: payload,
	}
}

// Reply makes an envelope that answers e: from and to are exchanged, intent, corr, trace
// and priority are copied, and reply_to is e's id (AEE, Message Types). The constraints
// in requires are not copied.
func (e *Envelope) Reply(t Type, payload json.RawMessage) *Envelope {
	r := &Envelope{} // inlined, so that it can stay on the caller's stack
	e.reply(r, t, payload)
	return r
}

func (e *Envelope) reply(r *Envelope, t Type, payload json.RawMessage) {
	if payload == nil {
		payload = json.RawMessage("{}")
	}
	r.ID, r.TS = stamp()
	r.V, r.Type, r.From, r.To = Version, t, e.To, e.From
	r.Intent, r.Corr, r.ReplyTo = e.Intent, e.Corr, e.ID
	r.Trace, r.Priority, r.Payload = e.Trace, e.Priority, payload
}

// ReplyError makes the error envelope that answers e with the public part of err: the
// *[Error] that [AsError] finds in err, or E_INTERNAL without any detail.
func (e *Envelope) ReplyError(err error) *Envelope {
	return e.Reply(TypeError, AsError(err).Payload())
}

// Clone returns a copy whose fields can be changed. It shares the JSON of the
// object-valued fields.
func (e *Envelope) Clone() *Envelope {
	c := *e
	c.Extra = append([]Member(nil), e.Extra...)
	return &c
}

// TraceContext is the content of field trace: W3C ids in lower-case hex if this mesh
// wrote them, otherwise any strings.
type TraceContext struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
}

// TraceContext decodes field trace; ok is false if it is null or has no trace_id.
func (e *Envelope) TraceContext() (tc TraceContext, ok bool) {
	if e.Trace == nil {
		return tc, false
	}
	eachMember(e.Trace, func(name, value []byte) error {
		switch string(name) {
		case "trace_id":
			tc.TraceID, _ = stringValue(value)
		case "span_id":
			tc.SpanID, _ = stringValue(value)
		}
		return nil
	})
	return tc, tc.TraceID != ""
}

// SetTraceContext sets field trace to trace_id and span_id. It drops other members, which
// described the peer's span.
func (e *Envelope) SetTraceContext(tc TraceContext) {
	b := make([]byte, 0, 96)
	b = append(b, `{"trace_id":`...)
	b = AppendString(b, tc.TraceID)
	b = append(b, `,"span_id":`...)
	b = AppendString(b, tc.SpanID)
	e.Trace = append(b, '}')
}
