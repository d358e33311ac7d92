package jetstream

import (
	"context"
	"fmt"
	"iter"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Inbox stores the messages sent to people, in [StreamHuman]. A value may be used by many
// goroutines at once.
type Inbox struct {
	js natsjs.JetStream
	m  subject.Map
}

// NewInbox returns the inboxes of m's mesh. It does no I/O.
func NewInbox(js natsjs.JetStream, m subject.Map) *Inbox { return &Inbox{js: js, m: m} }

// Put publishes a message into a person's inbox, human.<name>, and returns when the
// server has stored it. A message put again with the same msgID within the stream's
// duplicate window (2 minutes) is stored once, if this user may read the stream;
// otherwise a reader may find it twice. Put fails with [ErrUnavailable] if no stream
// stores inboxes, and with [ErrUncertain] if it is unknown whether the message was
// stored.
func (b *Inbox) Put(ctx context.Context, person, msgID string, data []byte) error {
	subj, err := b.m.Live(person)
	if err != nil {
		return fmt.Errorf("put into an inbox: %w", err)
	}
	msg := &nats.Msg{Subject: subj, Data: data, Header: nats.Header{
		natsjs.MsgIDHeader: {msgID}, natsjs.ExpectedStreamHeader: {b.name()},
	}}
	_, err = api.PublishOnce(ctx, b.js, msg, "", func(seq uint64) (bool, error) {
		have, err := api.LeaderGet(ctx, b.js, b.name(), map[string]any{"seq": seq})
		return err == nil && api.Same(have, msg), err
	})
	return api.Uncertain(api.Explain(b.js.Conn(), err, "put into the inbox of %s", person))
}

// List yields the messages of a person, or of all people with "", in the order in which
// they were stored. Any replica may answer, so a message of a moment ago may be missing.
// After an error it yields nothing more.
func (b *Inbox) List(ctx context.Context, person string) iter.Seq2[Message, error] {
	filter := b.m.AllHuman()
	if person != "" {
		var err error
		if filter, err = b.m.Live(person); err != nil {
			return func(yield func(Message, error) bool) { yield(Message{}, fmt.Errorf("list an inbox: %w", err)) }
		}
	}
	return api.Scan(ctx, b.js, b.name(), filter, 1)
}

// Follow yields the same as List, and then new messages, until ctx ends.
func (b *Inbox) Follow(ctx context.Context, person string) iter.Seq2[Message, error] {
	opts := ReplayOptions{Map: b.m, Subjects: []string{b.m.AllHuman()}, Follow: true}
	if person != "" {
		subj, err := b.m.Live(person)
		if err != nil {
			return func(yield func(Message, error) bool) { yield(Message{}, fmt.Errorf("follow an inbox: %w", err)) }
		}
		opts.Subjects = []string{subj}
	}
	return Replay(ctx, b.js, opts)
}

func (b *Inbox) name() string { return StreamHuman + b.m.Suffix() }
