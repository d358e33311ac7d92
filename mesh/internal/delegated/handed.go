package delegated

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/internal/chain"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// Handed is requires.handoff. A delegated task is a task of its own. Its sender is the agent that
// delegates. Its requires.handoff, signed with the rest, names the original task; the answer
// carries the proof that its author may answer the original task (package chain). The methods of
// a nil Handed are those of a task that was not delegated.
type Handed struct {
	Task   string   `json:"task"`   // the id of the original task
	Caller string   `json:"caller"` // the sender of the original task
	Intent string   `json:"intent"` // the intent of the original task
	Chain  []string `json:"chain"`  // links, see package chain

	State *StateRef `json:"state,omitempty"` // the state document that is sent with the task

	// Stream is the number of stream envelopes that earlier agents have sent. The
	// receiver goes on with the next number.
	Stream int `json:"stream,omitempty"`

	// Steering are the messages for the next turn that the run of the agent that delegates has not
	// taken. The receiver's first turn takes them. For durable tasks only.
	Steering []state.Steer `json:"steering,omitempty"`

	// For durable tasks only. Digest is the header Aee-Task-Digest of the original task.
	// Epoch is the sum of the epochs of the earlier runs, so that header Aee-Epoch only grows.
	// Deadline is the deadline of the original task.
	Digest   string    `json:"digest,omitempty"`
	Epoch    uint64    `json:"epoch,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"`

	Links chain.Chain `json:"-"` // the links of Chain, decoded
}

// Read reads requires.handoff of a task, without verifying signatures. It returns nil if raw is
// not an object. forbidden is true for requires.handoff: false: the sender accepts only the answer
// of the entity that it addressed.
func Read(raw json.RawMessage, task *envelope.Envelope) (h *Handed, forbidden bool, err error) {
	switch string(raw) {
	case "", "true":
		return nil, false, nil
	case "false":
		return nil, true, nil
	}
	h = &Handed{}
	if err := wire.ReadJSON(raw, h); err != nil {
		return nil, false, bad("must be true, false, or an object as docs/nats-binding.md describes it")
	}
	switch {
	case len(h.Task) < 8 || len(h.Task) > wire.MaxName, h.Caller == "" || len(h.Caller) > wire.MaxName, len(h.Intent) < 3 || len(h.Intent) > wire.MaxName:
		return nil, false, bad("task, caller and intent must be those of a task")
	case h.Stream < 0 || int64(h.Stream) > wire.MaxCount || h.Epoch > wire.MaxCount || len(h.Digest) > 64:
		return nil, false, bad("stream and epoch are from 0 to 2^52, and digest has at most 64 characters")
	case len(h.Steering) > run.MaxSteering || slices.ContainsFunc(h.Steering, tooLong):
		return nil, false, bad("steering has at most %d messages, each of at most %d bytes", run.MaxSteering, run.MaxSteerText)
	}
	if h.Links, err = chain.Parse(h.Chain); err != nil {
		return nil, false, err
	}
	last := h.Links.Last()
	if last.From != task.From || last.To != task.To {
		return nil, false, bad("the last link is from %s to %s, and the task from %s to %s", clip.Text(last.From, 128), clip.Text(last.To, 128), clip.Text(task.From, 128), clip.Text(task.To, 128))
	}
	return h, false, nil
}

func tooLong(s state.Steer) bool {
	return len(s.Text) > run.MaxSteerText || len(s.ID) > wire.MaxName || len(s.From) > wire.MaxName
}

func bad(format string, args ...any) *envelope.Error {
	return envelope.Errorf(envelope.CodeRequires, "requires.handoff: "+format, args...)
}

// Check reads and verifies requires.handoff of a task that was stored or received at a time, see
// [Read]. If it returns a chain together with an error, which says that the task was delegated more
// than most times, the chain is verified, too.
func Check(raw json.RawMessage, task *envelope.Envelope, v sign.Verifier, at time.Time, most int) (h *Handed, forbidden bool, err error) {
	if h, forbidden, err = Read(raw, task); h == nil {
		return nil, forbidden, err
	}
	if h.Links.About != h.about() || h.Links.First().Corr != task.Corr {
		return nil, false, bad("its links are about another task")
	}
	if err := h.Links.Verify(v, at); err != nil {
		return nil, false, err
	}
	if made := len(h.Links.Links); made > most {
		return h, false, envelope.Errorf(envelope.CodeTreeLimit, "the task was delegated %s, the limit is %d", run.Times(made), most)
	}
	return h, false, nil
}

// Next returns requires.handoff of the task that entity sends to the receiver when it delegates
// task, which h describes. It has one more link, which is signed by sign.
func (h *Handed) Next(task *envelope.Envelope, entity, to string, sign func(*envelope.Envelope) error) (Handed, error) {
	next := Handed{Task: task.ID, Caller: task.From, Intent: task.Intent}
	if h != nil {
		next = *h
	}
	e, err := chain.NewLink(entity, to, task.Corr, next.about())
	if err == nil {
		err = sign(e)
	}
	if err != nil {
		return Handed{}, err
	}
	link, err := chain.Text(e)
	next.Chain = append(slices.Clone(next.Chain), link)
	return next, err
}

func (h *Handed) about() chain.About { return chain.About{Task: h.Task, Caller: h.Caller} }

// RunEpoch returns the header Aee-Epoch of replies for a run's own epoch. It adds the epochs of
// the runs before the delegation, so that it only grows.
func (h *Handed) RunEpoch(own uint64) string {
	if h != nil {
		own += h.Epoch
	}
	return strconv.FormatUint(own, 10)
}

// Header returns the chain as a reply carries it.
func (h *Handed) Header() string { return strings.Join(h.Chain, " ") }

// Proof returns the proof of the delegation in a stored reply: the chain's header, and the digest
// of the original task. Both are "" if the task was not delegated.
func (h *Handed) Proof() (header, digest string) {
	if h == nil {
		return "", ""
	}
	return h.Header(), h.Digest
}

// Address addresses a reply to the caller: the answer to a delegated task names the original task.
func (h *Handed) Address(reply *envelope.Envelope) {
	if h != nil {
		reply.To, reply.ReplyTo, reply.Intent = h.Caller, h.Task, h.Intent
	}
}

// ErrorForCaller returns the error that the caller gets. For a delegated task it replaces codes
// that say "not begun", because an earlier agent has begun the task.
func (h *Handed) ErrorForCaller(problem *envelope.Error) *envelope.Error {
	if h == nil {
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

// Claimed reports whether requires.handoff is an object, so that the task claims to be
// delegated. It does not verify the claim.
func Claimed(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// ReadBy reads requires.handed_by, the list of the agents that delegated the task before.
// A call carries this list when its receiver does not support delegation and so gets no
// chain. The list is not proven; it only prevents that a task goes in a circle.
func ReadBy(raw json.RawMessage) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	var entities []string
	if json.Unmarshal(raw, &entities) != nil || len(entities) > chain.Max {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.%s must be a list of at most %d entities", requires.HandedBy, chain.Max)
	}
	return entities, nil
}

// MayGoTo refuses a receiver that has delegated the task before, and a delegation beyond the
// limit. before are the agents that have delegated the task, this one included.
func MayGoTo(to string, before []string, most int) error {
	switch {
	case slices.Contains(before, to):
		return envelope.Errorf(envelope.CodeTreeLimit, "the task would come back to %s, which has delegated it already (%s)", to, chainText(before))
	case len(before) > most:
		return envelope.Errorf(envelope.CodeTreeLimit, "the task was delegated %s, which is the limit (%s)", run.Times(most), chainText(before))
	}
	return nil
}

func chainText(chain []string) string {
	short := make([]string, len(chain))
	for i := range chain {
		short[i] = clip.Text(chain[i], 128)
	}
	return strings.Join(short, " → ")
}

// Proven reports whether a worker has verified the chain with which the task of a stored run was
// delegated. A worker verifies it before it claims the run for the first time, and ends the run
// if that fails; its reply then is not addressed to the sender of the original task. known is false
// for a run that no worker of this mesh has begun: one of another platform, or a fork.
func (h *Handed) Proven(c *state.Checkpoint) (proven, known bool) {
	m := &c.Mesh
	switch {
	case h == nil, m.Parent != nil:
		return false, h == nil
	case !c.Terminal(), m.Handed != nil:
		return true, true
	}
	reply, err := envelope.ParseStored(m.Reply)
	return err == nil && reply.To == h.Caller && reply.ReplyTo == h.Task, true
}
