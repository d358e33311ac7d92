package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// AskState is how far something has come that a person was asked.
type AskState string

// The states of an [Ask].
const (
	AskOpen      AskState = "open"
	AskAnswered  AskState = "answered"
	AskOverdue   AskState = "overdue"   // its time is over, and no answer counts any more
	AskWithdrawn AskState = "withdrawn" // whoever asked wants no answer any more
)

// Ask is a task that a person was sent (docs/nats-binding.md, "People").
type Ask struct {
	Task   *envelope.Envelope
	Stored time.Time // when the server stored it
	Until  time.Time // an answer that is stored later does not count; zero: none is too late
	State  AskState

	// Answer is the first one that counts, nil where there is none, and Late the
	// first that came when none counted any more. Misfit is the last result before
	// the one that counts that does not, since it does not fit Schema.
	Answer, Late, Misfit *envelope.Envelope
	AnsweredAt           time.Time
	// Reason is why it was withdrawn.
	Reason string
	// Schema is the JSON Schema that the answer must fit (requires.result_schema),
	// nil where there is none.
	Schema json.RawMessage
	// EscalateTo gets it when there is no answer in time; "" where nobody does.
	EscalateTo string

	last uint64 // sequence of the last message on its reply subject
}

// Errors of [Node.AnswerAsk].
var (
	// ErrAnswered: somebody was faster.
	ErrAnswered = errors.New("it was answered already")
	// ErrTooLate: no answer counts any more.
	ErrTooLate = errors.New("no answer counts any more")
	// ErrMisfit: the result does not fit the schema that was asked for.
	ErrMisfit = errors.New("the answer does not fit requires.result_schema")
)

// inbox is the inboxes, where there are any.
func (n *Node) inbox() (*jetstream.Inbox, error) {
	if d := n.durable(); d != nil && d.Inbox != nil {
		return d.Inbox, nil
	}
	return nil, errNoInbox
}

// Asks are the tasks that a person was sent, of all people with "", the oldest
// first, as far as the inbox keeps them. A task that was sent twice is there
// once. What else is in the inbox, and what nobody vouches for, is left out.
func (n *Node) Asks(ctx context.Context, person string) ([]*Ask, error) {
	inbox, err := n.inbox()
	if err != nil {
		return nil, err
	}
	var asks []*Ask
	known := map[string]*Ask{}
	for msg, err := range inbox.List(ctx, person) {
		if err != nil {
			return nil, err
		}
		if ask := n.readInbox(msg, known); ask != nil {
			asks = append(asks, ask)
		}
	}
	now, err := n.cfg.Durable.Clock.Now(ctx)
	if err != nil {
		return nil, err
	}
	for _, ask := range asks {
		if err := n.judgeAsk(ctx, ask, now); err != nil {
			return nil, err
		}
	}
	return asks, nil
}

// FindAsk is the task with this id, or whose id alone begins so, that a person was
// sent; with person "" that anybody was. It fails with [jetstream.ErrNotFound]
// where there is none.
func (n *Node) FindAsk(ctx context.Context, person, taskID string) (*Ask, error) {
	inbox, err := n.inbox()
	if err != nil {
		return nil, err
	}
	known := map[string]*Ask{}
	var found []*Ask
	exact := false
	for msg, err := range inbox.List(ctx, person) {
		if err != nil {
			return nil, err
		}
		ask := n.readInbox(msg, known)
		if ask == nil || taskID == "" || !strings.HasPrefix(ask.Task.ID, taskID) {
			continue
		}
		if same := ask.Task.ID == taskID; same && !exact {
			found, exact = []*Ask{ask}, true
		} else if same == exact {
			found = append(found, ask)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("task %s in the inbox: %w", clip.Text(taskID, 128), jetstream.ErrNotFound)
	case 1:
	default:
		return nil, fmt.Errorf("%d tasks for people have an id that begins with %s, the first is %s for %s", len(found), clip.Text(taskID, 128), found[0].Task.ID, found[0].Task.To)
	}
	now, err := n.cfg.Durable.Clock.Now(ctx)
	if err != nil {
		return nil, err
	}
	return found[0], n.judgeAsk(ctx, found[0], now)
}

// FollowInbox calls f with each ask as it stands now and, until ctx ends, when it
// comes, is sent again or is withdrawn.
func (n *Node) FollowInbox(ctx context.Context, person string, f func(*Ask) error) error {
	inbox, err := n.inbox()
	if err != nil {
		return err
	}
	known := map[string]*Ask{}
	for msg, err := range inbox.Follow(ctx, person) {
		if err != nil {
			return err
		}
		ask := n.readInbox(msg, known)
		if ask == nil {
			if e, _, err := n.decode(&nats.Msg{Data: msg.Data, Header: msg.Header}); err == nil {
				ask = known[askKey(e.To, withdrawnTask(e))]
			}
		}
		if ask == nil {
			continue
		}
		now, err := n.cfg.Durable.Clock.Now(ctx)
		if err == nil {
			err = n.judgeAsk(ctx, ask, now)
		}
		if err == nil {
			err = f(ask)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// readInbox takes one message of an inbox. It returns what somebody is asked for
// the first time.
func (n *Node) readInbox(msg jetstream.Message, known map[string]*Ask) *Ask {
	e, _, err := n.decode(&nats.Msg{Data: msg.Data, Header: msg.Header})
	if err != nil || bounded(e) != nil || !subject.IsPerson(e.To) {
		return nil
	}
	if live, err := n.subjects.Live(e.To); err != nil || live != msg.Subject {
		return nil
	}
	who, err := n.cfg.Verifier.Verify(e, msg.Time)
	if err != nil {
		return nil
	}
	if e.Type != envelope.TypeTask {
		if ask := known[askKey(e.To, withdrawnTask(e))]; ask != nil && ask.Task.From == e.From && (ask.Task.Sig == nil || e.Sig != nil) {
			ask.State = AskWithdrawn
			ask.Reason = withdrawnReason(e)
		}
		return nil
	}
	if (&Task{Envelope: e}).forMesh(n.cfg.Prefix, who.Signed) != nil {
		return nil
	}
	key := askKey(e.To, e.ID)
	ask := known[key]
	if ask != nil && (ask.Task.From != e.From || ask.Task.Corr != e.Corr) {
		return nil // an id that belongs to another task
	}
	fresh := ask == nil
	if fresh {
		ask = &Ask{Stored: msg.Time, State: AskOpen}
		known[key] = ask
	}
	ask.Task = e
	ask.read(msg.Time)
	if !fresh {
		return nil
	}
	return ask
}

func askKey(person, id string) string { return person + " " + id }

// withdrawnTask is the task that an event takes back, "" where it is no such event.
func withdrawnTask(e *envelope.Envelope) string {
	if e.Type != envelope.TypeEvent || e.Intent != intents.TaskWithdrawn {
		return ""
	}
	return e.ReplyTo
}

func withdrawnReason(e *envelope.Envelope) string {
	var p struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(e.Payload, &p) // then there is none
	return clip.Text(p.Reason, 128)
}

// read takes from a task what it says of its answer.
func (a *Ask) read(stored time.Time) {
	have, members, err := a.Task.ReadRequires()
	var to string // each by itself: what cannot be read is as good as absent
	if json.Unmarshal(canonical(members.Get(requireAnswerBy)), &a.Until) != nil {
		a.Until = time.Time{}
	}
	if json.Unmarshal(members.Get(requireEscalateTo), &to) == nil {
		a.EscalateTo = clip.Text(to, 128)
	}
	a.Schema = members.Get(requireResultSchema)
	if err == nil && a.Until.IsZero() && have.Timeout > 0 {
		a.Until = stored.Add(have.Timeout)
	}
}

// judgeAsk looks whether there is an answer.
func (n *Node) judgeAsk(ctx context.Context, a *Ask, now time.Time) error {
	a.Answer, a.Late, a.Misfit, a.last = nil, nil, nil, 0
	for {
		msg, err := n.cfg.Durable.Replies.Next(ctx, a.Task.To, a.Task.ID, a.last)
		if errors.Is(err, jetstream.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		a.last = msg.Seq
		reply, err := n.readDurableReply(a.Task.To, a.Task.ID, a.Task.Corr, "", &nats.Msg{Data: msg.Data, Header: msg.Header}, nil)
		if err != nil || !reply.Type.Terminal() {
			continue
		}
		switch late := !a.Until.IsZero() && msg.Time.After(a.Until); {
		case late && a.Late == nil:
			a.Late = reply
		case !late && a.Answer == nil && fits(a.Schema, reply) != nil:
			a.Misfit = reply
		case !late && a.Answer == nil:
			a.Answer, a.AnsweredAt = reply, msg.Time
		}
	}
	switch {
	case a.Answer != nil:
		a.State = AskAnswered
	case a.State == AskWithdrawn:
	case !a.Until.IsZero() && !a.Until.After(now):
		a.State = AskOverdue
	default:
		a.State = AskOpen
	}
	return nil
}

// AnswerAsk stores an answer to what a person was asked, a result or an error
// envelope from that person ([envelope.Envelope.Reply]), signed if the node has a
// signer. Of several who answer at once one succeeds. It fails with [ErrAnswered],
// [ErrTooLate] or [ErrMisfit] where the answer would not count.
func (n *Node) AnswerAsk(ctx context.Context, a *Ask, reply *envelope.Envelope) error {
	if !reply.Type.Terminal() || reply.From != a.Task.To || reply.ReplyTo != a.Task.ID || reply.Corr != a.Task.Corr {
		return errors.New("answer: the envelope is no answer to the task")
	}
	if err := fits(a.Schema, reply); err != nil {
		return fmt.Errorf("%w: %w", ErrMisfit, err)
	}
	d := n.cfg.Durable
	for range 20 {
		now, err := d.Clock.Now(ctx)
		if err == nil {
			err = n.judgeAsk(ctx, a, now)
		}
		if err != nil {
			return err
		}
		switch a.State {
		case AskAnswered:
			return ErrAnswered
		case AskOverdue, AskWithdrawn:
			return ErrTooLate
		}
		var body []byte
		header, err := n.encode(ctx, reply, false, false, &body)
		if err != nil {
			return err
		}
		msg, err := storedReply{env: reply, raw: body, entity: a.Task.To, taskID: a.Task.ID, msgID: reply.ID, seq: 1, header: header}.message()
		if err != nil {
			return err
		}
		_, err = d.Replies.PublishAfter(ctx, msg, a.last)
		if errors.Is(err, jetstream.ErrExists) {
			continue // something came meanwhile
		}
		if err != nil {
			return err
		}
		if err := n.judgeAsk(ctx, a, now); err == nil && a.Answer == nil {
			return ErrTooLate // it was stored when the time was over
		}
		return nil
	}
	return fmt.Errorf("answer: too much comes on the task's reply subject: %w", state.ErrChanged)
}
