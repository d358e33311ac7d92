package requires

import (
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// The members of requires that the mesh reads itself (docs/nats-binding.md). They are
// looked up in what [envelope.Envelope.ReadRequires] has decoded, never searched for in
// the bytes. A signature covers the canonical form, so an intermediary may change the
// spelling of names, strings and numbers. Therefore the values are read in canonical
// form, too.
const (
	NotBefore    = "not_before"    // when the task is to begin at the earliest
	Tree         = "tree"          // the limits of its tree of tasks
	Handoff      = "handoff"       // the task that was delegated, and the proof of it
	HandedBy     = "handed_by"     // the agents that delegated it before
	Context      = "context"       // the state document that is sent with it
	Mesh         = "mesh"          // the subject prefix of the mesh that it is for, see Bind
	Lane         = "lane"          // the lane that it is for, see Bind
	ResultSchema = "result_schema" // see SchemaOf
	AnswerBy     = "answer_by"     // until when the answer of a person counts
	EscalateTo   = "escalate_to"   // the entity that is asked after that
)

// Member returns a member of an envelope's requires in canonical form, nil if it is absent
// or null.
func Member(e *envelope.Envelope, name string) json.RawMessage {
	_, members, _ := e.ReadRequires()
	return Canonical(members.Get(name))
}

// Canonical is the canonical form of raw. A number without a canonical form stays as it is: no
// signature covers it.
func Canonical(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	if out, err := envelope.Canonical(raw); err == nil {
		return out
	}
	return raw
}

// ReadNotBefore reads requires.not_before; zero if it is absent.
func ReadNotBefore(raw json.RawMessage) (time.Time, *envelope.Error) {
	if raw == nil {
		return time.Time{}, nil
	}
	var at time.Time // declared after the check, because it escapes to the heap
	if err := json.Unmarshal(raw, &at); err != nil {
		return time.Time{}, envelope.Errorf(envelope.CodeRequires, "requires.not_before must be a time as in RFC 3339").WithCause(err)
	}
	return at, nil
}

// AnswerOf reads the members of requires about a person's answer to a task that was stored at a
// time: until when an answer counts (zero: no deadline), which entity is asked after that, and the
// schema that the answer must fit. An unreadable member is ignored.
func AnswerOf(task *envelope.Envelope, stored time.Time) (until time.Time, escalateTo string, due json.RawMessage) {
	have, members, err := task.ReadRequires()
	if json.Unmarshal(Canonical(members.Get(AnswerBy)), &until) != nil {
		until = time.Time{}
	}
	var to string
	if json.Unmarshal(members.Get(EscalateTo), &to) == nil {
		escalateTo = clip.Text(to, 128)
	}
	due = members.Get(ResultSchema)
	if err == nil && until.IsZero() && have.Timeout > 0 {
		until = stored.Add(have.Timeout)
	}
	return until, escalateTo, due
}
