package mesh

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// A delegation or a call can carry an Agent State document. The document is stored in the
// mesh's store of runs, in a record of its own that never changes. The task has a reference
// to it: the entity that stored it, its ids, and the SHA-256 of its bytes (AEE, referencing:
// by id and hash, never nested). A mesh without JetStream has no such store: there the task
// contains the document itself, up to a limit.

// StateRef refers to the Agent State document that is sent with a task.
type StateRef struct {
	Entity  string `json:"entity"`
	Run     string `json:"run"` // the document's run_id
	StateID string `json:"state_id"`
	Hash    string `json:"hash"` // "sha256:" and hex, of the bytes as they are stored
	// User is the user to whom the document's memories of scope user belong, as the
	// task's from states it. Empty: they belong to the task's caller.
	User string `json:"user,omitempty"`
	// Document is the document itself, if the receiver may be unable to read it from a
	// store.
	Document string `json:"document,omitempty"`
}

// inlineDivisor limits a document that the task itself contains: it may have at most
// 1/inlineDivisor of the server's max_payload.
const inlineDivisor = 2

func (h *host) stateCodec() state.Codec {
	var c state.Codec
	if d := h.node.cfg.Durable; d != nil {
		c = d.Codec
	}
	if h.Seal != nil {
		c.Seal = h.Seal
	}
	return c
}

// storeHanded stores the state document of a delegation.
func (h *host) storeHanded(ctx context.Context, t *Task, c *state.Checkpoint) (*StateRef, error) {
	ref, err := h.storeDocument(ctx, t, c, state.RunID(h.Entity, "handoff "+envelope.NewID()))
	if ref != nil && t.User() != t.Caller() {
		ref.User = t.User()
	}
	return ref, err
}

// storeCalled stores the state document of a call, once for each key. A worker that repeats
// the call after a crash sends the stored document.
func (h *host) storeCalled(ctx context.Context, t *Task, key string, c *state.Checkpoint) (*StateRef, error) {
	ref, err := h.storeDocument(ctx, t, c, state.RunID(h.Entity, "call "+t.CallID(key)))
	if ref != nil {
		ref.User = t.User()
	}
	return ref, err
}

// storeDocument stores a state document in a record of its own. If the record exists, it reads
// the document there and returns the reference to that one.
func (h *host) storeDocument(ctx context.Context, t *Task, c *state.Checkpoint, run string) (*StateRef, error) {
	c = c.Clone()
	c.Doc.Status, c.Doc.RunID = aaif.RunCompleted, run
	if c.Doc.AgentID == "" {
		c.Doc.AgentID = firstOf(h.AgentID, state.AgentID(h.Entity))
	}
	from := state.Parent{Kind: "handoff", Entity: h.Entity, TaskID: t.Envelope.ID}
	if t.run != nil {
		from.Run = t.run.id.Run
	}
	c.Mesh = state.Mesh{
		Format: state.Format, Entity: h.Entity, Notes: c.Mesh.Notes, Parent: &from,
		Step: state.Step{Kind: state.StepHandoff, Detail: "goes along with a task"},
	}
	codec := h.stateCodec()
	data, err := codec.Over(0).Encode(c)
	if err != nil {
		return nil, fmt.Errorf("the state document of a task: %w", err)
	}
	ref := &StateRef{Entity: h.Entity, Run: c.Doc.RunID, StateID: c.Doc.StateID, Hash: hashOf(data)}
	limit := int(h.node.conn.MaxPayload()) / inlineDivisor
	fits := func() bool { return len(data) <= limit && codec.Encoding != aaif.CBOR }
	if d := h.node.durable(); d != nil {
		_, err := d.States.Put(ctx, c.ID(), 0, data)
		if errors.Is(err, state.ErrChanged) {
			var was state.Record
			if was, err = d.States.Get(ctx, c.ID()); err == nil {
				if c, err = codec.Read(was); err == nil {
					data = was.Data
					ref.StateID, ref.Hash = c.Doc.StateID, hashOf(data)
				}
			}
		}
		if err != nil {
			return nil, envelope.Errorf(envelope.CodeUnavailable, "the state document of a task cannot be stored for now: %w", err)
		}
		if d.fenced && fits() { // the receiver's NATS user may not read this agent's records either
			ref.Document = string(data)
		}
		return ref, nil
	}
	if !fits() {
		return nil, envelope.Errorf(envelope.CodeTooLarge, "the state document of a task has %d bytes; without JetStream it may have at most %d", len(data), limit)
	}
	ref.Document = string(data)
	return ref, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// handedState reads the state document that was sent with a task.
type handedState struct{ *Task }

// stateRef returns the reference to the task's state document, nil if there is none, and the
// entities that may have stored the document. A delegated task has the reference in
// requires.handoff. A call has it in requires.context: Delegate called the receiver instead
// of delegating to it, or the caller set [Call].State.
func (hs handedState) stateRef() (ref *StateRef, from []string, err error) {
	if hs.handed != nil {
		return checkRef(hs.handed.State, hs.handed.links.Entities())
	}
	raw := hs.required(requires.Context)
	if raw == nil {
		return nil, nil, nil
	}
	var along *StateRef
	if err := json.Unmarshal(raw, &along); err != nil {
		return nil, nil, envelope.Errorf(envelope.CodeRequires, "requires.context must be a reference to an Agent State document")
	}
	return checkRef(along, []string{hs.Envelope.From})
}

func checkRef(ref *StateRef, from []string) (*StateRef, []string, error) {
	if ref != nil && len(ref.User) > wire.MaxName {
		return nil, nil, envelope.Errorf(envelope.CodeRequires, "the name of the user of the task's state document has more than %d bytes", wire.MaxName)
	}
	return ref, from, nil
}

// User returns the user whose memories of scope user the task may read. Normally that is
// the task's Caller. If the sender sent a state document and named a user in the reference,
// it is "<user> of <sender>". If the run came from another platform, it is "<caller> of
// <platform>", because only that platform knows who sent the task. The suffix prevents that
// an agent or a platform poses as a user of another one.
func (t *Task) User() string {
	if ref, _, err := (handedState{t}).stateRef(); err == nil && ref != nil && ref.User != "" {
		return ref.User + " of " + t.Envelope.From
	}
	if platform := (handedState{t}).vouchedBy(); platform != "" {
		return t.Caller() + " of " + platform
	}
	return t.Caller()
}

// vouchedBy returns the platform that states who sent the task, "" if this mesh has verified
// the sender itself; see [state.Mesh.Vouched].
func (hs handedState) vouchedBy() string {
	if hs.run == nil {
		return ""
	}
	c := hs.run.cp.Load()
	if c == nil {
		c = hs.run.stored
	}
	if c == nil {
		return ""
	}
	return c.Mesh.Vouched()
}

// HandedState returns the Agent State document of a delegation or a call, nil if there is
// none. It reads the document from the mesh's store, and verifies that it is the one that
// the delegating or calling agent stored. It fails with E_NOT_FOUND, with E_HASH_MISMATCH,
// with E_DENIED (sealed with another key, or stored by another agent), or with E_UNAVAILABLE
// if the document cannot be read.
func (t *Task) HandedState(ctx context.Context) (*state.Checkpoint, error) {
	ref, from, err := handedState{t}.stateRef()
	if err != nil || ref == nil {
		return nil, err
	}
	if !slices.Contains(from, ref.Entity) {
		return nil, envelope.Errorf(envelope.CodeDenied, "the task's state document was stored by %s, which neither sent nor delegated the task", clip.Text(ref.Entity, 128))
	}
	data, err := handedState{t}.handedBytes(ctx, ref)
	if err != nil {
		return nil, err
	}
	if got := hashOf(data); subtle.ConstantTimeCompare([]byte(got), []byte(ref.Hash)) != 1 {
		return nil, envelope.Errorf(envelope.CodeHashMismatch, "the task's state document has another hash")
	}
	codec := t.host.stateCodec()
	codec.AcceptClear = true // the hash in the task authenticates the document
	c, err := codec.Decode(data)
	switch {
	case errors.Is(err, state.ErrSealed), errors.Is(err, state.ErrForged):
		return nil, envelope.Errorf(envelope.CodeDenied, "%s cannot read the task's state document, which is sealed with a key that this worker does not have: %w", t.host.Entity, err)
	case err != nil:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the task's state document cannot be read: %w", err)
	}
	if c.Mesh.Entity != ref.Entity || c.Doc.RunID != ref.Run || c.Mesh.Step.Kind != state.StepHandoff {
		return nil, envelope.Errorf(envelope.CodeDenied, "the task's state document is not the one that its reference names")
	}
	return c, nil
}

func (hs handedState) handedBytes(ctx context.Context, ref *StateRef) ([]byte, error) {
	if ref.Document != "" {
		return []byte(ref.Document), nil
	}
	d := hs.host.node.durable()
	if d == nil {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the task's state document is in the store of runs, to which this worker of %s has no access", hs.host.Entity)
	}
	id := state.ID{Entity: ref.Entity, Run: ref.Run}
	if err := id.Validate(); err != nil {
		return nil, badHanded("state: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
	defer cancel()
	rec, err := d.States.Get(ctx, id)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil, envelope.Errorf(envelope.CodeNotFound, "the task's state document is no longer in the store")
	case err != nil:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the task's state document cannot be read for now: %w", err)
	}
	return rec.Data, nil
}
