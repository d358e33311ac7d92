package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// eachLast passes the last message on each subject that a filter matches to a function,
// headers only, and some messages that are stored meanwhile. After a lost connection it
// passes messages again.
func (s *States) eachLast(ctx context.Context, filter string, each func(*read)) error {
	began := false
	once := func() error {
		r, edge, err := s.open(ctx, filter)
		if err != nil {
			return err
		}
		defer r.Close()
		for began = true; !edge.reached; {
			m, err := s.next(ctx, r)
			if err == nil {
				err = edge.pass(ctx, m)
			}
			if err != nil {
				return err
			}
			if m != nil {
				each(m)
			}
		}
		return nil
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		if err := once(); err == nil || !began || !api.Temporary(err) || !pause.For(ctx, wait) {
			return err
		}
	}
}

// open creates a reader of the newest message of each run that a filter matches, and of
// all later messages, headers only.
func (s *States) open(ctx context.Context, filter string) (*api.Reader, *edge, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	e := &edge{s: s, filter: filter}
	if err := e.look(ctx); err != nil {
		return nil, nil, err
	}
	e.reached = e.newest == 0
	r, err := api.OpenReader(ctx, s.js, s.stream, natsjs.OrderedConsumerConfig{
		FilterSubjects: []string{filter}, DeliverPolicy: natsjs.DeliverLastPerSubjectPolicy, HeadersOnly: true,
	})
	return r, e, err
}

// openTimeout is longer than that of other requests: before the server answers, it looks
// for the last message on each subject, in the files of the whole stream.
const openTimeout = 30 * time.Second

// read is a message received by a reader.
type read struct {
	stateMessage
	key   string
	reply bool // it is the run's reply
}

// ofRun reads the run's id from the key, and reports whether the key is that of a run.
func (m *read) ofRun() bool {
	var err error
	m.id, err = stateID(m.key)
	return err == nil
}

// next waits for a message. It returns nil if all stored messages were read.
func (s *States) next(ctx context.Context, r *api.Reader) (*read, error) {
	msg, err := r.Next(ctx)
	if err != nil {
		return nil, api.Explain(s.js.Conn(), err, "read %s", s.stream)
	}
	if msg == nil {
		return nil, nil
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.stream, err)
	}
	m := &read{stateMessage: stateMessage{Message: Message{
		Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp, Stream: meta.Stream, Seq: meta.Sequence.Stream,
	}}}
	m.key, m.reply = s.keyOf(m.Subject)
	m.last = m.Seq
	return m, nil
}

// An edge says when a reader has received the newest message of every run that existed
// when it started. The leader knows the newest sequence; the replica that is read may lag
// behind. Meanwhile runs may be written again, so that their earlier message no longer
// exists: then the new newest sequence must be reached, too.
type edge struct {
	s       *States
	filter  string
	newest  uint64 // the sequence to reach, 0: none
	passed  uint64 // the last sequence received
	again   bool   // newest was read again after it was reached
	reached bool
}

// pass records a message, or with nil that none came for long.
func (e *edge) pass(ctx context.Context, m *read) error {
	if m != nil {
		if e.passed = max(e.passed, m.Seq); e.passed < e.newest {
			return nil
		}
	}
	if m == nil || !e.again {
		e.again = m != nil
		newer, err := true, error(nil) // or the newest one was deleted
		if m != nil {
			newer, err = e.newer(ctx)
		}
		if err == nil && newer {
			err = e.look(ctx)
		}
		if err != nil {
			return err
		}
	}
	e.reached = e.passed >= e.newest
	return nil
}

// newer asks the leader whether there is a message behind the newest known one. To find the
// last message of a pattern, the server goes through all subjects; to find the next one, it
// reads on.
func (e *edge) newer(ctx context.Context) (bool, error) {
	_, err := api.LeaderGet(ctx, e.s.js, e.s.stream, map[string]any{"seq": e.newest + 1, "next_by_subj": e.filter})
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, api.Explain(e.s.js.Conn(), err, "look at %s", e.s.stream)
}

// look asks the leader for the newest sequence.
func (e *edge) look(ctx context.Context) error {
	m, err := api.LeaderGet(ctx, e.s.js, e.s.stream, map[string]any{"last_by_subj": e.filter})
	if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
		return api.Explain(e.s.js.Conn(), err, "look at %s", e.s.stream)
	}
	e.newest = m.Seq
	return nil
}
