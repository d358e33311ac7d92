package orchestrate

import (
	"context"
	"errors"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

// Errors of a [Directory], for errors.Is.
var (
	// ErrUnknown: a reference that nobody can ever answer for as things are: it
	// has no form that is known, or its definition cannot be had.
	ErrUnknown = errors.New("nobody is known by this reference")
	// ErrNobody: whoever the reference means is not there now.
	ErrNobody = errors.New("nobody answers for this reference now")
)

// Directory says who a document means by the reference of a subagent (AAIF,
// orchestration.subagents[].ref).
//
// Implementers must answer within the time that ctx has, be safe for concurrent
// use, wrap [ErrUnknown] or [ErrNobody] in what they return, or the context's
// error, and give for one reference the same member as long as the same agents
// are there.
type Directory interface {
	// Find says who answers for a reference now.
	Find(ctx context.Context, ref string) (Member, error)
}

// Member is an agent, a service or a person that a reference means.
type Member struct {
	Entity  string           // whom tasks are sent to
	AgentID string           // of its definition; "" where none is known
	Def     *aaif.Definition // nil where none is known
}

// Entities is the directory that knows nobody: a reference must be an entity id.
type Entities struct{}

// Find returns the entity that ref is, or ErrUnknown.
func (Entities) Find(_ context.Context, ref string) (Member, error) {
	if !IsEntity(ref) {
		return Member{}, ErrUnknown
	}
	return Member{Entity: ref}, nil
}

// IsEntity reports whether a reference is the id of an entity that may be given
// a task: an agent, a service, a person.
func IsEntity(ref string) bool {
	switch subject.EntityType(ref) {
	case subject.TypeAgent, subject.TypeService, subject.TypeHuman:
		return subject.ValidateEntity(ref) == nil
	}
	return false
}
