package mesh

import (
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// The members of requires that the mesh reads itself (docs/nats-binding.md). They are
// looked up in what [envelope.Envelope.ReadRequires] has decoded, never searched for in
// the bytes. A signature covers the canonical form and leaves every hop the choice how a
// name, a text or a number is spelled, so the values are read in that form, too.
const (
	requireNotBefore    = "not_before"    // when the task is to begin at the earliest
	requireTree         = "tree"          // see tree
	requireHandoff      = "handoff"       // see handed
	requireHandedBy     = "handed_by"     // see handedBy
	requireContext      = "context"       // see stateRef
	requireMesh         = "mesh"          // the subject prefix of the mesh that it is for, see BindTask
	requireLane         = "lane"          // the lane that it is for, see BindTask
	requireResultSchema = "result_schema" // see resultSchema
	requireAnswerBy     = "answer_by"     // until when the answer of a person counts
	requireEscalateTo   = "escalate_to"   // who is asked after that
)

// readRequires reads field requires of the task, once, into Requires and the members
// that the mesh reads itself. The fault that it returns is that of Requires: a fault in
// another member is found by its reader.
func (t *Task) readRequires() error {
	if !t.read {
		t.Requires, t.members, t.illegible = t.Envelope.ReadRequires()
		for i := range t.members {
			t.members[i].Value = canonical(t.members[i].Value)
		}
		t.read = true
	}
	return t.illegible
}

// required is a member of requires, nil where it is absent or null.
func (t *Task) required(name string) json.RawMessage {
	if t.read {
		return t.members.Get(name)
	}
	_, members, _ := t.Envelope.ReadRequires() // no worker has taken the task in
	return canonical(members.Get(name))
}

// canonical is the canonical form of raw. A number that has none stays as it is: no
// signature covers it.
func canonical(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return nil
	}
	if out, err := envelope.Canonical(raw); err == nil {
		return out
	}
	return raw
}

// notBefore is when the task is to begin at the earliest, by the server's clock; zero
// where it does not say so, or not legibly.
func (t *Task) notBefore() time.Time {
	at, _ := readNotBefore(t.required(requireNotBefore))
	return at
}

func readNotBefore(raw json.RawMessage) (time.Time, *envelope.Error) {
	if raw == nil {
		return time.Time{}, nil
	}
	var at time.Time // after the check: it escapes
	if err := json.Unmarshal(raw, &at); err != nil {
		return time.Time{}, envelope.Errorf(envelope.CodeRequires, "requires.not_before must be a time as in RFC 3339").WithCause(err)
	}
	return at, nil
}
