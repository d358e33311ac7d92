package mesh

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state/run"
)

// A task that is handed on is a task of its own, from the agent that hands it on.
// Its requires.handoff, signed with the rest, says whose task it is really; the
// answer to that one carries the proof that its author may give it.
//
// The proof is a chain of links. A link is an event envelope, signed by the agent
// that handed the task on, to the one it gave it to. Whoever asked the first
// agent can so follow by whose word each next one answers: nobody can answer for
// another who was not named by it. Links name the task and the caller, so that
// none can be used for another task. They travel as text, base64url of the link's
// JSON: what a requires or a header carries is no envelope that anybody might
// route (AEE, "Never nest an envelope").

// HeaderHandoff, on a reply, is the chain of links that lets its author answer,
// separated by spaces. See docs/nats-binding.md, "Handed-over tasks".
const HeaderHandoff = "Aee-Handoff"

// handedBy reads requires.handed_by, by which an agent that was called, because it
// could not answer for those that handed the task on, knows them all the same: a list
// of entities. It proves nothing, and only keeps a task from going in a circle.
func (t *Task) handedBy() ([]string, error) {
	raw := t.required(requireHandedBy)
	if raw == nil {
		return nil, nil
	}
	var entities []string
	if json.Unmarshal(raw, &entities) != nil || len(entities) > maxLinks {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.%s must be a list of at most %d entities", requireHandedBy, maxLinks)
	}
	return entities, nil
}

// Bounds of a chain that comes from outside.
const (
	maxLinks = 64
	maxLink  = 8 << 10 // bytes, as text
)

// handed is requires.handoff.
type handed struct {
	Task   string   `json:"task"`   // the id of the task that is to be answered
	Caller string   `json:"caller"` // who sent it
	Intent string   `json:"intent"` // its intent
	Chain  []string `json:"chain"`  // links

	State *StateRef `json:"state,omitempty"` // what comes along

	// Where the task was streamed: how many stream envelopes have been sent. The
	// next has the next number.
	Stream int `json:"stream,omitempty"`

	// Of durable tasks: [HeaderTaskDigest] of the task that is to be answered,
	// the epochs of all runs before together, so that HeaderEpoch grows, and when
	// the task has to be answered.
	Digest   string    `json:"digest,omitempty"`
	Epoch    uint64    `json:"epoch,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"`

	links []*envelope.Envelope
}

// link is the payload of a link.
type link struct {
	Task   string `json:"task"`
	Caller string `json:"caller"`
}

// readHanded reads requires.handoff. It returns nil where there is none, and whether
// the sender forbids that another agent answers. Nothing is verified yet.
func (t *Task) readHanded() (h *handed, forbidden bool, err error) {
	raw, e := t.required(requireHandoff), t.Envelope
	switch string(raw) {
	case "", "true":
		return nil, false, nil
	case "false":
		return nil, true, nil
	}
	h = &handed{}
	if err := json.Unmarshal(raw, h); err != nil {
		return nil, false, badHanded("must be false, or an object as docs/nats-binding.md has it")
	}
	switch {
	case len(h.Task) < 8 || len(h.Task) > maxName, h.Caller == "" || len(h.Caller) > maxName, len(h.Intent) < 3 || len(h.Intent) > maxName:
		return nil, false, badHanded("task, caller and intent must be those of a task")
	case h.Stream < 0 || len(h.Digest) > 64:
		return nil, false, badHanded("stream cannot be negative, and digest has at most 64 characters")
	}
	if h.links, err = readChain(h.Chain); err != nil {
		return nil, false, err
	}
	last := h.links[len(h.links)-1]
	if last.From != e.From || last.To != e.To {
		return nil, false, badHanded("the last link is from %s to %s, and the task from %s to %s", clip.Text(last.From, 128), clip.Text(last.To, 128), clip.Text(e.From, 128), clip.Text(e.To, 128))
	}
	return h, false, nil
}

func badHanded(format string, args ...any) *envelope.Error {
	return envelope.Errorf(envelope.CodeRequires, "requires.handoff: "+format, args...)
}

// readChain reads links, in the order in which the task was handed on. Each must
// follow from the one before, all be about one task, and none lead back.
func readChain(chain []string) ([]*envelope.Envelope, error) {
	if len(chain) == 0 || len(chain) > maxLinks {
		return nil, badHanded("a chain has 1 to %d links, this one %d", maxLinks, len(chain))
	}
	links := make([]*envelope.Envelope, len(chain))
	var about link
	for i, text := range chain {
		e, l, err := readLink(text)
		if err != nil {
			return nil, badHanded("link %d: %v", i+1, err)
		}
		switch before := i - 1; {
		case i == 0:
			about = l
		case l != about || e.Corr != links[0].Corr:
			return nil, badHanded("link %d is about another task", i+1)
		case e.From != links[before].To:
			return nil, badHanded("link %d is from %s, and %s had the task", i+1, clip.Text(e.From, 128), clip.Text(links[before].To, 128))
		}
		if slices.ContainsFunc(links[:i], func(l *envelope.Envelope) bool { return l.From == e.To }) || e.From == e.To {
			return nil, envelope.Errorf(envelope.CodeTreeLimit, "the task has come back to %s, which had delegated it", clip.Text(e.To, 128))
		}
		links[i] = e
	}
	return links, nil
}

func readLink(text string) (*envelope.Envelope, link, error) {
	var l link
	if len(text) > maxLink {
		return nil, l, fmt.Errorf("it has more than %d characters", maxLink)
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, l, errors.New("it is no base64url")
	}
	e, err := envelope.ParseLimits(raw, envelope.Limits{MaxBytes: maxLink})
	if err != nil {
		return nil, l, err
	}
	if e.Type != envelope.TypeEvent || e.Intent != intents.TaskHanded {
		return nil, l, fmt.Errorf("it is no event of intent %s", intents.TaskHanded)
	}
	if err := json.Unmarshal(e.Payload, &l); err != nil || l.Task == "" || l.Caller == "" || e.ReplyTo != l.Task {
		return nil, l, errors.New("it does not say which task was delegated")
	}
	return e, l, nil
}

// link makes the link of a hand-over.
func (o *delegation) link() (string, error) {
	t := o.task
	task, caller := t.Envelope.ID, t.Envelope.From
	if h := t.handed; h != nil {
		task, caller = h.Task, h.Caller
	}
	e := envelope.New(envelope.TypeEvent, t.host.Entity, o.To, intents.TaskHanded, mustJSON(link{task, caller}))
	e.Corr, e.ReplyTo = t.Envelope.Corr, task
	if err := t.host.sign(e); err != nil {
		return "", err
	}
	raw, err := e.AppendJSON(nil)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// verifyLinks holds links to what holds for any envelope of those that sent them.
func (n *Node) verifyLinks(links []*envelope.Envelope) error {
	now := time.Now()
	for _, e := range links {
		if _, err := n.cfg.Verifier.Verify(e, now); err != nil {
			return err
		}
	}
	return nil
}

// checkHanded reads requires.handoff of a task, and verifies it. What it returns
// with an error is verified all the same.
func (n *Node) checkHanded(t *Task) (h *handed, forbidden bool, err error) {
	if h, forbidden, err = t.readHanded(); h == nil {
		return nil, forbidden, err
	}
	about := link{h.Task, h.Caller}
	var says link
	if json.Unmarshal(h.links[0].Payload, &says) != nil || says != about || h.links[0].Corr != t.Envelope.Corr {
		return nil, false, badHanded("its links are about another task")
	}
	if err := n.verifyLinks(h.links); err != nil {
		return nil, false, err
	}
	if len(h.links) > n.cfg.MaxHandoffs {
		return h, false, envelope.Errorf(envelope.CodeTreeLimit, "the task was delegated %s, the limit is %d", run.Times(len(h.links)), n.cfg.MaxHandoffs)
	}
	return h, false, nil
}

// takeOver notes that a task was handed on to this agent, or refuses it. On the
// live lane the answer goes to the reply subject that the message named, whatever
// the chain is worth: there the caller judges it. On the durable lane an answer
// goes to the first agent's subject only for a chain that leads there.
func (t *Task) takeOver() (err error) {
	if t.run == nil {
		if t.handed, _, err = t.readHanded(); err != nil {
			return err
		}
	}
	h, forbidden, err := t.host.node.checkHanded(t)
	t.ownWord = forbidden
	if h == nil {
		return err
	}
	t.handed = h
	if t.run == nil {
		t.seq = h.Stream
	}
	return err
}

// checkCompany refuses a task where it cannot be read by whom it came, or what
// came along: not to know would let it go in a circle, or leave something out
// that its sender has added.
func (t *Task) checkCompany() error {
	if _, err := t.handedBy(); err != nil {
		return err
	}
	_, _, err := t.stateRef()
	return err
}

// entities are those that have handed the task on.
func (h *handed) entities() []string {
	out := make([]string, len(h.links))
	for i, l := range h.links {
		out[i] = l.From
	}
	return out
}

// epoch is the number that replies carry as [HeaderEpoch], for a run's epoch. It
// counts the owners of the runs before, too, so that it only grows.
func (h *handed) epoch(own uint64) string {
	if h != nil {
		own += h.Epoch
	}
	return strconv.FormatUint(own, 10)
}

func (h *handed) header() string { return strings.Join(h.Chain, " ") }

func chainText(chain []string) string {
	for i := range chain {
		chain[i] = clip.Text(chain[i], 128)
	}
	return strings.Join(chain, " → ")
}

// vouched remembers the last chain that was found good, for the next reply of
// the same stream.
type vouched struct {
	header, from, to string
}

// mayAnswer checks that the author of a reply may answer a task that was sent to
// another entity: the reply's header has a chain of links from there to it. An
// empty caller or corr is not known.
func (n *Node) mayAnswer(entity, taskID, corr, caller, header string, reply *envelope.Envelope, known *vouched) error {
	if header == "" {
		return unusable("reply from %s: it comes from %s", entity, clip.Text(reply.From, 128))
	}
	if known != nil && known.header == header && known.from == reply.From && known.to == reply.To {
		return nil
	}
	if strings.Count(header, " ") >= maxLinks {
		return unusable("reply from %s: it comes from %s, by a chain of more than %d links", entity, clip.Text(reply.From, 128), maxLinks)
	}
	links, err := readChain(strings.Split(header, " "))
	if err != nil {
		return unusable("reply from %s: it comes from %s, by a chain that proves nothing: %s", entity, clip.Text(reply.From, 128), border(err).Message)
	}
	var about link
	_ = json.Unmarshal(links[0].Payload, &about)
	first, last := links[0], links[len(links)-1]
	switch {
	case first.From != entity || last.To != reply.From:
		return unusable("reply from %s: it comes from %s, and its chain leads from %s to %s", entity, clip.Text(reply.From, 128), clip.Text(first.From, 128), clip.Text(last.To, 128))
	case about.Task != taskID, corr != "" && first.Corr != corr, caller != "" && about.Caller != caller, about.Caller != reply.To:
		return unusable("reply from %s: it comes from %s, whose chain is about another task", entity, clip.Text(reply.From, 128))
	}
	if err := n.verifyLinks(links); err != nil {
		return fmt.Errorf("reply from %s, which comes from %s: %w", entity, clip.Text(reply.From, 128), err)
	}
	if known != nil {
		known.header, known.from, known.to = header, reply.From, reply.To
	}
	return nil
}

// answer makes an envelope that answers the task: one that was handed on is
// answered as the one that its caller sent.
func (t *Task) answer(kind envelope.Type, payload json.RawMessage) *envelope.Envelope {
	e := t.Envelope.Reply(kind, payload)
	t.addressCaller(e)
	return e
}

// addressCaller is the second half of answer: where both are called in a row,
// the reply need not escape.
func (t *Task) addressCaller(e *envelope.Envelope) {
	if h := t.handed; h != nil {
		e.To, e.ReplyTo, e.Intent = h.Caller, h.Task, h.Intent
	}
}

// answered is the entity and the id of the task that the caller sent.
func (t *Task) answered() (entity, id string) {
	if h := t.handed; h != nil {
		return h.links[0].From, h.Task
	}
	return t.host.Entity, t.Envelope.ID
}

// toCaller is what the caller is told of a problem. After a hand-over no code may
// say that nothing was done: the agents before have begun.
func (t *Task) toCaller(problem *envelope.Error) *envelope.Error {
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
