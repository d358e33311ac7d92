package mesh

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state/run"
)

// A delegated task is a task of its own. Its sender is the agent that delegates. Its
// requires.handoff, signed with the rest, names the original task; the answer carries the
// proof that its author may answer the original task (package chain).

// handedBy reads requires.handed_by, the list of the agents that delegated the task before.
// A call carries this list when its receiver does not support delegation and so gets no
// chain. The list is not proven; it only prevents that a task goes in a circle.
func (t *Task) handedBy() ([]string, error) {
	raw := t.required(requires.HandedBy)
	if raw == nil {
		return nil, nil
	}
	var entities []string
	if json.Unmarshal(raw, &entities) != nil || len(entities) > chain.Max {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.%s must be a list of at most %d entities", requires.HandedBy, chain.Max)
	}
	return entities, nil
}

// handed is requires.handoff.
type handed struct {
	Task   string   `json:"task"`   // the id of the original task
	Caller string   `json:"caller"` // the sender of the original task
	Intent string   `json:"intent"` // the intent of the original task
	Chain  []string `json:"chain"`  // links, see package chain

	State *StateRef `json:"state,omitempty"` // the state document that is sent with the task

	// Stream is the number of stream envelopes that earlier agents have sent. The
	// receiver goes on with the next number.
	Stream int `json:"stream,omitempty"`

	// For durable tasks only. Digest is the [HeaderTaskDigest] of the original task.
	// Epoch is the sum of the epochs of the earlier runs, so that HeaderEpoch only grows.
	// Deadline is the deadline of the original task.
	Digest   string    `json:"digest,omitempty"`
	Epoch    uint64    `json:"epoch,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"`

	links chain.Chain // the links of Chain, decoded
}

// readHanded reads requires.handoff, without verifying signatures. It returns nil if the
// task has no requires.handoff object. forbidden is true for requires.handoff: false: the
// sender accepts only the answer of the entity that it addressed.
func (t *Task) readHanded() (h *handed, forbidden bool, err error) {
	raw, e := t.required(requires.Handoff), t.Envelope
	switch string(raw) {
	case "", "true":
		return nil, false, nil
	case "false":
		return nil, true, nil
	}
	h = &handed{}
	if err := json.Unmarshal(raw, h); err != nil {
		return nil, false, badHanded("must be true, false, or an object as docs/nats-binding.md describes it")
	}
	switch {
	case len(h.Task) < 8 || len(h.Task) > wire.MaxName, h.Caller == "" || len(h.Caller) > wire.MaxName, len(h.Intent) < 3 || len(h.Intent) > wire.MaxName:
		return nil, false, badHanded("task, caller and intent must be those of a task")
	case h.Stream < 0 || len(h.Digest) > 64:
		return nil, false, badHanded("stream cannot be negative, and digest has at most 64 characters")
	}
	if h.links, err = chain.Parse(h.Chain); err != nil {
		return nil, false, err
	}
	last := h.links.Last()
	if last.From != e.From || last.To != e.To {
		return nil, false, badHanded("the last link is from %s to %s, and the task from %s to %s", clip.Text(last.From, 128), clip.Text(last.To, 128), clip.Text(e.From, 128), clip.Text(e.To, 128))
	}
	return h, false, nil
}

func badHanded(format string, args ...any) *envelope.Error {
	return envelope.Errorf(envelope.CodeRequires, "requires.handoff: "+format, args...)
}

// link makes the link with which the agent delegates the task.
func (o *delegation) link() (string, error) {
	t := o.task
	about := chain.About{Task: t.Envelope.ID, Caller: t.Envelope.From}
	if h := t.handed; h != nil {
		about = h.about()
	}
	e, err := chain.NewLink(t.host.Entity, o.To, t.Envelope.Corr, about)
	if err == nil {
		err = t.host.sign(e)
	}
	if err != nil {
		return "", err
	}
	return chain.Text(e)
}

func (h *handed) about() chain.About { return chain.About{Task: h.Task, Caller: h.Caller} }

// checkHanded reads and verifies requires.handoff of a task. If it returns a chain together
// with an error, the chain is verified, too.
func (n *Node) checkHanded(t *Task) (h *handed, forbidden bool, err error) {
	if h, forbidden, err = t.readHanded(); h == nil {
		return nil, forbidden, err
	}
	if h.links.About != h.about() || h.links.First().Corr != t.Envelope.Corr {
		return nil, false, badHanded("its links are about another task")
	}
	if err := h.links.Verify(n.cfg.Verifier, time.Now()); err != nil {
		return nil, false, err
	}
	if made := len(h.links.Links); made > n.cfg.MaxHandoffs {
		return h, false, envelope.Errorf(envelope.CodeTreeLimit, "the task was delegated %s, the limit is %d", run.Times(made), n.cfg.MaxHandoffs)
	}
	return h, false, nil
}

// acceptDelegation records that the task was delegated to this agent. It fails if requires.handoff
// is not valid. On the live lane the answer, also a refusal, goes to the reply subject of
// the message. So acceptDelegation records the chain before it verifies it; the caller verifies the
// chain of the answer. On the durable lane an answer goes to the first agent's reply subject
// only with a verified chain.
func (t *Task) acceptDelegation() (err error) {
	if t.run == nil {
		if t.handed, _, err = t.readHanded(); err != nil {
			return err
		}
	}
	h, forbidden, err := t.host.node.checkHanded(t)
	t.mustAnswerItself = forbidden
	if h == nil {
		return err
	}
	t.handed = h
	if t.run == nil {
		t.seq = h.Stream
	}
	return err
}

// checkProvenance refuses a task whose requires.handed_by or state reference is malformed.
// Without the first, the task could go in a circle; without the second, the handler would
// lack the sender's state document.
func checkProvenance(t *Task) error {
	if _, err := t.handedBy(); err != nil {
		return err
	}
	_, _, err := handedState{t}.stateRef()
	return err
}

// epoch returns the [HeaderEpoch] of replies for a run's own epoch. It adds the epochs of
// the runs before the delegation, so that it only grows.
func (h *handed) epoch(own uint64) string {
	if h != nil {
		own += h.Epoch
	}
	return strconv.FormatUint(own, 10)
}

func (h *handed) header() string { return strings.Join(h.Chain, " ") }

// proof returns what a stored reply says of the chain: its header, and the digest of the
// original task. Both are "" if the task was not delegated.
func (h *handed) proof() (header, digest string) {
	if h == nil {
		return "", ""
	}
	return h.header(), h.Digest
}

func chainText(chain []string) string {
	for i := range chain {
		chain[i] = clip.Text(chain[i], 128)
	}
	return strings.Join(chain, " → ")
}

// answer returns an envelope that answers the task. The answer to a delegated task
// names the original task.
func (t *Task) answer(kind envelope.Type, payload json.RawMessage) *envelope.Envelope {
	e := t.Envelope.Reply(kind, payload)
	t.addressCaller(e)
	return e
}

// addressCaller addresses a reply to the caller. It is a function of its own so that the
// reply can stay on the stack.
func (t *Task) addressCaller(e *envelope.Envelope) {
	if h := t.handed; h != nil {
		e.To, e.ReplyTo, e.Intent = h.Caller, h.Task, h.Intent
	}
}

// originalTask returns the entity and the id of the original task. The answer goes to the
// reply subject of that task.
func (t *Task) originalTask() (entity, id string) {
	if h := t.handed; h != nil {
		return h.links.First().From, h.Task
	}
	return t.host.Entity, t.Envelope.ID
}

// errorForCaller returns the error that the caller gets. For a delegated task it replaces codes
// that say "not begun", because an earlier agent has begun the task.
func (t *Task) errorForCaller(problem *envelope.Error) *envelope.Error {
	if t.handed == nil {
		return problem
	}
	switch problem.Code {
	case envelope.CodeBusy, envelope.CodeRateLimited, envelope.CodeDraining, envelope.CodeNoResponders:
		out := envelope.Errorf(envelope.CodeUnavailable, "%s", problem.Message).WithCause(problem)
		out.BackoffMS = problem.BackoffMS
		return out
	}
	return problem
}
