package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/chunks"
	"github.com/aeemesh/aeemesh/state"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Get returns the newest checkpoint of a run, see [state.Store].
func (s *States) Get(ctx context.Context, id state.ID) (state.Record, error) {
	return s.get(ctx, id, func(ctx context.Context) (stateMessage, error) { return s.current(ctx, stateKey(id)) })
}

// At returns the checkpoint at a revision, see [state.Store].
func (s *States) At(ctx context.Context, id state.ID, revision uint64) (state.Record, error) {
	return s.get(ctx, id, func(ctx context.Context) (stateMessage, error) {
		if revision == 0 {
			return stateMessage{}, natsjs.ErrMsgNotFound
		}
		m, err := api.LeaderGet(ctx, s.js, s.stream, map[string]any{"seq": revision})
		if err == nil && !m.Genuine() {
			err = natsjs.ErrMsgNotFound
		}
		if _, reply := s.keyOf(m.Subject); err == nil && reply && endOf(m.Header) == nil {
			// The reply of a run with a document, which says that the run has ended.
			now, err := s.current(ctx, stateKey(id))
			if err == nil && now.last != revision {
				err = natsjs.ErrMsgNotFound
			}
			return now, err
		}
		return stateMessage{Message: m, last: m.Seq, replied: endOf(m.Header) != nil}, err
	})
}

func (s *States) get(ctx context.Context, id state.ID, read func(context.Context) (stateMessage, error)) (state.Record, error) {
	if err := checkID(ctx, id); err != nil {
		return state.Record{}, fmt.Errorf("get run: %w", err)
	}
	m, err := read(ctx)
	if key, _ := s.keyOf(m.Subject); err == nil && !m.Genuine() && key == stateKey(id) {
		m, err = s.restore(ctx, id, m.last)
	}
	if key, _ := s.keyOf(m.Subject); errors.Is(err, natsjs.ErrMsgNotFound) || err == nil && (api.Deleted(m.Header) || key != stateKey(id)) {
		return state.Record{}, fmt.Errorf("get run %s of %s: %w", id.Run, id.Entity, state.ErrNotFound)
	}
	if err != nil {
		return state.Record{}, api.Explain(s.js.Conn(), err, "get run %s of %s", id.Run, id.Entity)
	}
	r, err := s.record(ctx, id, m)
	if err != nil {
		return state.Record{}, err
	}
	return r, nil
}

// record returns the checkpoint in a message; if the document is an object, it fetches
// that. With an error it returns what the message itself holds.
func (s *States) record(ctx context.Context, id state.ID, m stateMessage) (state.Record, error) {
	r := state.Record{ID: id, Data: m.Data, Revision: m.last, Time: m.Time, Replied: m.replied, Corr: m.Header.Get(HeaderCorr)}
	r.TTL = lifeOf(m.Header)
	r.Over, r.Swapped = swappedOver(m.Header, s.pattern(stateKey(id)))
	if _, reply := s.keyOf(m.Subject); reply {
		if r.End = endOf(m.Header); r.End == nil {
			return r, fmt.Errorf("get run %s of %s: %w: a reply without a document", id.Run, id.Entity, state.ErrInvalid)
		}
		return r, nil
	}
	if o, ok := objectOf(m.Header); ok {
		if key, _, _ := strings.Cut(strings.TrimPrefix(o.Name, s.object), "/"); key != stateKey(id) {
			return r, fmt.Errorf("get run %s of %s: %w: its document is of %q", id.Run, id.Entity, state.ErrInvalid, o.Name)
		}
		data, err := s.objects.Read(ctx, o)
		if err != nil {
			return r, fmt.Errorf("get run %s of %s: %w", id.Run, id.Entity, err)
		}
		r.Data = data
	}
	return r, nil
}

// damaged reports whether an error is permanent: the record's object is missing or another one, or
// the record is invalid. Any worker can write such a record for its own entity, so a listing goes
// on after it.
func damaged(err error) bool {
	return errors.Is(err, chunks.ErrGone) || errors.Is(err, chunks.ErrOther) || errors.Is(err, state.ErrInvalid)
}

// History returns the checkpoints of a run, see [state.Store]. Of an old one whose document is lost,
// or is another one, it returns what the bucket has, as [States.List] does.
func (s *States) History(ctx context.Context, id state.ID) ([]state.Record, error) {
	if err := checkID(ctx, id); err != nil {
		return nil, fmt.Errorf("get history of run: %w", err)
	}
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	subj := s.sub + stateKey(id)
	newest, err := s.current(ctx, stateKey(id))
	if err == nil && !newest.Genuine() {
		newest, err = s.restore(ctx, id, newest.last)
	}
	if err == nil && newest.Subject != subj && !api.Deleted(newest.Header) { // it has no document
		r, err := s.record(ctx, id, newest)
		return []state.Record{r}, err
	}
	if errors.Is(err, natsjs.ErrMsgNotFound) || err == nil && api.Deleted(newest.Header) {
		return nil, fmt.Errorf("get history of run %s of %s: %w", id.Run, id.Entity, state.ErrNotFound)
	}
	if err != nil {
		return nil, api.Explain(s.js.Conn(), err, "get history of run %s of %s", id.Run, id.Entity)
	}
	for {
		var all []Message
		for m, err := range api.Scan(ctx, s.js, s.stream, subj, 1) {
			if err != nil {
				return nil, fmt.Errorf("get history of run %s of %s: %w", id.Run, id.Entity, err)
			}
			if all = append(all, m); api.Deleted(m.Header) {
				all = all[:0]
			}
		}
		if n := len(all); n > 0 && all[n-1].Seq >= newest.Seq {
			records, err := s.records(ctx, id, all)
			if err == nil && all[n-1].Seq == newest.Seq {
				records[n-1].Revision, records[n-1].Replied = newest.last, newest.replied
			}
			return records, err
		}
		// A replica that lags behind answered, or the run has just been deleted.
		if _, err := s.Get(ctx, id); err != nil {
			return nil, err
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("get history of run %s of %s: %w", id.Run, id.Entity, ctx.Err())
		}
	}
}

// records returns the checkpoints in messages. Of a damaged one that is not the newest it returns
// what the bucket has: the others are of use without it. It reads several documents at once, because
// it takes most of a second to find out that one is lost.
func (s *States) records(ctx context.Context, id state.ID, all []Message) ([]state.Record, error) {
	records, errs := make([]state.Record, len(all)), make([]error, len(all))
	var reading sync.WaitGroup
	free := make(chan struct{}, 16)
	for i, m := range all {
		free <- struct{}{}
		reading.Go(func() {
			records[i], errs[i] = s.record(ctx, id, stateMessage{Message: m, last: m.Seq})
			<-free
		})
	}
	reading.Wait()
	for i, err := range errs {
		if err != nil && (i == len(all)-1 || !damaged(err)) {
			return nil, err
		}
	}
	return records, nil
}

// List yields the runs of an entity, see [state.Store], in the order in which they were
// last written. It first reads the headers of all of them, and then the documents, a few
// MiB at a time. Of a run whose document is lost, or is another one, List and all other
// listings yield what the bucket has: a reference, which [state.Codec.Decode] refuses. A
// record that a stray covers, and that this user may not restore, has no Data.
func (s *States) List(ctx context.Context, entity string) iter.Seq2[state.Record, error] {
	return s.fetchOrRead(ctx, entity, false)
}

// Open yields the runs of an entity, or of all for "", that have not ended. It does not
// read the documents of ended runs, unless this user may not create a consumer: see
// readByName.
func (s *States) Open(ctx context.Context, entity string) iter.Seq2[state.Record, error] {
	return s.fetchOrRead(ctx, entity, true)
}

func (s *States) fetchOrRead(ctx context.Context, entity string, open bool) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		if !s.fenced.Load() {
			for r, err := range s.fetchAll(ctx, entity, func(m stateMessage) bool { return !open || !state.Terminal(m.status()) }) {
				if api.Refused(err) {
					s.fenced.Store(true) // the first request needs permission to create a consumer
					break
				}
				if !yield(r, err) {
					return
				}
			}
		}
		if s.fenced.Load() {
			s.readByName(ctx, entity, open)(yield)
		}
	}
}

// Limits of one batch of documents, in number and bytes.
const (
	fetchBatch = 256
	fetchBytes = 4 * mib
)

func (s *States) fetchAll(ctx context.Context, entity string, want func(stateMessage) bool) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		all, err := s.newest(ctx, entity)
		if err != nil {
			yield(state.Record{}, fmt.Errorf("list runs: %w", err))
			return
		}
		var batch []stateMessage
		size := 0
		for i, m := range all {
			if want(m) {
				batch, size = append(batch, m), size+m.size()
			}
			if i < len(all)-1 && len(batch) < fetchBatch && size < fetchBytes {
				continue
			}
			records, err := s.fetch(ctx, batch)
			for _, r := range records {
				if !yield(r, nil) {
					return
				}
			}
			if err != nil {
				yield(state.Record{}, fmt.Errorf("list runs: %w", err))
				return
			}
			batch, size = batch[:0], 0
		}
	}
}

// fetch returns the newest checkpoints of runs. Any replica may answer; for a run whose
// message is not the known one, because it was written since or the replica lags behind,
// fetch asks the leader.
func (s *States) fetch(ctx context.Context, batch []stateMessage) ([]state.Record, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	subjects := make([]string, len(batch))
	for i, m := range batch {
		subjects[i] = m.Subject
	}
	got, err := api.Last(ctx, s.js, s.stream, subjects...)
	if err != nil {
		return nil, err
	}
	bySubject := map[string]Message{}
	for _, m := range got {
		bySubject[m.Subject] = m
	}
	reads := make([]runRead, len(batch))
	var documents sync.WaitGroup // that are stored as objects
	other := make([]bool, len(batch))
	for i, known := range batch {
		m := bySubject[known.Subject]
		switch other[i] = m.Seq != known.Seq || !m.Genuine(); {
		case other[i]:
		case api.Deleted(m.Header):
			reads[i].err = state.ErrNotFound
		default:
			known.Message = m
			documents.Go(func() { reads[i].record, reads[i].err = s.record(ctx, known.id, known) })
		}
	}
	documents.Wait()
	var again []int
	var keys []string
	for i, known := range batch {
		if other[i] || damaged(reads[i].err) {
			again, keys = append(again, i), append(keys, stateKey(known.id))
		}
	}
	for i, got := range s.readAll(ctx, keys, false) {
		reads[again[i]] = got
	}
	var records []state.Record
	for _, got := range reads {
		switch {
		case errors.Is(got.err, natsjs.ErrMsgNotFound), errors.Is(got.err, state.ErrNotFound):
		case got.err != nil && !damaged(got.err):
			return records, api.Explain(s.js.Conn(), got.err, "read a run")
		default:
			records = append(records, got.record)
		}
	}
	return records, nil
}

// A stateMessage is the message of a checkpoint, or of the reply of a run without one.
type stateMessage struct {
	Message
	id      state.ID
	last    uint64 // the sequence of the run's last message: its own, or that of the reply
	replied bool   // the run's reply is stored, too
}

// status returns the run's status, "" if it is unknown.
func (m stateMessage) status() aaif.RunStatus {
	if !m.Genuine() {
		return ""
	}
	return aaif.RunStatus(m.Header.Get(HeaderStatus))
}

// note reports whether the record is not a run but a note with a time to live, such as a
// command for a task that has not started.
func (m stateMessage) note() bool {
	return m.Header.Get(natsjs.MsgTTLHeader) != "" && !state.Terminal(m.status()) && !api.Deleted(m.Header)
}

// size returns the size of the document, also when only the headers of the message were
// read.
func (m stateMessage) size() int {
	if o, ok := objectOf(m.Header); ok {
		return int(o.Size)
	}
	n, _ := strconv.Atoi(m.Header.Get("Nats-Msg-Size"))
	return n
}

// newest returns the newest message of each run of an entity, headers only, in the order
// of their sequences, without deleted runs.
//
// The replica that is read may lag behind, and the reader may have to start again and
// then receives every revision: so nothing is returned before the end.
func (s *States) newest(ctx context.Context, entity string) ([]stateMessage, error) {
	filter, err := s.filter(entity)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	docs, replies := map[state.ID]Message{}, map[state.ID]Message{}
	err = s.eachLast(ctx, filter, func(m *read) {
		if !m.ofRun() {
			return
		}
		of := docs
		if m.reply {
			of = replies
		}
		if m.Seq > of[m.id].Seq {
			of[m.id] = m.Message
		}
	})
	if err != nil {
		return nil, err
	}
	var all []stateMessage
	for id := range docs {
		m, _ := register(docs[id], replies[id])
		m.id = id
		all = append(all, m)
	}
	for id, reply := range replies {
		if _, ok := docs[id]; ok {
			continue
		}
		if m, err := register(Message{}, reply); err == nil {
			m.id = id
			all = append(all, m)
		}
	}
	all = slices.DeleteFunc(all, func(m stateMessage) bool { return m.Genuine() && api.Deleted(m.Header) })
	sorted.By(all, func(a, b stateMessage) int { return cmp.Compare(a.Seq, b.Seq) })
	return all, nil
}
