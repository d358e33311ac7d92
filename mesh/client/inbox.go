package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// PersonTaskState is the state of a task for a person.
type PersonTaskState string

// The states of a [PersonTask].
const (
	AskOpen      PersonTaskState = "open"
	AskAnswered  PersonTaskState = "answered"
	AskOverdue   PersonTaskState = "overdue"   // the time for an answer is over; a later answer does not count
	AskWithdrawn PersonTaskState = "withdrawn" // the sender needs no answer any more
)

// PersonTask is a task for a person (docs/nats-binding.md, "People").
type PersonTask struct {
	Task   *envelope.Envelope
	Stored time.Time // when the server stored the task
	Until  time.Time // an answer that is stored later does not count; zero: no deadline
	State  PersonTaskState

	// Answer is the valid answer that was stored first, nil if there is none. Late is
	// the first answer after the deadline. Misfit is the last result before Answer that
	// does not fit Schema.
	Answer, Late, Misfit *envelope.Envelope
	AnsweredAt           time.Time
	// Invalid is why the last invalid message before Answer does not count: it has another sender,
	// another addressee or another corr, or it is unreadable.
	Invalid error
	// Reason is why the task was withdrawn.
	Reason string
	// Schema is the JSON Schema that the answer must fit (requires.result_schema),
	// nil if there is none.
	Schema json.RawMessage
	// EscalateTo is the entity that gets the task if there is no answer in time; "": none.
	EscalateTo string

	last         uint64          // sequence of the last message on its reply subject
	lastReported PersonTaskState // the state that a follower was told last; "": none
	signedEnd    bool            // it was withdrawn by a signed event
}

// ErrSeveralAsks: [Client.FindAsk] has found several tasks. Senders choose ids, so two of them may
// have used the same.
var ErrSeveralAsks = errors.New("there are several tasks for people whose id")

// Errors of [Client.AnswerPersonTask].
var (
	// ErrAnswered: the task has a valid answer already.
	ErrAnswered = errors.New("the task was answered already")
	// ErrTooLate: the time for an answer is over, or the task was withdrawn.
	ErrTooLate = errors.New("the time for an answer is over, or the task was withdrawn")
	// ErrMisfit: the result does not fit the schema in the task.
	ErrMisfit = errors.New("the answer does not fit requires.result_schema")
)

// inbox returns the store of people's inboxes, or fault.NoInbox.
func (c *Client) inbox() (*jetstream.Inbox, error) {
	if d := c.cfg.Stores; d != nil && d.Available() && d.Inbox != nil {
		return d.Inbox, nil
	}
	return nil, fault.NoInbox
}

// PersonTasks returns the tasks in a person's inbox ("": in all inboxes), the oldest first, each
// once. It skips envelopes that are not tasks, and envelopes that fail verification.
func (c *Client) PersonTasks(ctx context.Context, person string) ([]*PersonTask, error) {
	inbox, err := c.inbox()
	if err != nil {
		return nil, err
	}
	var asks []*PersonTask
	known := map[string]*PersonTask{}
	for msg, err := range inbox.List(ctx, person) {
		if err != nil {
			return nil, err
		}
		if ask, fresh := c.readInbox(msg, known); fresh {
			asks = append(asks, ask)
		}
	}
	sorted.By(asks, func(a, b *PersonTask) int { return a.Stored.Compare(b.Stored) }) // a signed one may have taken the place of an unsigned one
	now, err := c.cfg.Stores.Clock.Now(ctx)
	if err != nil {
		return nil, err
	}
	for _, ask := range asks {
		if err := c.judgeAsk(ctx, ask, now); err != nil {
			return nil, err
		}
	}
	return asks, nil
}

// FindAsk returns the task in a person's inbox ("": in any inbox), from a sender ("": from any),
// whose id is taskID, or the only one whose id begins with taskID. It fails with
// [jetstream.ErrNotFound] if there is none, and with [ErrSeveralAsks] if there are several.
func (c *Client) FindAsk(ctx context.Context, person, sender, taskID string) (*PersonTask, error) {
	inbox, err := c.inbox()
	if err != nil {
		return nil, err
	}
	known := map[string]*PersonTask{}
	var found []*PersonTask
	exact := false
	for msg, err := range inbox.List(ctx, person) {
		if err != nil {
			return nil, err
		}
		ask, fresh := c.readInbox(msg, known)
		if !fresh || taskID == "" || sender != "" && ask.Task.From != sender || !strings.HasPrefix(ask.Task.ID, taskID) {
			continue
		}
		if same := ask.Task.ID == taskID; same && !exact {
			found, exact = []*PersonTask{ask}, true
		} else if same == exact {
			found = append(found, ask)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("task %s in the inbox: %w", clip.Text(taskID, 128), jetstream.ErrNotFound)
	case 1:
	default:
		return nil, severalAsks(found, taskID, exact)
	}
	now, err := c.cfg.Stores.Clock.Now(ctx)
	if err != nil {
		return nil, err
	}
	return found[0], c.judgeAsk(ctx, found[0], now)
}

// severalAsks returns the error for an id, or the beginning of ids, that names several tasks.
func severalAsks(found []*PersonTask, taskID string, exact bool) error {
	how := "begins with"
	if exact {
		how = "is"
	}
	one, two := found[0].Task, found[1].Task
	return fmt.Errorf("%w %s %s: %s from %s for %s, and %s from %s for %s", ErrSeveralAsks, how, clip.Text(taskID, 128), one.ID, one.From, one.To, two.ID, two.From, two.To)
}

// FollowInbox calls f for each task in the inbox, and then, until ctx ends, for each task that
// arrives or is withdrawn. It does not call f when a known task is sent again, or when a
// withdrawal does not change the task's state. It calls f again when a signed task takes the place
// of an unsigned one. It forgets tasks that are older than 30 days, which
// is how long the stream keeps them by default. It goes on while JetStream does not answer.
func (c *Client) FollowInbox(ctx context.Context, person string, f func(*PersonTask) error) error {
	inbox, err := c.inbox()
	if err != nil {
		return err
	}
	known, most := map[string]*PersonTask{}, forgetFrom
	for msg, err := range inbox.Follow(ctx, person) {
		if err != nil {
			return err
		}
		if len(known) > most {
			maps.DeleteFunc(known, func(_ string, a *PersonTask) bool { return msg.Time.Sub(a.Stored) > inboxKept })
			most = max(forgetFrom, 2*len(known))
		}
		ask, _ := c.readInbox(msg, known)
		if ask == nil {
			continue
		}
		told := ask.lastReported
		err := c.judgeNow(ctx, ask)
		if ask.lastReported = ask.State; err == nil && (told == "" || ask.State == AskWithdrawn && told != AskWithdrawn) {
			err = f(ask)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// FollowInbox forgets tasks that are older than inboxKept, once it knows more than forgetFrom.
const (
	inboxKept  = 30 * 24 * time.Hour
	forgetFrom = 1024
)

// readInbox reads one message of an inbox into known. It returns the task that is new, is replaced or
// is withdrawn by the message, nil if there is none. A task is fresh if this is the first message with
// its from and id.
func (c *Client) readInbox(msg jetstream.Message, known map[string]*PersonTask) (ask *PersonTask, fresh bool) {
	refused := func(e *envelope.Envelope, err error) (*PersonTask, bool) {
		wire.LogRefused(c.s.Log, e, fault.ForPeer(err).Code, slog.String("subject", msg.Subject), slog.Any("err", err))
		return nil, false
	}
	e, _, err := wire.Decode(&nats.Msg{Data: msg.Data, Header: msg.Header}, c.s.Answers.Limits)
	if err != nil {
		return refused(wire.Readable(err), err)
	}
	if err := wire.Bounded(e); err != nil {
		return refused(e, err)
	}
	if live, err := c.s.Subjects.Live(e.To); err != nil || live != msg.Subject || !subject.IsPerson(e.To) {
		return refused(e, envelope.Errorf(envelope.CodeWrongRecipient, "it came for another recipient"))
	}
	who, err := c.s.Answers.Verifier.Verify(e, msg.Time)
	if err != nil {
		return refused(e, err)
	}
	if e.Type == envelope.TypeTask {
		if problem := requires.ForMesh(requires.Member(e, requires.Mesh), c.s.Prefix, who.Signed); problem != nil {
			return refused(e, problem)
		}
		// A restored backup keeps the time at which a message was stored.
		if skew := c.cfg.Skew; skew > 0 && who.Signed {
			if err := sign.CheckTime(e, msg.Time, skew); err != nil {
				return refused(e, err)
			}
		}
	}
	wire.LogReceived(c.s.Log, e)
	if e.Type != envelope.TypeTask {
		ask = known[askKey(e.To, e.From, withdrawnTask(e))]
		if ask == nil || ask.Task.Sig != nil && e.Sig == nil {
			return nil, false
		}
		ask.State, ask.Reason, ask.signedEnd = AskWithdrawn, withdrawnReason(e), ask.signedEnd || e.Sig != nil
		return ask, false
	}
	key := askKey(e.To, e.From, e.ID)
	ask = known[key]
	fresh = ask == nil
	again := !fresh && ask.Task.Corr == e.Corr && (ask.Task.Sig == nil) == (e.Sig == nil)
	switch {
	case fresh:
		ask = &PersonTask{Stored: msg.Time, State: AskOpen}
		known[key] = ask
	case again:
	case ask.Task.Sig == nil && e.Sig != nil: // the unsigned one only claims to come from this sender
		ask.Stored, ask.lastReported = msg.Time, ""
		if !ask.signedEnd {
			ask.State, ask.Reason = AskOpen, ""
		}
	default:
		return nil, false
	}
	ask.Task = e
	ask.Until, ask.EscalateTo, ask.Schema = requires.AnswerOf(e, ask.Stored)
	if again {
		return nil, false
	}
	return ask, fresh
}

// askKey returns the key of a task in an inbox. Senders choose ids, so from and id count together.
func askKey(person, from, id string) string { return person + " " + from + " " + id }

// withdrawnTask returns the id of the task that an event withdraws, "" for any other envelope.
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
	_ = wire.ReadJSON(e.Payload, &p) // without a readable payload there is no reason
	return clip.Text(p.Reason, 128)
}

// judgeNow is judgeAsk at the server's time. It repeats it while JetStream does not answer, until ctx
// ends.
func (c *Client) judgeNow(ctx context.Context, a *PersonTask) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, longestLook) {
		now, err := c.cfg.Stores.Clock.Now(ctx)
		if err == nil {
			err = c.judgeAsk(ctx, a, now)
		}
		if err == nil || !c.unread(ctx, err) || !pause.For(ctx, wait) {
			return err
		}
	}
}

// judgeAsk reads the stored replies to the task, and sets the task's answers and state.
func (c *Client) judgeAsk(ctx context.Context, a *PersonTask, now time.Time) error {
	a.Answer, a.Late, a.Misfit, a.Invalid, a.last = nil, nil, nil, nil, 0
	for {
		msg, err := c.cfg.Stores.Replies.Next(ctx, a.Task.To, a.Task.ID, a.last)
		if errors.Is(err, jetstream.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		a.last = msg.Seq
		reply, err := c.s.Answers.Stored(a.Task.To, a.Task.ID, a.Task.Corr, a.Task.From, &nats.Msg{Data: msg.Data, Header: msg.Header}, msg.Time, nil)
		if err != nil {
			if a.Answer == nil {
				a.Invalid = err
			}
			continue
		}
		if !reply.Type.Terminal() {
			continue
		}
		switch late := !a.Until.IsZero() && msg.Time.After(a.Until); {
		case late && a.Late == nil:
			a.Late = reply
		case !late && a.Answer == nil && requires.Fits(a.Schema, reply) != nil:
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

// AnswerPersonTask stores a person's answer to a task: a result or an error envelope from that person
// ([envelope.Envelope.Reply]). It signs the answer if the node has a signer. Of concurrent
// answers one succeeds. AnswerPersonTask fails with [ErrAnswered], [ErrTooLate] or [ErrMisfit] if the
// answer would not count.
func (c *Client) AnswerPersonTask(ctx context.Context, a *PersonTask, reply *envelope.Envelope) error {
	if !reply.Type.Terminal() || reply.From != a.Task.To || reply.To != a.Task.From || reply.ReplyTo != a.Task.ID || reply.Corr != a.Task.Corr {
		return errors.New("answer: the envelope does not answer the task")
	}
	if err := requires.Fits(a.Schema, reply); err != nil {
		return fmt.Errorf("%w: %w", ErrMisfit, err)
	}
	d := c.cfg.Stores
	if d == nil {
		return fault.NoInbox
	}
	for range answerTries {
		now, err := d.Clock.Now(ctx)
		if err == nil {
			err = c.judgeAsk(ctx, a, now)
		}
		if err != nil {
			return err
		}
		switch a.State {
		case AskAnswered:
			if a.Answer.ID == reply.ID { // an earlier try, whose acknowledgement was lost
				return nil
			}
			return ErrAnswered
		case AskOverdue, AskWithdrawn:
			return ErrTooLate
		}
		var body []byte
		header, err := c.s.Encode(ctx, reply, false, false, &body)
		if err != nil {
			return err
		}
		msg, err := answers.Stored{Env: reply, Raw: body, Entity: a.Task.To, TaskID: a.Task.ID, MsgID: reply.ID, Seq: 1, Header: header}.Message()
		if err != nil {
			return err
		}
		seq, err := d.Replies.PublishAfter(ctx, msg, a.last)
		if errors.Is(err, jetstream.ErrExists) { // another reply was stored, and the replica that is read may lack it
			pause.For(ctx, answerPause)
			continue
		}
		if err != nil {
			return err
		}
		return c.readAnswer(ctx, a, now, seq)
	}
	return fmt.Errorf("answer: other replies to the task were stored at the same time, %d tries failed: %w", answerTries, state.ErrChanged)
}

// readAnswer reads the replies to the task up to the answer, which is stored at seq. It returns
// [ErrTooLate] if the answer was stored after the deadline. If the replica that is read still lacks the
// answer after some tries, the answer is taken for timely.
func (c *Client) readAnswer(ctx context.Context, a *PersonTask, now time.Time, seq uint64) error {
	for range answerTries {
		if c.judgeAsk(ctx, a, now) != nil {
			return nil
		}
		if a.last >= seq || !pause.For(ctx, answerPause) {
			break
		}
	}
	if a.Answer == nil && a.Late != nil {
		return ErrTooLate
	}
	return nil
}

// How often AnswerPersonTask tries and reads, and the pause before it reads the same again.
const (
	answerTries = 20
	answerPause = 20 * time.Millisecond
)
