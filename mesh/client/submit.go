package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// SubmitOptions configure [Client.Submit]. The zero value submits JSON, to begin at once.
type SubmitOptions struct {
	// At is when the task is to begin, by the server's clock; After is the time from now
	// until then. The task's own deadline counts from that time. For a user who may not delay
	// tasks ([jetstream.Submission].At), the task waits in the queue, and its deadline counts
	// from the time at which it was stored.
	At    time.Time
	After time.Duration
	// CBOR encodes the task as CBOR; the replies are then CBOR, too.
	CBOR bool
	// OnRetry, if set, is called before each retry: see [Client.Submit].
	OnRetry func(wait time.Duration, why error)
}

// Submitted confirms that the server has stored a task.
type Submitted struct {
	TaskID    string    `json:"task_id"`
	Run       string    `json:"run"`          // the id of its run, which begins later
	Seq       uint64    `json:"seq,omitzero"` // its sequence in the work queue; 0 for a fork, which has no message yet
	Due       time.Time `json:"due,omitzero"`
	Duplicate bool      `json:"duplicate,omitempty"` // it was stored before
}

// Submit stores a task in the durable lane of its addressee. When it returns without an
// error, the task will be done and answered once: [Client.Result] returns the answer. The
// task is signed if the node has a signer. Submitting the same envelope again is safe. Do
// that after an error that wraps [jetstream.ErrUncertain].
//
// While JetStream elects a leader or does not answer, Submit retries: until ctx ends, for 30
// seconds at most, and no longer than requires.timeout_ms.
func (c *Client) Submit(ctx context.Context, task *envelope.Envelope, opts SubmitOptions) (Submitted, error) {
	d := c.cfg.Stores
	if d == nil {
		return Submitted{}, sender.ErrLiveOnly
	}
	if task.Type != envelope.TypeTask {
		return Submitted{}, fmt.Errorf("submit %s: only a task has a result", task.Type)
	}
	if err := requires.WithoutSecrets(task); err != nil {
		return Submitted{}, err
	}
	if PublishesTo(task.To) {
		return Submitted{}, fmt.Errorf("submit a task to %s: a %s has no worker", task.To, subject.EntityType(task.To))
	}
	if task.Sig != nil {
		if err := requires.BoundDurable(task); err != nil {
			return Submitted{}, err
		}
	}
	at, err := c.dueTime(ctx, opts)
	if err != nil {
		return Submitted{}, err
	}
	if !at.IsZero() {
		if err := c.requireNotBefore(task, at); err != nil {
			return Submitted{}, err
		}
	}
	body := wire.GetBuffer()
	defer wire.PutBuffer(body)
	header, err := c.s.Encode(ctx, task, true, opts.CBOR, body)
	if err != nil {
		return Submitted{}, err
	}
	stored, err := c.store(ctx, task, jetstream.Submission{
		Entity: task.To, Priority: string(task.Priority), ID: task.ID, Data: *body, Header: header, At: at,
	}, opts.OnRetry)
	if err != nil {
		return Submitted{}, err
	}
	c.s.Journal.Sent(task.ID, *body, opts.CBOR)
	return Submitted{TaskID: task.ID, Run: state.RunID(task.To, task.ID), Seq: stored.Seq, Due: stored.Due, Duplicate: stored.Duplicate}, nil
}

// dueTime returns when a task is to begin, by the server's clock; zero: now.
func (c *Client) dueTime(ctx context.Context, opts SubmitOptions) (time.Time, error) {
	switch {
	case opts.After < 0:
		return time.Time{}, fmt.Errorf("submit: After is %v, and cannot be negative", opts.After)
	case opts.After > 0 && !opts.At.IsZero():
		return time.Time{}, errors.New("submit: give At or After, not both")
	case opts.After == 0 && opts.At.IsZero():
		return time.Time{}, nil
	}
	now, err := c.cfg.Stores.Clock.Now(ctx)
	switch {
	case opts.After > 0:
		return now.Add(opts.After), err
	case err == nil && !opts.At.After(now):
		return time.Time{}, nil
	}
	return opts.At, nil // without the server's time, the server decides
}

// requireNotBefore sets requires.not_before. The signature covers it, so that a worker
// accepts a task whose ts is long past.
func (c *Client) requireNotBefore(task *envelope.Envelope, at time.Time) error {
	if task.Sig != nil {
		if at, _ := requires.ReadNotBefore(requires.Member(task, requires.NotBefore)); !at.IsZero() {
			return nil
		}
		if skew := c.cfg.Skew; skew > 0 && time.Until(at) > skew {
			return fmt.Errorf("submit: a signed task without requires.not_before cannot be scheduled, because it would be stale when it is due: set requires.not_before before signing")
		}
		return nil
	}
	members := map[string]json.RawMessage{}
	if task.Requires != nil {
		if err := json.Unmarshal(task.Requires, &members); err != nil {
			return err
		}
		if members == nil { // requires is null
			members = map[string]json.RawMessage{}
		}
	}
	members[requires.NotBefore] = wire.MustJSON(at.UTC().Format(time.RFC3339Nano))
	task.Requires = wire.MustJSON(members)
	return nil
}

// ResultOptions say what [Client.Result] waits for.
type ResultOptions struct {
	// Follow waits for the terminal envelope until ctx ends. Without it Result reads only
	// the replies that are stored now.
	Follow bool
	// OnStream gets the stream envelopes in order, including those that are already
	// stored. "restart": true in a payload voids the text of the turn so far. An error
	// from OnStream ends Result, not the task.
	OnStream func(*envelope.Envelope) error

	// Again says that the task was submitted before, so that replies may be stored already.
	Again bool

	// Sent are the digests of other tasks that were submitted under the same id: [Client.Perform]
	// and [Client.Await] take the answer to one of them, too. A run that another worker continues
	// may send another task for a call that it has sent before.
	Sent []string
}

// ErrNoResult: the task has not ended, or there is no task with this id.
var ErrNoResult = errors.New("there is no result yet")

// Result returns the terminal envelope of a durable task. Any process may call it, and
// repeatedly, for as long as the stream of replies keeps the envelope. An error envelope
// is returned as an *[envelope.Error] with FromPeer true, together with the envelope. If
// there is no terminal envelope yet, Result fails with [ErrNoResult] after 150 ms, or waits if
// Follow is set; it then goes on while JetStream does not answer. A task that was retried after it had failed has several terminal envelopes; the
// last one counts.
func (c *Client) Result(ctx context.Context, entity, taskID string, opts ResultOptions) (*envelope.Envelope, error) {
	d := c.cfg.Stores
	if d == nil {
		return nil, sender.ErrLiveOnly
	}
	reader := &replyReader{client: c, entity: entity, taskID: taskID, onStream: opts.OnStream}
	var after uint64
	for wait := firstLook; ; wait = min(2*wait, longestLook) {
		lost := false
		for msg, err := range d.Replies.Read(ctx, entity, taskID, after) {
			if lost = opts.Follow && ctx.Err() == nil && c.unread(ctx, err); lost {
				break
			}
			if err != nil {
				return nil, err
			}
			after = msg.Seq
			if err := reader.take(msg); err != nil {
				return nil, err
			}
		}
		switch {
		case lost:
			pause.For(ctx, wait)
		case reader.last != nil:
			return reader.result()
		case opts.Follow:
			return reader.readUntilEnd(ctx, d.Replies.Follow(ctx, entity, taskID, jetstream.FollowOptions{After: after}))
		case wait > lastLook || !pause.For(ctx, wait):
			return reader.result()
		}
	}
}

// A reply is announced just before it is stored, and any replica may answer: Result looks a
// few times before it says that there is none. These are the first and the last pause, and the longest
// one while the replies cannot be read.
const (
	firstLook   = 10 * time.Millisecond
	lastLook    = 80 * time.Millisecond
	longestLook = 2 * time.Second
)

// unread reports whether a read failed for a moment only: the question or its answer was lost, for
// example because a server restarted, or the stream has no leader.
func (c *Client) unread(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) ||
		jetstream.Away(err) && !errors.Is(err, jetstream.ErrNoDirect) && !c.cfg.Stores.Queue.Missing(ctx)
}

// Perform submits a task as [Client.Submit] does and waits for its terminal envelope as
// [Client.Result] does; it ignores [ResultOptions].Follow. It subscribes to the replies
// before it submits, so it need not read them from the stream.
//
// Perform returns Submit's receipt; its TaskID is "" if Submit failed. An error envelope
// is returned as by Result. When ctx ends, Perform returns the cause; the task goes on,
// and Result has its answer later. Performing the same envelope again waits for the same
// answer.
func (c *Client) Perform(ctx context.Context, task *envelope.Envelope, submit SubmitOptions, opts ResultOptions) (Submitted, *envelope.Envelope, error) {
	d := c.cfg.Stores
	if d == nil {
		return Submitted{}, nil, sender.ErrLiveOnly
	}
	follower, err := d.Replies.Open(task.To, task.ID)
	if err != nil {
		return Submitted{}, nil, err
	}
	defer follower.Close()
	receipt, err := c.Submit(ctx, task, submit)
	if err != nil {
		return receipt, nil, err
	}
	reply, err := c.readerFor(task, opts).readUntilEnd(ctx, follower.Messages(ctx, jetstream.FollowOptions{Fresh: !receipt.Duplicate && !opts.Again}))
	return receipt, reply, err
}

// Await is [Client.Perform] for a task that was already submitted. It ignores
// [ResultOptions].Follow.
func (c *Client) Await(ctx context.Context, task *envelope.Envelope, opts ResultOptions) (*envelope.Envelope, error) {
	if c.cfg.Stores == nil {
		return nil, sender.ErrLiveOnly
	}
	return c.readerFor(task, opts).readUntilEnd(ctx, c.cfg.Stores.Replies.Follow(ctx, task.To, task.ID, jetstream.FollowOptions{}))
}

// replyReader reads the messages on a task's reply subject.
type replyReader struct {
	client               *Client
	entity, taskID, corr string
	caller               string // the task's from; "" if it is not known
	known                answers.Known
	onStream             func(*envelope.Envelope) error
	digest               string   // of the task; "" if it is not known
	sent                 []string // digests of other tasks whose answers count
	epoch                string
	number               int // the highest of a stream envelope
	last                 *envelope.Envelope
}

func (c *Client) readerFor(task *envelope.Envelope, opts ResultOptions) *replyReader {
	return &replyReader{client: c, entity: task.To, taskID: task.ID, corr: task.Corr, caller: task.From, digest: wire.TaskDigest(task), sent: opts.Sent, onStream: opts.OnStream}
}

// readUntilEnd takes messages until the terminal envelope, and returns the result.
func (r *replyReader) readUntilEnd(ctx context.Context, messages iter.Seq2[jetstream.Message, error]) (*envelope.Envelope, error) {
	for msg, err := range messages {
		if err == nil {
			err = r.take(msg)
		}
		if err != nil {
			return nil, err
		}
		if r.last != nil {
			return r.result()
		}
	}
	return nil, context.Cause(ctx)
}

func (r *replyReader) take(msg jetstream.Message) error {
	if r.another(msg.Header) {
		return nil
	}
	if r.foreign(msg.Header) {
		return envelope.Errorf(envelope.CodeReplay, "the id %s belongs to another task, whose answer is stored; give this task a new id", r.taskID)
	}
	reply, err := r.client.s.Answers.Stored(r.entity, r.taskID, r.corr, r.caller, &nats.Msg{Data: msg.Data, Header: msg.Header}, msg.Time, &r.known)
	if err != nil {
		return err
	}
	if reply.Type != envelope.TypeStream {
		r.last = reply
		return nil
	}
	if epoch := msg.Header.Get(wire.HeaderEpoch); wire.OlderEpoch(epoch, r.epoch) {
		return nil // sent by a worker that had lost the run
	} else if epoch != "" {
		r.epoch = epoch
	}
	if n, _ := strconv.Atoi(msg.Header.Get(jetstream.HeaderSeq)); n > 0 && n <= r.number {
		return nil // stored late, or twice
	} else if n > 0 {
		r.number = n
	}
	if r.onStream == nil {
		return nil
	}
	return r.onStream(reply)
}

// another reports whether a reply on this subject answers a command or a refused task with
// the same id; every sender that knows the id can cause one. Such a reply has no epoch,
// because it belongs to no run, and no sequence number, so that it cannot displace a reply
// of the run.
func (r *replyReader) another(h nats.Header) bool {
	return r.foreign(h) && h.Get(wire.HeaderEpoch) == ""
}

// foreign reports whether a reply answers another task with the same id, by its digest.
func (r *replyReader) foreign(h nats.Header) bool {
	was := h.Get(wire.HeaderTaskDigest)
	return r.digest != "" && was != "" && was != r.digest && !slices.Contains(r.sent, was)
}

func (r *replyReader) result() (*envelope.Envelope, error) {
	switch {
	case r.last == nil:
		return nil, ErrNoResult
	case r.last.Type == envelope.TypeError:
		return r.last, envelope.ErrorOf(r.last)
	}
	return r.last, nil
}
