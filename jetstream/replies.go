package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/nats-io/nuid"
)

// HeaderSeq numbers the replies to one task: 1, 2, 3, …, the terminal reply last. A reply
// that is published again keeps its number. By the numbers, a follower notices at once
// that a reply was lost.
const HeaderSeq = "Aee-Seq"

// HeaderStreamCount is set on the terminal reply of a stream: how many stream envelopes
// came before it. A follower never drops such a reply as a duplicate because of its
// number: a worker that has lost its run may have published another reply with that
// number.
const HeaderStreamCount = "Aee-Stream-Count"

// Replies stores the replies to durable tasks in [StreamReply], by the entity and the
// task's id: stream envelopes, and terminal ones of others than the run of the task, such
// as people. The terminal reply of a run is stored beside its record ([States.Reply]);
// Replies announces it, and reads both. A value may be used by many goroutines at once.
//
// Replies are published, and the last one is read, on a subject below the entity, so that
// permissions can restrict it ($JS.API.DIRECT.GET.<stream>.<subject>). Reading the
// earlier replies needs $JS.API.DIRECT.GET.<stream> and $JS.API.STREAM.MSG.GET.<stream>,
// which give access to all replies.
type Replies struct {
	js     natsjs.JetStream
	m      subject.Map
	fenced atomic.Bool // this user may only read the last reply to a task
}

// NewReplies returns the replies of m's mesh. It does no I/O.
func NewReplies(js natsjs.JetStream, m subject.Map) *Replies { return &Replies{js: js, m: m} }

// Fence says that the user's permissions end at its own entities: see [States.Fence].
// Then only the last reply to a task is read.
func (r *Replies) Fence() { r.fenced.Store(true) }

// A Reply is one message to a task's sender.
type Reply struct {
	Entity string // the task's
	TaskID string

	// MsgID stays the same when the reply is published again: within the stream's
	// duplicate window (2 minutes) the reply is stored once, and followers see it once.
	// Required.
	MsgID string

	Data   []byte
	Header nats.Header // copied, except headers that begin with Nats-
}

// Publish stores a reply and returns when the server has stored it. Followers of the task
// may receive it before that. After [ErrUncertain] it may be published again.
func (r *Replies) Publish(ctx context.Context, reply Reply) error {
	_, _, err := r.Store(ctx, reply)
	return err
}

// Store is [Replies.Publish] that also returns the sequence of the reply in the stream. duplicate
// reports that a reply with the same MsgID was stored before.
func (r *Replies) Store(ctx context.Context, reply Reply) (seq uint64, duplicate bool, err error) {
	msg, err := r.message(reply)
	if err != nil {
		return 0, false, err
	}
	ack, err := api.PublishOnce(ctx, r.js, msg, reply.MsgID+"."+nuid.Next(), func(seq uint64) (bool, error) { return r.has(ctx, msg, seq) })
	if err != nil {
		return 0, false, api.Uncertain(api.Explain(r.js.Conn(), err, "publish a reply to %s", msg.Subject))
	}
	return ack.Sequence, ack.Duplicate, nil
}

// has reports whether a reply is stored: the message with the sequence is on its subject.
// A user who may read only the last reply compares numbers: a last reply with at least
// the same number was published after it.
func (r *Replies) has(ctx context.Context, msg *nats.Msg, seq uint64) (bool, error) {
	if !r.fenced.Load() {
		have, err := api.LeaderGet(ctx, r.js, r.name(), map[string]any{"seq": seq})
		if !api.Refused(err) {
			return err == nil && have.Subject == msg.Subject, err
		}
		r.fenced.Store(true)
	}
	last, err := api.NewestPublished(ctx, r.js, r.name(), msg.Subject)
	if err != nil {
		return false, err
	}
	id, number := identity(last.Header)
	_, own := identity(msg.Header)
	return id == msg.Header.Get(natsjs.MsgIDHeader) || own > 0 && number >= own, nil
}

// PublishAsync publishes a reply without waiting for the server. [Sent.Wait] returns the outcome.
// Replies of one goroutine are stored in the order in which it publishes them, unless one is lost
// and published again. So do not publish another reply while an earlier one may be lost:
// [Sent.Failed] is true for it, or it was published over another [Replies.Connection].
func (r *Replies) PublishAsync(reply Reply) (*Sent, error) {
	msg, err := r.message(reply)
	if err != nil {
		return nil, err
	}
	future, err := r.js.PublishMsgAsync(msg, natsjs.WithRetryAttempts(0)) // a retry could come after later replies
	if err != nil {
		return nil, api.Explain(r.js.Conn(), err, "publish a reply to %s", msg.Subject)
	}
	return &Sent{future: future, nc: r.js.Conn(), subject: msg.Subject}, nil
}

// Connection returns a number that identifies the current connection to the server. It is 0
// without a connection: replies that are published then wait for the next one.
func (r *Replies) Connection() uint64 {
	if !r.js.Conn().IsConnected() {
		return 0
	}
	return r.js.Conn().Stats().Reconnects + 1
}

// Fits fails with [ErrTooLarge] if a reply is larger than the server's max_payload.
func (r *Replies) Fits(reply Reply) error {
	msg, err := r.message(reply)
	if err != nil {
		return err
	}
	if limit := r.js.Conn().MaxPayload(); limit > 0 && int64(msg.Size()-len(msg.Subject)) > limit {
		return api.Explain(r.js.Conn(), nats.ErrMaxPayload, "publish a reply to %s", msg.Subject)
	}
	return nil
}

// A Sent is a reply that was published and may not be stored yet. It is used by one goroutine at a
// time.
type Sent struct {
	future  natsjs.PubAckFuture
	failure error // nil: no failure is known
	nc      *nats.Conn
	subject string
}

// Failed reports whether it is known that the server did not confirm the reply. Wait returns the
// reason.
func (s *Sent) Failed() bool {
	if s.failure == nil {
		select {
		case s.failure = <-s.future.Err():
		default:
		}
	}
	return s.failure != nil
}

// Wait waits until the server has stored the reply. duplicate reports that a reply with
// the same MsgID was stored before. It may be called once.
func (s *Sent) Wait(ctx context.Context) (duplicate bool, err error) {
	if s.Failed() {
		return false, s.explain(s.failure)
	}
	ctx, cancel := api.OneRequest(ctx)
	defer cancel()
	select {
	case ack := <-s.future.Ok():
		return ack.Duplicate, nil
	case err := <-s.future.Err():
		return false, s.explain(err)
	case <-ctx.Done():
		return false, s.explain(ctx.Err())
	}
}

func (s *Sent) explain(err error) error {
	if errors.Is(err, natsjs.ErrAsyncPublishTimeout) { // see New
		err = nats.ErrTimeout
	}
	return api.Uncertain(api.Explain(s.nc, api.OfWrite(s.nc, s.subject, err), "publish a reply to %s", s.subject))
}

func (r *Replies) message(reply Reply) (*nats.Msg, error) {
	subj, err := r.m.Reply(reply.Entity, reply.TaskID)
	if err != nil {
		return nil, fmt.Errorf("publish a reply: %w", err)
	}
	if reply.MsgID == "" {
		return nil, fmt.Errorf("publish a reply to %s: it needs a MsgID", subj)
	}
	msg := &nats.Msg{Subject: subj, Data: reply.Data, Header: api.PlainHeader(reply.Header)}
	msg.Header[natsjs.MsgIDHeader] = []string{reply.MsgID}
	msg.Header[natsjs.ExpectedStreamHeader] = []string{r.name()}
	return msg, nil
}

// Last returns the newest reply to a task, or [ErrNotFound]. Any replica may answer, so a
// reply of a moment ago may be missing.
func (r *Replies) Last(ctx context.Context, entity, taskID string) (Message, error) {
	at, err := r.place(entity, taskID)
	if err != nil {
		return Message{}, fmt.Errorf("find a reply: %w", err)
	}
	msg, err := r.ofRun(ctx, at)
	if err == nil || errors.Is(err, natsjs.ErrMsgNotFound) {
		other, e := api.NewestPublished(ctx, r.js, r.name(), at.subject)
		switch {
		case e == nil && (err != nil || other.Time.After(msg.Time)), e != nil && !errors.Is(e, natsjs.ErrMsgNotFound):
			msg, err = other, e
		}
	}
	return msg, api.Explain(r.js.Conn(), err, "find a reply on %s", at.subject)
}

// Read yields the stored replies to a task after the Seq of one that was read (0: all), in
// their order, and ends with the last one. For a task that was retried as a dead letter
// it may yield the replies of the last try only. Any replica may answer, so a reply of a
// moment ago may be missing. A user who may read only the last reply gets that one.
func (r *Replies) Read(ctx context.Context, entity, taskID string, after uint64) iter.Seq2[Message, error] {
	at, err := r.place(entity, taskID)
	if err != nil {
		return func(yield func(Message, error) bool) { yield(Message{}, fmt.Errorf("read replies: %w", err)) }
	}
	return r.behind(ctx, at, after, time.Time{}, nil)
}

// Streamed is like Read for the first reply, but leaves out the terminal reply of the task's run.
// While the task is retried as a dead letter, that is the reply of the failed attempt.
func (r *Replies) Streamed(ctx context.Context, entity, taskID string) iter.Seq2[Message, error] {
	at, err := r.place(entity, taskID)
	if err != nil {
		return func(yield func(Message, error) bool) { yield(Message{}, fmt.Errorf("read replies: %w", err)) }
	}
	return r.streamed(ctx, at.subject, 0, time.Time{})
}

// behind yields the replies to a task that are stored after a sequence: those of the stream, and
// then that of the task's run, unless old returns true for it (nil: no reply is old). read is the
// time of the message with the sequence; zero: unknown.
func (r *Replies) behind(ctx context.Context, at place, after uint64, read time.Time, old func(nats.Header) bool) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		// The run's reply is read first, so that all that it follows is there.
		end, err := r.ofRun(ctx, at)
		if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
			yield(Message{}, api.Explain(r.js.Conn(), err, "read the reply of a run to %s", at.subject))
			return
		}
		if err == nil && (old != nil && old(end.Header) || r.outlived(ctx, at, end)) {
			end, err = Message{}, natsjs.ErrMsgNotFound
		}
		ended := err == nil && end.Seq > after
		if end.Header.Get(HeaderSeq) != "1" { // otherwise there is no other
			for msg, err := range r.streamed(ctx, at.subject, after, read) {
				if !yield(msg, err) || err != nil {
					return
				}
			}
		}
		if ended {
			yield(end, nil)
		}
	}
}

// headerChain is set on the replies of an agent to which the task was delegated.
const headerChain = "Aee-Handoff"

// outlived reports whether the reply of a run is the error of a failed attempt: the next attempt has
// delegated the task, so that the run has no other reply, and the receiver's are newer.
func (r *Replies) outlived(ctx context.Context, at place, end Message) bool {
	if end.Header.Get(micro.ErrorCodeHeader) == "" {
		return false
	}
	last, err := api.NewestPublished(ctx, r.js, r.name(), at.subject)
	return err == nil && last.Header.Get(headerChain) != "" && last.Time.After(end.Time)
}

// streamed yields the replies on a subject that are stored after a sequence. It yields all of them
// if the last one is newer than the message that was read and has no higher sequence: then the
// stream was recreated, or restored from an older copy.
func (r *Replies) streamed(ctx context.Context, subj string, after uint64, read time.Time) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		last, err := api.NewestPublished(ctx, r.js, r.name(), subj)
		if err == nil && last.Seq <= after && after < runReply && !read.IsZero() && last.Time.After(read) {
			after = 0
		}
		switch {
		case errors.Is(err, natsjs.ErrMsgNotFound) || err == nil && last.Seq <= after:
			return
		case err != nil:
			yield(Message{}, api.Explain(r.js.Conn(), err, "read replies on %s", subj))
			return
		case last.Header.Get(HeaderSeq) == "1" || r.fenced.Load(): // there is no other, or no other may be read
			yield(last, nil)
			return
		}
		for msg, err := range api.Scan(ctx, r.js, r.name(), subj, after+1) {
			if api.Refused(err) { // at the first request
				r.fenced.Store(true)
				yield(last, nil)
				return
			}
			if !yield(msg, err) {
				return
			}
		}
	}
}

// Next returns the first reply to a task after the Seq of one that was read (0: of all), or
// [ErrNotFound]. A user who may read only the last reply gets that one.
func (r *Replies) Next(ctx context.Context, entity, taskID string, after uint64) (Message, error) {
	at, err := r.place(entity, taskID)
	if err != nil {
		return Message{}, fmt.Errorf("find a reply: %w", err)
	}
	subj := at.subject
	msg, err := api.NewestPublished(ctx, r.js, r.name(), subj)
	if err == nil && msg.Seq <= after {
		err = natsjs.ErrMsgNotFound
	}
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		if msg, err = r.ofRun(ctx, at); err == nil && msg.Seq <= after {
			err = natsjs.ErrMsgNotFound
		}
		return msg, api.Explain(r.js.Conn(), err, "find a reply on %s", subj)
	}
	if err == nil && !r.fenced.Load() {
		first, failed := api.LeaderGet(ctx, r.js, r.name(), map[string]any{"seq": after + 1, "next_by_subj": subj})
		switch {
		case api.Refused(failed):
			r.fenced.Store(true)
		default:
			msg, err = first, failed
		}
	}
	return msg, api.Explain(r.js.Conn(), err, "find a reply on %s", subj)
}

// FindDepth is the most tokens of an entity that [Replies.Find] finds: "agent.a.b" has
// three.
const FindDepth = 8

// Find returns the entities that have replied to a task with this id, or [ErrNotFound].
// It is for people who know only the id: the server searches the subjects of all stored
// replies, and those of runs are listed. It does not find tasks without a reply, nor
// replies in [StreamReply] of entities of more than [FindDepth] tokens.
func (r *Replies) Find(ctx context.Context, taskID string) ([]string, error) {
	return r.find(ctx, taskID, r.ofRuns)
}

// FindOthers is Find without the replies of runs, for callers that know that the task has no run.
// It does not list the names of all runs.
func (r *Replies) FindOthers(ctx context.Context, taskID string) ([]string, error) {
	return r.find(ctx, taskID, func(context.Context, string) ([]string, error) { return nil, nil })
}

func (r *Replies) find(ctx context.Context, taskID string, ofRuns func(context.Context, string) ([]string, error)) ([]string, error) {
	var filters []string
	id := subject.Escape(taskID)
	if taskID == "" || len(id) > subject.MaxID {
		return nil, fmt.Errorf("find the replies to a task: its id has %d bytes when escaped, must have 1 to %d", len(id), subject.MaxID)
	}
	lane := strings.TrimSuffix(r.m.AllReplies(), ">")
	for tokens := 2; tokens <= FindDepth; tokens++ {
		filters = append(filters, lane+strings.Repeat("*.", tokens)+id)
	}
	found, err := api.Last(ctx, r.js, r.name(), filters...)
	if err != nil {
		return nil, err
	}
	entities, err := ofRuns(ctx, taskID)
	if err != nil {
		return nil, err
	}
	for _, msg := range found {
		if a, err := r.m.Parse(msg.Subject); err == nil && a.Kind == subject.Reply && a.ID == taskID && !slices.Contains(entities, a.Entity) {
			entities = append(entities, a.Entity)
		}
	}
	if len(entities) == 0 {
		return nil, fmt.Errorf("find the replies to task %q: %w", taskID, ErrNotFound)
	}
	slices.Sort(entities)
	return entities, nil
}

func (r *Replies) name() string { return StreamReply + r.m.Suffix() }

// FollowOptions say where to start.
type FollowOptions struct {
	// After is the Seq of a reply that was read: replies up to it are skipped.
	After uint64

	// Fresh says that the task is submitted after [Replies.Open]: no reply can be stored
	// yet, so the stream is not read at first.
	Fresh bool

	// Old reports, by its headers, whether a reply is of an earlier attempt at the task. Such a
	// reply is skipped. nil: no reply is old.
	Old func(nats.Header) bool
}

// Follow yields the replies to a task, first the stored ones and then new ones as they
// arrive, until ctx ends or the caller stops. See [Follower.Messages].
func (r *Replies) Follow(ctx context.Context, entity, taskID string, opts FollowOptions) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		f, err := r.Open(entity, taskID)
		if err != nil {
			yield(Message{}, err)
			return
		}
		defer f.Close()
		f.Messages(ctx, opts)(yield)
	}
}

// ReplyInbox returns a new reply subject of a connection. Unlike those of [nats.Conn.NewInbox] it
// cannot be computed from others that the process has used.
func ReplyInbox(nc *nats.Conn) string { return api.Inbox(nc) }
