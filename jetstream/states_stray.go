package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// errStray: a message that no worker wrote covers a run's record.
var errStray = errors.New("a message that no worker wrote covers the record")

// restore writes the newest record of a run again over a stray (see package api), which has the
// sequence seq. It returns the record as it is then stored, or [natsjs.ErrMsgNotFound] if there is
// none. It reads the run's revisions; for a fenced worker, which may not read them, it fails with
// [ErrUnavailable] until another user has restored the record.
func (s *States) restore(ctx context.Context, id state.ID, seq uint64) (stateMessage, error) {
	fail := func(err error) (stateMessage, error) {
		return stateMessage{}, fmt.Errorf("%w: %w; `aeemesh janitor` restores it", ErrUnavailable, err)
	}
	if s.fenced.Load() {
		return fail(errStray)
	}
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	key := stateKey(id)
	for try := range 8 {
		var was Message
		whole := false // the replica that answered has the stray, and so all before it
		for m, err := range api.ScanSince(ctx, s.js, s.stream, s.pattern(key), 1, time.Time{}) {
			if err != nil {
				return fail(fmt.Errorf("%w, and its revisions cannot be read: %w", errStray, err))
			}
			whole = whole || m.Seq >= seq
			if _, reply := s.keyOf(m.Subject); m.Genuine() && (!reply || endOf(m.Header) != nil) {
				was = m
			}
		}
		if !whole { // it lags behind, or the run was deleted
			now, err := s.current(ctx, key)
			if err != nil || now.Genuine() {
				return now, err
			}
			if seq = now.last; !pause.For(ctx, 10*time.Millisecond<<try) {
				return fail(errStray)
			}
			continue
		}
		if was.Seq == 0 { // there was no record: write a deletion marker
			was = Message{Subject: s.sub + key, Header: nats.Header{"KV-Operation": {"PURGE"}, natsjs.MsgTTLHeader: {"1h"}}}
		}
		_, reply := s.keyOf(was.Subject)
		msg := &nats.Msg{Subject: s.pub + key, Data: was.Data, Header: was.Header}
		if reply {
			msg.Subject = s.replyPub + key
			msg.Header.Del(natsjs.MsgIDHeader) // or the server would take it for the first one
		}
		msg.Header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(seq, 10))
		msg.Header.Set(natsjs.ExpectedStreamHeader, s.stream)
		if s.replySub != "" {
			msg.Header.Set(natsjs.ExpectedLastSubjSeqSubjHeader, s.pattern(key))
		}
		ack, err := api.Publish(ctx, s.js, msg)
		if err == nil {
			was.Seq = ack.Sequence
			return stateMessage{Message: was, last: was.Seq, replied: reply}, nil
		}
		if !api.IsWrongSequence(err) {
			return fail(fmt.Errorf("%w: %w", errStray, err))
		}
		now, err := s.current(ctx, key)
		if err != nil || now.Genuine() {
			return now, err
		}
		seq = now.last
	}
	return fail(errors.New("another client keeps writing to it, or a server lags behind"))
}

// Restore restores all records that strays cover, and returns how many it restored. If it
// cannot restore one, it continues with the others; its error is that of the first, and says
// how many there are. It needs the permissions of an operator; a worker without them cannot
// work on such a run.
func (s *States) Restore(ctx context.Context) (int, error) {
	if s.fenced.Load() {
		return 0, fmt.Errorf("restore records: %w", ErrDenied)
	}
	all, err := s.newest(ctx, "")
	if err != nil {
		return 0, fmt.Errorf("restore records: %w", err)
	}
	n, failed := 0, 0
	var first error
	for _, m := range all {
		if m.Genuine() && m.Header.Get(natsjs.ExpectedStreamHeader) != "" {
			continue // otherwise only Get, which reads more than the headers, can tell
		}
		rec, err := s.Get(ctx, m.id)
		switch {
		case damaged(err) && m.Genuine():
		case err != nil && (ctx.Err() != nil || api.Denied(err)):
			return n, fmt.Errorf("restore records: %w", err)
		case err != nil && !errors.Is(err, state.ErrNotFound) && !damaged(err):
			if failed++; first == nil {
				first = err
			}
		case err != nil || rec.Revision != m.last:
			n++
		}
	}
	switch {
	case failed > 1:
		return n, fmt.Errorf("restore records: %d cannot be restored, the first: %w", failed, first)
	case failed == 1:
		return n, fmt.Errorf("restore records: %w", first)
	}
	return n, nil
}
