package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Get returns the newest checkpoint of a run, see [state.Store].
func (s *States) Get(ctx context.Context, id state.ID) (state.Record, error) {
	return s.get(ctx, id, map[string]any{"last_by_subj": s.sub + stateKey(id)})
}

// At returns the checkpoint at a revision, see [state.Store].
func (s *States) At(ctx context.Context, id state.ID, revision uint64) (state.Record, error) {
	if revision == 0 {
		if err := s.check(ctx, id); err != nil {
			return state.Record{}, fmt.Errorf("get run: %w", err)
		}
		return state.Record{}, fmt.Errorf("get revision 0 of run %s: %w", id.Run, state.ErrNotFound)
	}
	return s.get(ctx, id, map[string]any{"seq": revision})
}

func (s *States) get(ctx context.Context, id state.ID, query map[string]any) (state.Record, error) {
	if err := s.check(ctx, id); err != nil {
		return state.Record{}, fmt.Errorf("get run: %w", err)
	}
	m, err := s.leader(ctx, query)
	if errors.Is(err, natsjs.ErrMsgNotFound) || err == nil && (deleted(m.Header) || m.Subject != s.sub+stateKey(id)) {
		return state.Record{}, fmt.Errorf("get run %s of %s: %w", id.Run, id.Entity, state.ErrNotFound)
	}
	if err != nil {
		return state.Record{}, explain(s.js.Conn(), err, "get run %s of %s", id.Run, id.Entity)
	}
	return s.record(ctx, id, m)
}

// record is the checkpoint in a message, fetched if it is an object.
func (s *States) record(ctx context.Context, id state.ID, m Message) (state.Record, error) {
	r := state.Record{ID: id, Data: m.Data, Revision: m.Seq, Time: m.Time}
	if o, ok := objectOf(m.Header); ok {
		var err error
		if r.Data, err = s.getObject(ctx, o); err != nil {
			return state.Record{}, fmt.Errorf("get run %s of %s: %w", id.Run, id.Entity, err)
		}
	}
	return r, nil
}

// History returns the checkpoints of a run, see [state.Store].
func (s *States) History(ctx context.Context, id state.ID) ([]state.Record, error) {
	if err := s.check(ctx, id); err != nil {
		return nil, fmt.Errorf("get history of run: %w", err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	subj := s.sub + stateKey(id)
	newest, err := s.leader(ctx, map[string]any{"last_by_subj": subj})
	if errors.Is(err, natsjs.ErrMsgNotFound) || err == nil && deleted(newest.Header) {
		return nil, fmt.Errorf("get history of run %s of %s: %w", id.Run, id.Entity, state.ErrNotFound)
	}
	if err != nil {
		return nil, explain(s.js.Conn(), err, "get history of run %s of %s", id.Run, id.Entity)
	}
	for {
		var all []Message
		for m, err := range scan(ctx, s.js, s.stream, subj, 1) {
			if err != nil {
				return nil, fmt.Errorf("get history of run %s of %s: %w", id.Run, id.Entity, err)
			}
			if all = append(all, m); deleted(m.Header) {
				all = all[:0]
			}
		}
		if n := len(all); n > 0 && all[n-1].Seq >= newest.Seq {
			return s.records(ctx, id, all)
		}
		// A replica answered that is behind, or the run was deleted just now.
		if _, err := s.Get(ctx, id); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("get history of run %s of %s: %w", id.Run, id.Entity, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *States) records(ctx context.Context, id state.ID, all []Message) ([]state.Record, error) {
	records := make([]state.Record, len(all))
	for i, m := range all {
		var err error
		if records[i], err = s.record(ctx, id, m); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// List yields the runs of an entity, see [state.Store], in the order in which
// they were last written.
func (s *States) List(ctx context.Context, entity string) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		for m, err := range s.newest(ctx, entity, false) {
			var r state.Record
			if err == nil {
				r, err = s.record(ctx, m.id, m.Message)
			}
			if errors.Is(err, errObjectGone) { // the run has changed since, or is gone
				if r, err = s.Get(ctx, m.id); errors.Is(err, state.ErrNotFound) {
					continue
				}
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// Open yields the runs of an entity, or of all for "", that have not ended. Of
// those that have, it reads no documents.
func (s *States) Open(ctx context.Context, entity string) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		for m, err := range s.newest(ctx, entity, true) {
			if err == nil && state.Terminal(m.status()) {
				continue
			}
			var r state.Record
			if err == nil {
				if r, err = s.Get(ctx, m.id); errors.Is(err, state.ErrNotFound) {
					continue
				}
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// A stateMessage is the message of a checkpoint.
type stateMessage struct {
	Message
	id state.ID
}

func (m stateMessage) status() aaif.RunStatus { return aaif.RunStatus(m.Header.Get(HeaderStatus)) }

// filter is the pattern of an entity's runs, or of all.
func (s *States) filter(entity string) (string, error) {
	if entity == "" {
		return s.sub + ">", nil
	}
	return s.sub + entityKey(entity) + ".*", subject.ValidateEntity(entity)
}

// newest yields the newest message of each run of an entity, in the order of
// their sequences, without those that say that a run was deleted. A run that is
// written meanwhile is yielded once, old or new.
func (s *States) newest(ctx context.Context, entity string, headersOnly bool) iter.Seq2[stateMessage, error] {
	return func(yield func(stateMessage, error) bool) {
		fail := func(err error) { yield(stateMessage{}, fmt.Errorf("list runs: %w", err)) }
		filter, err := s.filter(entity)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			fail(err)
			return
		}
		r, edge, err := s.open(ctx, filter, headersOnly)
		if err != nil {
			fail(err)
			return
		}
		defer r.iter.Stop()
		seen := map[state.ID]bool{}
		for over := r.empty; !over; {
			m, err := s.next(ctx, r, true)
			if err == nil && m == nil {
				return
			}
			if err == nil {
				over, err = edge.over(ctx, m)
			}
			if err != nil {
				fail(err)
				return
			}
			if !m.ours || seen[m.id] {
				continue
			}
			seen[m.id] = true
			if !deleted(m.Header) && !yield(m.stateMessage, nil) {
				return
			}
		}
	}
}

// open opens a reader of the newest message of each run that a filter matches,
// and of what comes after.
func (s *States) open(ctx context.Context, filter string, headersOnly bool) (*reader, *edge, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	e := &edge{s: s}
	if err := e.look(ctx, &e.first); err != nil {
		return nil, nil, err
	}
	r, err := openReader(ctx, s.js, s.stream, natsjs.OrderedConsumerConfig{
		FilterSubjects: []string{filter}, DeliverPolicy: natsjs.DeliverLastPerSubjectPolicy, HeadersOnly: headersOnly, MaxResetAttempts: -1,
	})
	return r, e, err
}

// read is a message as a reader has it.
type read struct {
	stateMessage
	ours    bool // its key is one of a run
	pending uint64
}

// next waits for a message. Within what is stored it returns nil when there is
// no more.
func (s *States) next(ctx context.Context, r *reader, stored bool) (*read, error) {
	msg, err := r.next(ctx, stored)
	if err != nil {
		return nil, explain(s.js.Conn(), err, "read %s", s.stream)
	}
	if msg == nil {
		return nil, nil
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.stream, err)
	}
	m := &read{pending: meta.NumPending, stateMessage: stateMessage{Message: Message{
		Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(), Time: meta.Timestamp, Stream: meta.Stream, Seq: meta.Sequence.Stream,
	}}}
	m.id, err = stateID(strings.TrimPrefix(m.Subject, s.sub))
	m.ours = err == nil
	return m, nil
}

// An edge says when a reader has had the newest message of every run that was
// there when it began. New ones may come all the time, and may have taken the
// place of one of those. All that were there are over with the first new
// message; what took a place before that is over with the last message that
// there is then.
type edge struct {
	s           *States
	first, last uint64 // sequences of the stream
}

func (e *edge) over(ctx context.Context, m *read) (bool, error) {
	if m.Seq > e.first && e.last == 0 {
		if err := e.look(ctx, &e.last); err != nil {
			return false, err
		}
	}
	return m.pending == 0 || e.last > 0 && m.Seq >= e.last, nil
}

func (e *edge) look(ctx context.Context, seq *uint64) error {
	stream, err := e.s.js.Stream(ctx, e.s.stream)
	if err != nil {
		return explain(e.s.js.Conn(), err, "look at %s", e.s.stream)
	}
	*seq = stream.CachedInfo().State.LastSeq
	return nil
}
