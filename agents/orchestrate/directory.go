package orchestrate

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// Errors of a [Directory], for errors.Is.
var (
	// ErrUnknown: the reference cannot be resolved now or later: it has no
	// known form, or its definition cannot be read.
	ErrUnknown = errors.New("no agent is known by this reference")
	// ErrUnanswered: the reference is valid, but no agent answers for it now.
	ErrUnanswered = errors.New("no worker answers for this reference now")
)

// Directory resolves the reference of a subagent (AAIF,
// orchestration.subagents[].ref) to a member of the mesh.
//
// Implementers must return before ctx ends and be safe for concurrent use.
// Their errors must wrap [ErrUnknown], [ErrUnanswered] or the context's error. They
// must return the same member for a reference while the same agents are
// available.
type Directory interface {
	// Find returns the member that currently answers for a reference.
	Find(ctx context.Context, ref string) (Member, error)
}

// Member is the agent, service or person that a reference stands for.
type Member struct {
	Entity  string           // the entity that tasks are sent to
	AgentID string           // of its definition; "" if it is not known
	Def     *aaif.Definition // nil if it is not known

	restored bool // chosen earlier in the run: Def is not read yet
}

// Entities is a directory that resolves entity ids only.
type Entities struct{}

// Find returns the entity whose id is ref, or ErrUnknown.
func (Entities) Find(_ context.Context, ref string) (Member, error) {
	if !IsEntity(ref) {
		return Member{}, ErrUnknown
	}
	return Member{Entity: ref}, nil
}

// IsEntity reports whether a reference is the id of an entity that may receive
// tasks: an agent, a service or a person.
func IsEntity(ref string) bool {
	switch subject.EntityType(ref) {
	case subject.TypeAgent, subject.TypeService, subject.TypeHuman:
		return subject.ValidateEntity(ref) == nil
	}
	return false
}

// IsPath reports whether a reference without a scheme is the path of a document: ./x, ../x, /x,
// or a name with one of the documents' extensions.
func IsPath(ref string) bool {
	if strings.HasPrefix(ref, "./") || strings.HasPrefix(ref, "../") || strings.HasPrefix(ref, "/") {
		return true
	}
	switch strings.ToLower(path.Ext(ref)) {
	case ".json", ".yaml", ".yml", ".cbor":
		return true
	}
	return false
}
