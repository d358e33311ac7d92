package delegated

import (
	"cmp"
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
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

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

// ReadRef reads requires.context: the reference of a call, nil if it has none.
func ReadRef(raw json.RawMessage) (*StateRef, error) {
	if raw == nil {
		return nil, nil
	}
	var ref *StateRef
	if err := wire.ReadJSON(raw, &ref); err != nil {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.context must be a reference to an Agent State document")
	}
	return ref, nil
}

// Check refuses a malformed reference; nil is none.
func (ref *StateRef) Check() error {
	if ref != nil && len(ref.User) > wire.MaxName {
		return envelope.Errorf(envelope.CodeRequires, "the name of the user of the task's state document has more than %d bytes", wire.MaxName)
	}
	return nil
}

// Documents are the Agent State documents that go along with the tasks of one agent. A document is
// stored in the mesh's store of runs, in a record of its own that never changes. The task has a
// reference to it: the entity that stored it, its ids, and the SHA-256 of its bytes (AEE,
// referencing: by id and hash, never nested). A mesh without JetStream has no such store: there
// the task contains the document itself, up to a limit.
type Documents struct {
	Entity, AgentID string
	Codec           state.Codec
	States          func() state.Store // the store of runs; nil: there is none, or none yet
	Fenced          bool               // the NATS user of the worker may read its own entity's records only
	MustSeal        bool               // without Codec.Seal nothing is stored
	MaxPayload      func() int64
}

// inlineDivisor limits a document that the task itself contains: it may have at most
// 1/inlineDivisor of the server's max_payload.
const inlineDivisor = 2

// Store stores a state document in the record of a run id of its own, and returns the reference
// to it. If the record exists, it reads the document there and returns the reference to that one.
// from names the task for which it is stored. It fails with E_DENIED if the document may not be
// stored unencrypted.
func (d *Documents) Store(ctx context.Context, c *state.Checkpoint, runID string, from state.Parent) (*StateRef, error) {
	c = c.Clone()
	c.Doc.Status, c.Doc.RunID = aaif.RunCompleted, runID
	c.Doc.AgentID = cmp.Or(c.Doc.AgentID, d.AgentID)
	if c.Doc.AgentID == "" {
		c.Doc.AgentID = state.AgentID(d.Entity)
	}
	from.Kind, from.Entity = "handoff", d.Entity
	c.Mesh = state.Mesh{
		Format: state.Format, Entity: d.Entity, Notes: c.Mesh.Notes, Parent: &from,
		Step: state.Step{Kind: state.StepHandoff, Detail: "goes along with a task"},
	}
	data, err := d.Codec.Over(0).Encode(c)
	if err != nil {
		return nil, fmt.Errorf("the state document of a task: %w", err)
	}
	ref := &StateRef{Entity: d.Entity, Run: c.Doc.RunID, StateID: c.Doc.StateID, Hash: hashOf(data)}
	limit := int(d.MaxPayload()) / inlineDivisor
	fits := func() bool { return len(data) <= limit && d.Codec.Encoding != aaif.CBOR }
	if states := d.States(); states != nil {
		if d.MustSeal && d.Codec.Seal == nil {
			return nil, envelope.Errorf(envelope.CodeDenied, "the state document of a task would be stored unencrypted, and the state of %s must be encrypted; give its worker a key", d.Entity)
		}
		_, err := states.Put(ctx, c.ID(), 0, data)
		if errors.Is(err, state.ErrChanged) {
			var was state.Record
			if was, err = states.Get(ctx, c.ID()); err == nil {
				if c, err = d.Codec.Read(was); err == nil {
					data = was.Data
					ref.StateID, ref.Hash = c.Doc.StateID, hashOf(data)
				}
			}
		}
		if err != nil {
			return nil, envelope.Errorf(envelope.CodeUnavailable, "the state document of a task cannot be stored for now: %w", err)
		}
		if d.Fenced && fits() { // the receiver's NATS user may not read this agent's records either
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

// Read returns the document of a reference, and verifies that it is the one that an entity of from
// stored. It fails with E_NOT_FOUND, with E_HASH_MISMATCH, with E_DENIED (sealed with another key,
// or stored by another agent), or with E_UNAVAILABLE if the document cannot be read.
func (d *Documents) Read(ctx context.Context, ref *StateRef, from []string) (*state.Checkpoint, error) {
	if !slices.Contains(from, ref.Entity) {
		return nil, envelope.Errorf(envelope.CodeDenied, "the task's state document was stored by %s, which neither sent nor delegated the task", clip.Text(ref.Entity, 128))
	}
	data, err := d.bytes(ctx, ref)
	if err != nil {
		return nil, err
	}
	if got := hashOf(data); subtle.ConstantTimeCompare([]byte(got), []byte(ref.Hash)) != 1 {
		return nil, envelope.Errorf(envelope.CodeHashMismatch, "the task's state document has another hash")
	}
	codec := d.Codec
	codec.AcceptClear = true // the hash in the task authenticates the document
	c, err := codec.Decode(data)
	switch {
	case errors.Is(err, state.ErrSealed), errors.Is(err, state.ErrForged):
		return nil, envelope.Errorf(envelope.CodeDenied, "%s cannot read the task's state document, which is sealed with a key that this worker does not have: %w", d.Entity, err)
	case err != nil:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the task's state document cannot be read: %w", err)
	}
	if c.Mesh.Entity != ref.Entity || c.Doc.RunID != ref.Run || c.Mesh.Step.Kind != state.StepHandoff {
		return nil, envelope.Errorf(envelope.CodeDenied, "the task's state document is not the one that its reference names")
	}
	return c, nil
}

func (d *Documents) bytes(ctx context.Context, ref *StateRef) ([]byte, error) {
	if ref.Document != "" {
		return []byte(ref.Document), nil
	}
	states := d.States()
	if states == nil {
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the task's state document is in the store of runs, to which this worker of %s has no access", d.Entity)
	}
	id := state.ID{Entity: ref.Entity, Run: ref.Run}
	if err := id.Validate(); err != nil {
		return nil, bad("state: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, sched.StoreTimeout)
	defer cancel()
	rec, err := states.Get(ctx, id)
	switch {
	case errors.Is(err, state.ErrNotFound):
		return nil, envelope.Errorf(envelope.CodeNotFound, "the task's state document is no longer in the store")
	case err != nil:
		return nil, envelope.Errorf(envelope.CodeUnavailable, "the task's state document cannot be read for now: %w", err)
	}
	return rec.Data, nil
}
