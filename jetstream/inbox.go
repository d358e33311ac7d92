package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Inbox is what people were sent: [StreamHuman]. A value may be used by many
// goroutines at once.
type Inbox struct {
	js natsjs.JetStream
	m  subject.Map
}

// NewInbox returns the inboxes of the people of m's mesh. It does no I/O.
func NewInbox(js natsjs.JetStream, m subject.Map) *Inbox { return &Inbox{js: js, m: m} }

// Put publishes a message into a person's inbox, human.<name>, and returns it as
// it is stored. The stream acknowledges nothing, so it is looked for there, which
// needs permission for $JS.API.STREAM.MSG.GET.<stream>; where it is not found it
// is published again. Whoever reads an inbox so may find a message twice. Put
// fails with [ErrUncertain] when ctx ends before it is seen, and with
// [ErrNotFound] where no stream keeps inboxes.
func (b *Inbox) Put(ctx context.Context, person string, header nats.Header, data []byte) (Message, error) {
	subj, err := b.m.Live(person)
	if err != nil {
		return Message{}, fmt.Errorf("put into an inbox: %w", err)
	}
	fail := func(err error) (Message, error) {
		return Message{}, explain(b.js.Conn(), err, "put into the inbox of %s", person)
	}
	var after uint64
	switch last, err := leaderGet(ctx, b.js, b.name(), map[string]any{"last_by_subj": subj}); {
	case err == nil:
		after = last.Seq
	case !errors.Is(err, natsjs.ErrMsgNotFound):
		return fail(err)
	}
	nc := b.js.Conn()
	for wait := 2 * time.Millisecond; ; {
		if err := nc.PublishMsg(&nats.Msg{Subject: subj, Header: plainHeader(header), Data: data}); err != nil {
			return fail(err)
		}
		for range 6 { // it is on its way
			msg, err := b.find(ctx, subj, after, data)
			if err == nil {
				return msg, nil
			}
			if !errors.Is(err, natsjs.ErrMsgNotFound) && ctx.Err() == nil {
				return fail(err)
			}
			select {
			case <-ctx.Done():
				return fail(fmt.Errorf("%w: %w", ErrUncertain, context.Cause(ctx)))
			case <-time.After(wait):
			}
			wait = min(2*wait, time.Second)
		}
	}
}

// find looks for a message behind a sequence by its bytes.
func (b *Inbox) find(ctx context.Context, subj string, after uint64, data []byte) (Message, error) {
	for {
		msg, err := leaderGet(ctx, b.js, b.name(), map[string]any{"seq": after + 1, "next_by_subj": subj})
		if err != nil || bytes.Equal(msg.Data, data) {
			return msg, err
		}
		after = msg.Seq
	}
}

// List yields what a person was sent, of all people with "", in the order in
// which it came. Any replica may answer, so what came a moment ago may be
// missing. After an error it yields nothing more.
func (b *Inbox) List(ctx context.Context, person string) iter.Seq2[Message, error] {
	filter := b.m.AllHuman()
	if person != "" {
		var err error
		if filter, err = b.m.Live(person); err != nil {
			return func(yield func(Message, error) bool) { yield(Message{}, fmt.Errorf("list an inbox: %w", err)) }
		}
	}
	return scan(ctx, b.js, b.name(), filter, 1)
}

// Follow yields the same as List, and then what comes, until ctx ends.
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
