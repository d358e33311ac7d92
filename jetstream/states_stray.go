package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// restore puts the newest record of a run back where a message stands at a sequence
// that no worker wrote (see copied), and returns it as it is stored then, or
// [natsjs.ErrMsgNotFound] if there is none. It reads the revisions of the run. A worker
// whose permissions end at its own entities may not do that: it fails, as while the
// store is not to be reached, until somebody else has restored the record.
func (s *States) restore(ctx context.Context, id state.ID, seq uint64) (Message, error) {
	fail := func(err error) (Message, error) {
		return Message{}, fmt.Errorf("%w: %w; `aeemesh janitor` puts back what was there", ErrUnavailable, err)
	}
	if s.fenced.Load() {
		return fail(errStray)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	key := stateKey(id)
	for range 8 {
		var was Message
		for m, err := range scan(ctx, s.js, s.stream, s.sub+key, 1) {
			if err != nil {
				return fail(fmt.Errorf("%w, and its revisions cannot be read: %w", errStray, err))
			}
			if m.genuine() && m.Seq < seq {
				was = m
			}
		}
		if was.Seq == 0 { // there was none: say so
			was = Message{Header: nats.Header{"KV-Operation": {"PURGE"}, natsjs.MsgTTLHeader: {"1h"}}}
		}
		msg := &nats.Msg{Subject: s.pub + key, Data: was.Data, Header: was.Header}
		msg.Header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(seq, 10))
		msg.Header.Set(natsjs.ExpectedStreamHeader, s.stream)
		ack, err := s.js.PublishMsg(ctx, msg)
		if err == nil {
			was.Seq, was.Subject = ack.Sequence, s.sub+key
			return was, nil
		}
		if !isWrongSequence(err) {
			return fail(fmt.Errorf("%w: %w", errStray, err))
		}
		now, err := s.current(ctx, key)
		if err != nil || now.genuine() {
			return now, err
		}
		seq = now.Seq
	}
	return fail(errors.New("something writes to it again and again"))
}

// Restore puts the newest records back where messages stand that no worker wrote, and
// returns how many. It needs the permissions of an operator; a worker without them can
// not work on such a run.
func (s *States) Restore(ctx context.Context) (int, error) {
	if s.fenced.Load() {
		return 0, fmt.Errorf("restore records: %w", ErrDenied)
	}
	all, err := s.newest(ctx, "")
	if err != nil {
		return 0, fmt.Errorf("restore records: %w", err)
	}
	n := 0
	for _, m := range all {
		if m.genuine() && m.Header.Get(natsjs.ExpectedStreamHeader) != "" {
			continue // else Get, which reads more than the headers, has to tell
		}
		rec, err := s.Get(ctx, m.id)
		switch {
		case err != nil && !errors.Is(err, state.ErrNotFound):
			return n, fmt.Errorf("restore records: %w", err)
		case err != nil || rec.Revision != m.Seq:
			n++
		}
	}
	return n, nil
}
