package mesh

import (
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// The members of requires that the mesh reads itself (docs/nats-binding.md). They are
// looked up in what [envelope.Envelope.ReadRequires] has decoded, never searched for in
// the bytes. A signature covers the canonical form, so an intermediary may change the
// spelling of names, strings and numbers. Therefore the values are read in canonical
// form, too.
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
	requireEscalateTo   = "escalate_to"   // the entity that is asked after that
)

// memberOf returns a member of an envelope's requires in canonical form, nil if it is absent
// or null.
func memberOf(e *envelope.Envelope, name string) json.RawMessage {
	_, members, _ := e.ReadRequires()
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

// readNotBefore reads requires.not_before; zero if it is absent.
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
