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

// Rank is 0 for the most urgent priority and 3 for the least. It is -1 for a
// value that is no priority.
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

// Envelope is one AEE message: the 14 fields of the draft, and whatever
// unknown members came with them. The object-valued fields hold the JSON that
// was received, byte for byte; methods give typed views of them.
//
// An Envelope is a plain value holder: it may be read by many goroutines, and
// changed by one that nobody else shares it with.
type Envelope struct {
	V        string          // "1"
	ID       string          // unique; a ULID from [NewID]; at least 8 characters
	TS       string          // when it was made; ISO 8601 UTC from [Now]; at least 10 characters
	Type     Type            // task, result, event, error or stream
	From     string          // the sender's entity id; self-asserted unless a signature covers it
	To       string          // the recipient's entity id, or a channel (bus.*)
	Intent   string          // what is meant; decides the payload's schema; at least 3 characters
	Corr     string          // links all messages of one workflow; at least 8 characters
	ReplyTo  string          // the id of the task that is answered; "" stands for null
	Trace    json.RawMessage // an object with trace_id and span_id; nil stands for null
	Priority Priority        // low, normal, high or urgent
	Requires json.RawMessage // an object of constraints, see [Requirements]; nil stands for null
	Payload  json.RawMessage // an object; its shape belongs to the intent
	Sig      json.RawMessage // an object or a string, see package sign; nil stands for null

	// Extra holds unknown top-level members in the order they were met.
	// Logic ignores them (rule 7); they survive a round trip.
	Extra []Member

	// emptyReplyTo tells reply_to:"" from null, so that a signature over
	// the former still verifies.
	emptyReplyTo bool
}

// Member is one name and its JSON value.
type Member struct {
	Name  string
	Value json.RawMessage
}

// New makes an envelope that is complete but for what the caller wants to
// add: fresh id and corr, the time of now, priority normal. A nil payload
// becomes the empty object.
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

// Reply makes an envelope that answers e: from and to change places, intent,
// corr, trace and priority stay, reply_to names e (AEE, Message Types). The
// constraints in requires were the sender's and are not repeated.
func (e *Envelope) Reply(t Type, payload json.RawMessage) *Envelope {
	r := &Envelope{} // inlined, so that a caller who lets go of it pays no allocation
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

// ReplyError makes the error envelope that answers e with err's public part:
// what [AsError] finds in err, or E_INTERNAL without any detail.
func (e *Envelope) ReplyError(err error) *Envelope {
	return e.Reply(TypeError, AsError(err).Payload())
}

// Clone returns a copy that shares the JSON of the object-valued fields and
// can be changed field by field.
func (e *Envelope) Clone() *Envelope {
	c := *e
	c.Extra = append([]Member(nil), e.Extra...)
	return &c
}

// TraceContext is the content of field trace: W3C ids in lower-case hex when
// this mesh wrote them, any strings when somebody else did.
type TraceContext struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
}

// TraceContext reads field trace; ok is false where it is null or has no trace_id.
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

// SetTraceContext writes trace_id and span_id into field trace. Other members
// that a peer put there are dropped: they described the peer's span.
func (e *Envelope) SetTraceContext(tc TraceContext) {
	b := make([]byte, 0, 96)
	b = append(b, `{"trace_id":`...)
	b = AppendString(b, tc.TraceID)
	b = append(b, `,"span_id":`...)
	b = AppendString(b, tc.SpanID)
	e.Trace = append(b, '}')
}
