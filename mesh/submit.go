package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// errLiveOnly says that a node has no durable lane.
var errLiveOnly = errors.New("this node has no durable lane: set Config.Durable")

// SubmitOptions configure [Node.Submit]. The zero value submits JSON, to begin at once.
type SubmitOptions struct {
	// At is when the task is to begin, by the server's clock; After is the time from now
	// until then. The task's own deadline counts from its begin.
	At    time.Time
	After time.Duration
	// CBOR encodes the task as CBOR; the replies are then CBOR, too.
	CBOR bool
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
// error, the task will be done and answered once: [Node.Result] returns the answer. The
// task is signed if the node has a signer. Submitting the same envelope again is safe. Do
// that after an error that wraps [jetstream.ErrUncertain].
func (n *Node) Submit(ctx context.Context, task *envelope.Envelope, opts SubmitOptions) (Submitted, error) {
	d := n.cfg.Durable
	if d == nil {
		return Submitted{}, errLiveOnly
	}
	if task.Type != envelope.TypeTask {
		return Submitted{}, fmt.Errorf("submit %s: only a task has a result", task.Type)
	}
	if err := withoutSecrets(task); err != nil {
		return Submitted{}, err
	}
	if PublishesTo(task.To) {
		return Submitted{}, fmt.Errorf("submit a task to %s: a %s has no worker", task.To, subject.EntityType(task.To))
	}
	if task.Sig != nil {
		if err := checkBoundDurable(task); err != nil {
			return Submitted{}, err
		}
	}
	at, err := n.dueTime(ctx, opts)
	if err != nil {
		return Submitted{}, err
	}
	if !at.IsZero() {
		if err := n.requireNotBefore(task, at); err != nil {
			return Submitted{}, err
		}
	}
	body := getBuffer()
	defer putBuffer(body)
	header, err := n.encode(ctx, task, true, opts.CBOR, body)
	if err != nil {
		return Submitted{}, err
	}
	stored, err := d.Queue.Submit(ctx, jetstream.Submission{
		Entity: task.To, Priority: string(task.Priority), ID: task.ID, Data: *body, Header: header, At: at,
	})
	if err != nil {
		return Submitted{}, err
	}
	n.journal.sent(task.ID, *body, opts.CBOR)
	return Submitted{TaskID: task.ID, Run: state.RunID(task.To, task.ID), Seq: stored.Seq, Due: stored.Due, Duplicate: stored.Duplicate}, nil
}

func (n *Node) dueTime(ctx context.Context, opts SubmitOptions) (time.Time, error) {
	switch {
	case opts.After < 0:
		return time.Time{}, fmt.Errorf("submit: After is %v, and cannot be negative", opts.After)
	case opts.After == 0:
		return opts.At, nil
	case !opts.At.IsZero():
		return time.Time{}, errors.New("submit: give At or After, not both")
	}
	now, err := n.cfg.Durable.Clock.Now(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return now.Add(opts.After), nil
}

// requireNotBefore sets requires.not_before. The signature covers it, so that a worker
// accepts a task whose ts is long past.
func (n *Node) requireNotBefore(task *envelope.Envelope, at time.Time) error {
	if task.Sig != nil {
		if !(&Task{Envelope: task}).notBefore().IsZero() {
			return nil
		}
		if skew := n.cfg.Skew; skew > 0 && time.Until(at) > skew {
			return fmt.Errorf("submit: a signed task without requires.not_before cannot be scheduled, because it would be stale when it is due: set requires.not_before before signing")
		}
		return nil
	}
	members := map[string]json.RawMessage{}
	if task.Requires != nil {
		if err := json.Unmarshal(task.Requires, &members); err != nil {
			return err
		}
	}
	members[requireNotBefore] = mustJSON(at.UTC().Format(time.RFC3339Nano))
	task.Requires = mustJSON(members)
	return nil
}

// ResultOptions say what [Node.Result] waits for.
type ResultOptions struct {
	// Follow waits for the terminal envelope until ctx ends. Without it Result reads only
	// the replies that are stored now.
	Follow bool
	// OnStream gets the stream envelopes in order, including those that are already
	// stored. "restart": true in a payload voids the text of the turn so far. An error
	// from OnStream ends Result, not the task.
	OnStream func(*envelope.Envelope) error

	again bool // the task was submitted before, so replies may be stored already
}

// ErrNoResult: the task has not ended, or there is no task with this id.
var ErrNoResult = errors.New("there is no result yet")

// Result returns the terminal envelope of a durable task. Any process may call it, and
// repeatedly, for as long as the stream of replies keeps the envelope. An error envelope
// is returned as an *[envelope.Error] with FromPeer true, together with the envelope. If
// there is no terminal envelope yet, Result fails with [ErrNoResult], or waits if Follow
// is set. A task that was retried after it had failed has several terminal envelopes; the
// last one counts.
func (n *Node) Result(ctx context.Context, entity, taskID string, opts ResultOptions) (*envelope.Envelope, error) {
	d := n.cfg.Durable
	if d == nil {
		return nil, errLiveOnly
	}
	reader := &replyReader{node: n, entity: entity, taskID: taskID, onStream: opts.OnStream}
	var after uint64
	for again := true; again; {
		again = false
		for msg, err := range d.Replies.Read(ctx, entity, taskID, after) {
			if opts.Follow && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				again = true // the question or its answer was lost, as where a server is restarted
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
	}
	if reader.last != nil || !opts.Follow {
		return reader.result()
	}
	for msg, err := range d.Replies.Follow(ctx, entity, taskID, jetstream.FollowOptions{After: after}) {
		if err == nil {
			err = reader.take(msg)
		}
		if err != nil {
			return nil, err
		}
		if reader.last != nil {
			return reader.result()
		}
	}
	return nil, context.Cause(ctx)
}

// Perform submits a task as [Node.Submit] does and waits for its terminal envelope as
// [Node.Result] does; it ignores [ResultOptions].Follow. It subscribes to the replies
// before it submits, so it need not read them from the stream.
//
// Perform returns Submit's receipt; its TaskID is "" if Submit failed. An error envelope
// is returned as by Result. When ctx ends, Perform returns the cause; the task goes on,
// and Result has its answer later. Performing the same envelope again waits for the same
// answer.
func (n *Node) Perform(ctx context.Context, task *envelope.Envelope, submit SubmitOptions, opts ResultOptions) (Submitted, *envelope.Envelope, error) {
	d := n.cfg.Durable
	if d == nil {
		return Submitted{}, nil, errLiveOnly
	}
	follower, err := d.Replies.Open(task.To, task.ID)
	if err != nil {
		return Submitted{}, nil, err
	}
	defer follower.Close()
	receipt, err := n.Submit(ctx, task, submit)
	if err != nil {
		return receipt, nil, err
	}
	reader := &replyReader{node: n, entity: task.To, taskID: task.ID, corr: task.Corr, caller: task.From, digest: taskDigest(task), onStream: opts.OnStream}
	for msg, err := range follower.Messages(ctx, jetstream.FollowOptions{Fresh: !receipt.Duplicate && !opts.again}) {
		if err == nil {
			err = reader.take(msg)
		}
		if err != nil {
			return receipt, nil, err
		}
		if reader.last != nil {
			reply, err := reader.result()
			return receipt, reply, err
		}
	}
	return receipt, nil, context.Cause(ctx)
}

// Await is [Node.Perform] for a task that was already submitted. It ignores
// [ResultOptions].Follow.
func (n *Node) Await(ctx context.Context, task *envelope.Envelope, opts ResultOptions) (*envelope.Envelope, error) {
	reader := &replyReader{node: n, entity: task.To, taskID: task.ID, corr: task.Corr, caller: task.From, digest: taskDigest(task), onStream: opts.OnStream}
	for msg, err := range n.cfg.Durable.Replies.Follow(ctx, task.To, task.ID, jetstream.FollowOptions{}) {
		if err == nil {
			err = reader.take(msg)
		}
		if err != nil {
			return nil, err
		}
		if reader.last != nil {
			return reader.result()
		}
	}
	return nil, context.Cause(ctx)
}

// replyReader reads the messages on a task's reply subject.
type replyReader struct {
	node                 *Node
	entity, taskID, corr string
	caller               string // the task's from; "" if it is not known
	known                verifiedChain
	onStream             func(*envelope.Envelope) error
	digest               string // of the task; "" if it is not known
	epoch                string
	last                 *envelope.Envelope
}

func (r *replyReader) take(msg jetstream.Message) error {
	if r.another(msg.Header) {
		return nil
	}
	if was := msg.Header.Get(HeaderTaskDigest); r.digest != "" && was != "" && was != r.digest {
		return envelope.Errorf(envelope.CodeReplay, "the id %s belongs to another task, whose answer is stored; give this task a new id", r.taskID)
	}
	reply, err := r.node.readDurableReply(r.entity, r.taskID, r.corr, r.caller, &nats.Msg{Data: msg.Data, Header: msg.Header}, &r.known)
	if err != nil {
		return err
	}
	if reply.Type != envelope.TypeStream {
		r.last = reply
		return nil
	}
	if epoch := msg.Header.Get(HeaderEpoch); olderEpoch(epoch, r.epoch) {
		return nil // sent by a worker that had lost the run
	} else if epoch != "" {
		r.epoch = epoch
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
	was := h.Get(HeaderTaskDigest)
	return r.digest != "" && was != "" && was != r.digest && h.Get(HeaderEpoch) == ""
}

// taskDigest distinguishes a task from another one with the same id: it is the SHA-256 of
// the bytes that a signature covers, so that encoding, priority and trace do not count.
// For a hop (a task with reply_to) ts and requires do not count either, because the next
// owner of the caller's run sends it again with other values. It is "" if the task has no
// canonical form.
func taskDigest(task *envelope.Envelope) string {
	if task.ReplyTo != "" {
		hop := *task
		hop.TS, hop.Requires = "", nil
		task = &hop
	}
	buf := getBuffer()
	defer putBuffer(buf)
	var err error
	if *buf, err = sign.AppendSigned((*buf)[:0], task); err != nil {
		return ""
	}
	sum := sha256.Sum256(*buf)
	return hex.EncodeToString(sum[:16])
}

// olderEpoch compares two decimal numbers without leading zeros.
func olderEpoch(a, b string) bool {
	return len(a) < len(b) || len(a) == len(b) && a < b
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

// readDurableReply checks that a stored message is an answer to the task, from the entity
// that it was sent to, or from the agent to which that entity delegated it.
func (n *Node) readDurableReply(entity, taskID, corr, caller string, msg *nats.Msg, known *verifiedChain) (*envelope.Envelope, error) {
	reply, _, err := n.decode(msg)
	if err == nil {
		_, err = n.cfg.Verifier.Verify(reply, time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("reply of %s: %w", entity, err)
	}
	switch {
	case reply.ReplyTo != taskID && (reply.Type != envelope.TypeStream || reply.ReplyTo != ""):
		return nil, unusable("reply of %s: it answers %s, not %s", entity, clip.Text(reply.ReplyTo, 128), clip.Text(taskID, 128))
	case corr != "" && reply.Corr != corr:
		return nil, unusable("reply of %s: foreign corr %s", entity, clip.Text(reply.Corr, 128))
	}
	if reply.From != entity && !n.withdrawnBy(reply) {
		if err := n.mayAnswer(entity, taskID, corr, caller, msg.Header.Get(HeaderHandoff), reply, known); err != nil {
			return nil, err
		}
	}
	switch reply.Type {
	case envelope.TypeResult, envelope.TypeError, envelope.TypeStream:
		logReceived(n.log, reply)
		return reply, nil
	}
	return nil, unusable("reply of %s: an envelope of type %s is no answer", entity, reply.Type)
}
