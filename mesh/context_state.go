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
	"github.com/aeemesh/aeemesh/state"
)

// What goes along with a task that is handed on, or with a call, is an Agent State
// document in the mesh's store of runs, and the task has a reference to it: by whom, which,
// and the SHA-256 of its bytes (AEE, referencing: by id and hash, never nested).
// Each has a record of its own, which never changes. A mesh without JetStream has
// no such store: there the document itself goes along, up to a limit.

// StateRef refers to an Agent State document that came with a task.
type StateRef struct {
	Entity  string `json:"entity"`
	Run     string `json:"run"` // the document's run_id
	StateID string `json:"state_id"`
	Hash    string `json:"hash"` // "sha256:" and hex, of the bytes as they are stored
	// User is whose its memories of scope user are, as the task's from says, where
	// that is not the task's caller.
	User string `json:"user,omitempty"`
	// Document is the document itself, on a mesh that has no store for it.
	Document string `json:"document,omitempty"`
}

// inlineShare is the part of a message that a document may take which goes along
// itself.
const inlineShare = 2

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

// storeHanded stores what goes along with a task that is handed on.
func (h *host) storeHanded(ctx context.Context, t *Task, c *state.Checkpoint) (*StateRef, error) {
	ref, err := h.storeAlong(ctx, t, c, state.RunID(h.Entity, "handoff "+envelope.NewID()))
	if ref != nil && t.User() != t.Caller() {
		ref.User = t.User()
	}
	return ref, err
}

// storeCalled stores what goes along with a call. It is stored once for each key:
// whoever makes the call again, after a crash, sends along what is there.
func (h *host) storeCalled(ctx context.Context, t *Task, key string, c *state.Checkpoint) (*StateRef, error) {
	ref, err := h.storeAlong(ctx, t, c, state.RunID(h.Entity, "call "+t.CallID(key)))
	if ref != nil {
		ref.User = t.User()
	}
	return ref, err
}

// storeAlong stores a document under a run of its own, or finds the one that is
// stored there.
func (h *host) storeAlong(ctx context.Context, t *Task, c *state.Checkpoint, run string) (*StateRef, error) {
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
		return nil, fmt.Errorf("what goes along with a task: %w", err)
	}
	ref := &StateRef{Entity: h.Entity, Run: c.Doc.RunID, StateID: c.Doc.StateID, Hash: hashOf(data)}
	limit := int(h.node.conn.MaxPayload()) / inlineShare
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
			return nil, envelope.Errorf(envelope.CodeUnavailable, "what goes along with a task cannot be stored for now: %w", err)
		}
		if d.fenced && fits() { // the other agent may be fenced, too
			ref.Document = string(data)
		}
		return ref, nil
	}
	if !fits() {
		return nil, envelope.Errorf(envelope.CodeTooLarge, "what goes along with a task has %d bytes; without JetStream it may have %d", len(data), limit)
	}
	ref.Document = string(data)
	return ref, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// stateRef is what came along, and who may have stored it; nil: nothing did. A task
// that is no hand-over has it in requires.context: the agent that sent it could not hand
// its own task on, and asks instead, or it leads a team and has its members know something.
func (t *Task) stateRef() (ref *StateRef, from []string, err error) {
	if t.handed != nil {
		return checkRef(t.handed.State, t.handed.links.Entities())
	}
	raw := t.required(requireContext)
	if raw == nil {
		return nil, nil, nil
	}
	var along *StateRef
	if err := json.Unmarshal(raw, &along); err != nil {
		return nil, nil, envelope.Errorf(envelope.CodeRequires, "requires.context must be a reference to an Agent State document")
	}
	return checkRef(along, []string{t.Envelope.From})
}

func checkRef(ref *StateRef, from []string) (*StateRef, []string, error) {
	if ref != nil && len(ref.User) > maxName {
		return nil, nil, envelope.Errorf(envelope.CodeRequires, "the state that came along is of a user whose name has more than %d bytes", maxName)
	}
	return ref, from, nil
}

// User is whose memories of scope user the task may have: its Caller's. Where
// another agent has sent memories along in a call it is the user that it names, as
// far as that agent says so; and of a run that another platform has handed over, by
// whose word alone its sender is known, that platform's: nobody can pass for somebody
// else's user.
func (t *Task) User() string {
	if ref, _, err := t.stateRef(); err == nil && ref != nil && ref.User != "" {
		return ref.User + " of " + t.Envelope.From
	}
	if platform := t.vouchedBy(); platform != "" {
		return t.Caller() + " of " + platform
	}
	return t.Caller()
}

// vouchedBy is the platform by whose word it is known who sent the task; see
// [state.Mesh.Vouched].
func (t *Task) vouchedBy() string {
	if t.run == nil {
		return ""
	}
	c := t.run.cp.Load()
	if c == nil {
		c = t.run.stored
	}
	if c == nil {
		return ""
	}
	return c.Mesh.Vouched()
}

// HandedState is the Agent State document that came along with a task that was
// handed on, or with a call, nil where none did. It is read from the mesh's store,
// and refused unless it is the very document that the agent which handed the task
// on, or called, has stored: E_NOT_FOUND, E_HASH_MISMATCH, E_DENIED (its seal, or whose it is) or
// E_UNAVAILABLE.
func (t *Task) HandedState(ctx context.Context) (*state.Checkpoint, error) {
	ref, from, err := t.stateRef()
	if err != nil || ref == nil {
		return nil, err
	}
	if !slices.Contains(from, ref.Entity) {
		return nil, envelope.Errorf(envelope.CodeDenied, "the state that came along is of %s, which has not had the task", clip.Text(ref.Entity, 128))
	}
	data, err := t.handedBytes(ctx, ref)
	if err != nil {
		return nil, err
	}
	if got := hashOf(data); subtle.ConstantTimeCompare([]byte(got), []byte(ref.Hash)) != 1 {
		return nil, envelope.Errorf(envelope.CodeHashMismatch, "the state that came along has another hash")
	}
	codec := t.host.stateCodec()
	codec.AcceptClear = true // its hash, in the task, vouches for it
	c, err := codec.Decode(data)
	switch {
	case errors.Is(err, state.ErrSealed), errors.Is(err, state.ErrForged):
		return nil, envelope.Errorf(envelope.CodeDenied, "%s cannot read the state that came along: it is sealed with a key that this worker does not have: %w", t.host.Entity, err)
	case err != nil:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the state that came along cannot be read: %w", err)
	}
	if c.Mesh.Entity != ref.Entity || c.Doc.RunID != ref.Run || c.Mesh.Step.Kind != state.StepHandoff {
		return nil, envelope.Errorf(envelope.CodeDenied, "the state that came along is not what its reference says")
	}
	return c, nil
}

func (t *Task) handedBytes(ctx context.Context, ref *StateRef) ([]byte, error) {
	if ref.Document != "" {
		return []byte(ref.Document), nil
	}
	d := t.host.node.durable()
	if d == nil {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the state that came along is in the store of runs, which this worker of %s does not have", t.host.Entity)
	}
	id := state.ID{Entity: ref.Entity, Run: ref.Run}
	if err := id.Validate(); err != nil {
		return nil, badHanded("state: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rec, err := d.States.Get(ctx, id)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil, envelope.Errorf(envelope.CodeNotFound, "the state that came along is not in the store any more")
	case err != nil:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the state that came along cannot be read for now: %w", err)
	}
	return rec.Data, nil
}
