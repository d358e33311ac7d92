package mesh

import (
	"context"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/state"
)

// A delegation or a call can carry an Agent State document (internal/delegated): the task has a
// reference to it.

// StateRef refers to the Agent State document that is sent with a task: by the entity that stored
// it, its run_id and state_id, and the SHA-256 of its bytes. It names the user to whom the
// document's memories of scope user belong, if that is not the task's caller. Its fields:
//
//	Entity, Run, StateID string
//	Hash                 string // "sha256:" and hex, of the bytes as they are stored
//	User                 string // empty: the task's caller
//	Document             string // the document itself, if the receiver may be unable to read it from a store
type StateRef = delegated.StateRef

// newDocuments returns the state documents that go along with the agent's tasks.
func (h *host) newDocuments() delegated.Documents {
	n := h.node
	docs := delegated.Documents{Entity: h.Entity, AgentID: h.AgentID, MustSeal: h.MustSeal, MaxPayload: n.conn.MaxPayload, States: func() state.Store {
		if d := n.durable(); d != nil {
			return d.States
		}
		return nil
	}}
	if d := n.cfg.Durable; d != nil {
		docs.Codec, docs.Fenced = d.Codec, d.fenced
	}
	if h.Seal != nil {
		docs.Codec.Seal = h.Seal
	}
	return docs
}

// storeHanded stores the state document of a delegation.
func (t *Task) storeHanded(ctx context.Context, c *state.Checkpoint) (*StateRef, error) {
	ref, err := storeDocument(ctx, t, c, "handoff "+envelope.NewID())
	if ref != nil && t.User() != t.Caller() {
		ref.User = t.User()
	}
	return ref, err
}

// storeCalled stores the state document of a call, once for each key. A worker that repeats
// the call after a crash sends the stored document.
func (t *Task) storeCalled(ctx context.Context, key string, c *state.Checkpoint) (*StateRef, error) {
	ref, err := storeDocument(ctx, t, c, "call "+t.CallID(key))
	if ref != nil {
		ref.User = t.User()
	}
	return ref, err
}

func storeDocument(ctx context.Context, t *Task, c *state.Checkpoint, name string) (*StateRef, error) {
	from := state.Parent{TaskID: t.Envelope.ID}
	if t.run != nil {
		from.Run = t.run.ID()
	}
	return t.host.documents.Store(ctx, c, state.RunID(t.host.Entity, name), from)
}

// stateRef returns the reference to the task's state document, nil if there is none, and the
// entities that may have stored the document. A delegated task has the reference in
// requires.handoff. A call has it in requires.context: Delegate called the receiver instead
// of delegating to it, or the caller set [Call].State.
func (t *Task) stateRef() (ref *StateRef, from []string, err error) {
	if t.handed != nil {
		ref, from = t.handed.State, t.handed.Links.Entities()
	} else if ref, err = delegated.ReadRef(t.required(requires.Context)); ref != nil {
		from = []string{t.Envelope.From}
	}
	if err == nil {
		err = ref.Check()
	}
	if err != nil {
		return nil, nil, err
	}
	return ref, from, nil
}

// User returns the user whose memories of scope user the task may read. Normally that is
// the task's Caller. If the sender sent a state document and named a user in the reference,
// it is "<user> of <sender>". If the run came from another platform, it is "<caller> of
// <platform>", because only that platform knows who sent the task. The suffix prevents that
// an agent or a platform poses as a user of another one.
func (t *Task) User() string {
	if ref, _, err := t.stateRef(); err == nil && ref != nil && ref.User != "" {
		return ref.User + " of " + t.Envelope.From
	}
	if t.run != nil {
		if platform := t.run.vouchedBy(); platform != "" {
			return t.Caller() + " of " + platform
		}
	}
	return t.Caller()
}

// HandedState returns the Agent State document of a delegation or a call, nil if there is
// none. It reads the document from the mesh's store, and verifies that it is the one that
// the delegating or calling agent stored. It fails with E_NOT_FOUND, with E_HASH_MISMATCH,
// with E_DENIED (sealed with another key, or stored by another agent), or with E_UNAVAILABLE
// if the document cannot be read.
func (t *Task) HandedState(ctx context.Context) (*state.Checkpoint, error) {
	ref, from, err := t.stateRef()
	if err != nil || ref == nil {
		return nil, err
	}
	return t.host.documents.Read(ctx, ref, from)
}
