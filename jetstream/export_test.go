package jetstream

import (
	"context"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ReadAll reads runs as a list of them does, and returns how many could be read.
func ReadAll(ctx context.Context, s *States, ids []state.ID) (n int) {
	var keys []string
	for _, id := range ids {
		keys = append(keys, stateKey(id))
	}
	for _, r := range s.readAll(ctx, keys, false) {
		if r.err == nil {
			n++
		}
	}
	return n
}

// SetScheduled sets the size of StreamSchedule that q uses for a second.
func SetScheduled(q *Queue, n uint64) { q.scheduled, q.looked = n, time.Now() }

// DecodeDead decodes a dead letter of a mesh without a prefix.
func DecodeDead(msg Message) (DeadLetter, error) { return (&Dead{}).decode(msg) }

// EncodeDead returns the message that Put publishes for a letter.
func EncodeDead(l DeadLetter) Message {
	subj, _ := subject.Map{}.Dead(l.Entity, l.TaskID)
	msg := encodeDead(subj, l)
	return Message{Subject: subj, Header: msg.Header, Data: msg.Data, Seq: l.Seq}
}

// ReadMessage, StateKey and StateID are the decoders of States.
var (
	ReadMessage = api.ReadMessage
	StateKey    = stateKey
	StateID     = stateID
	ObjectOf    = objectOf
)

// ReadAck is the decoder of acknowledgements.
var ReadAck = api.ReadAck

// PurgeRun deletes a run as a sweep does that read it at a revision.
func PurgeRun(ctx context.Context, s *States, id state.ID, revision uint64) error {
	objects, err := usageOf(ctx, s.js, s.objects.Stream())
	if err != nil {
		return err
	}
	held, err := s.heldObjects(ctx, objects)
	if err != nil {
		return err
	}
	return (&sweep{States: s}).purge(ctx, []stateMessage{{Message: Message{Subject: s.sub + stateKey(id), Seq: revision}, id: id, last: revision}}, held)
}

// DecodeScheduled decodes a delayed task of a mesh without a prefix.
func DecodeScheduled(msg Message) (Scheduled, error) { return (&Queue{}).readScheduled(msg) }

// SharesNow returns the shares without any run that has ended.
func SharesNow(ctx context.Context, s *States, entity string) ([]Share, error) {
	return s.shares(ctx, entity, 0, SweepOptions{Keep: time.Nanosecond, Orphans: time.Nanosecond})
}

// LastOn reads the last message on a subject, a stray too.
func LastOn(ctx context.Context, js natsjs.JetStream, stream, subj string) (Message, error) {
	return api.Newest(ctx, js, stream, subj)
}

// Paced sets the pause between a notifier's polls, and how long its lanes stay awake without
// tasks.
func Paced(n *Notifier, every, linger time.Duration) *Notifier {
	n.every, n.linger = every, linger
	return n
}

// Muted keeps a notifier's lanes from subscribing to the subjects of tasks.
func Muted(n *Notifier) *Notifier {
	n.mute.Store(true)
	return n
}

// Poll has a notifier poll now.
func Poll(ctx context.Context, n *Notifier) {
	for stream := range watchedStreams {
		n.learn(stream, n.look(ctx, stream))
	}
}

// NamesByHeaders is [States.Names] of all runs in a very large stream.
func NamesByHeaders(ctx context.Context, s *States) ([]state.ID, error) {
	keys, err := s.keysByHeaders(ctx, s.pattern(">"))
	return idsOf(keys), err
}

// Put stores a record of [Records], replacing any earlier one.
func (r *Records) Put(ctx context.Context, id string, value []byte) (uint64, error) {
	key, err := r.key(id)
	if err != nil {
		return 0, err
	}
	return r.write(ctx, key, value, nats.Header{})
}

// Delete deletes a record of [Records].
func (r *Records) Delete(ctx context.Context, id string) error {
	return r.remove(ctx, subject.Escape(id), 0)
}

// Replicated has s read as where the bucket has several replicas, of which some lag behind.
func Replicated(s *States) { s.bucket.Store(&bucketFacts{read: time.Now(), replies: true}) }

// DoubleAck removes the message from the queue and waits for the server's confirmation.
// It fails with [ErrUnavailable] if no server handles acks of the consumer, as when it
// was deleted, and with [ErrUncertain] if no answer comes.
func (d *Delivery) DoubleAck(ctx context.Context) error {
	ctx, cancel := api.OneRequest(ctx)
	defer cancel()
	_, err := d.nc.RequestWithContext(ctx, d.AckSubject, []byte("+ACK"))
	return api.Uncertain(api.Explain(d.nc, err, "acknowledge message %d of %s", d.Seq, d.Subject))
}

// NotDone returns the settings that the options asked for and that were not changed.
func (c Change) NotDone() (out []Difference) {
	for _, d := range c.Differences {
		if d.Asked && d.Kept != "" {
			out = append(out, d)
		}
	}
	return out
}

// UploadsFor has s use an upload for so long.
func UploadsFor(s *States, age time.Duration) *States {
	s.uploads.age = age
	return s
}

// Fenced reports whether a store believes that its user may only read its own entities, a lane that
// it may not create consumers, or a notifier that it may not poll.
func Fenced(store any) bool {
	switch s := store.(type) {
	case *States:
		return s.fenced.Load()
	case *Queue:
		return s.fenced.Load()
	case *Replies:
		return s.fenced.Load()
	case *Lane:
		return s.operated
	case *Notifier:
		return s.blind[watchedWork].Load()
	}
	return false
}

// Joined makes a lane one of a notifier's until leave is called.
func Joined(n *Notifier, l *Lane) (leave func()) { return n.join(l) }

// Reregistering sets the pause between a notifier's looks for the records of its lanes.
func Reregistering(n *Notifier, every time.Duration) *Notifier {
	n.register = every
	return n
}

// Looks reports whether a notifier looks for the records of its lanes.
func Looks(n *Notifier) bool { return !n.unlisted.Load() }

// Evicted returns the order in which a sweep at a time deletes runs with these newest messages.
func Evicted(all []Message, now time.Time, keep time.Duration) (seqs []uint64) {
	var runs []stateMessage
	for _, m := range all {
		runs = append(runs, stateMessage{Message: m})
	}
	for _, group := range evictable(runs, now, keep) {
		for _, m := range group {
			seqs = append(seqs, m.Seq)
		}
	}
	return seqs
}

// WatchCut is [Records.WatchFrom] where the time of each read is over as soon as fn has been called.
func WatchCut(ctx context.Context, r *Records, fn func(id string), ready func()) error {
	var cut context.CancelFunc
	w := r.newWatch(func(id string, _ kvEntry) {
		cut()
		fn(id)
	})
	w.bounded = func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cut = context.WithCancel(ctx)
		return ctx, cut
	}
	return w.run(ctx, ready)
}
