package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/chunks"
	"github.com/aeemesh/aeemesh/state"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// SweepOptions configure [States.Sweep]. The zero value is right for a worker.
type SweepOptions struct {
	// From is the used fraction of the bucket's MaxBytes at which Sweep starts to remove
	// ended runs, and To the fraction at which it stops. 0: 0.75 and 0.5.
	From, To float64

	// Keep is how long an ended run stays in any case: for that long its task may be
	// submitted again. 0: 2 minutes, the duplicate window of [StreamWork].
	Keep time.Duration

	// Orphans is the minimum age of an object without references before it is deleted,
	// and the minimum time between two searches for such objects. 0: 10 minutes.
	Orphans time.Duration
}

// A Sweeper is a store of runs that makes room: [States] is one.
type Sweeper interface {
	Sweep(ctx context.Context, opts SweepOptions) (Swept, error)
}

// Swept is the result of a sweep.
type Swept struct {
	Runs    int // ended runs that were deleted, with their history
	Objects int // deleted objects that no record referred to

	// Used is the fraction of the bucket's MaxBytes that was in use before, or of the
	// object store's if that was larger; 0 without a limit.
	Used float64
}

// Sweep makes room: a full bucket accepts no more checkpoints, which would stop all work.
// From three quarters of the limit on, Sweep first deletes the records with a time to
// live of their own: commands for tasks that have not started. Then it deletes ended runs
// with their history, the earliest first, failed ones last. A run must have a final
// status in its [Note], must have ended some time ago, and its work message must be gone
// from [StreamWork], so that it cannot be redelivered. Runs that have not ended, and
// those without a work message in their note, stay until the bucket's maximum age. If the
// object store needs room, the objects of a run are deleted with it.
//
// It also deletes objects that no stored revision refers to: those of expired revisions, and those
// of writers that crashed. It does not delete the records of handoffs: they expire when they are
// no longer needed, and until then a token must stay used.
//
// It needs the permissions of an operator; for a user without them it only reports how
// full the stores are. All nodes may call it every few seconds, also concurrently: unless
// there is something to do, it only reads the size of the bucket.
func (s *States) Sweep(ctx context.Context, opts SweepOptions) (Swept, error) {
	opts.defaults()
	w := &sweep{s, opts}
	var swept Swept
	records, err := usageOf(ctx, s.js, s.stream)
	if err != nil {
		return swept, err
	}
	objects, err := usageOf(ctx, s.js, s.objects.Stream())
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	if err != nil {
		return swept, err
	}
	swept.Used = max(records.share(), objects.share())
	if s.fenced.Load() {
		return swept, nil // only users with permission to purge can sweep
	}
	if swept.Used >= opts.From && s.object != chunks.HandoffPrefix {
		if swept.Runs, err = w.evict(ctx, records, objects); err != nil {
			return swept, err
		}
	}
	s.mu.Lock()
	due := objects.msgs > 0 && (swept.Runs > 0 || time.Since(s.collected) >= opts.Orphans)
	if due {
		s.collected = time.Now()
	}
	s.mu.Unlock()
	if due {
		swept.Objects, err = w.collect(ctx)
	}
	return swept, err
}

// A sweep is one call of [States.Sweep].
type sweep struct {
	*States
	SweepOptions
}

func (o *SweepOptions) defaults() {
	if o.From <= 0 {
		o.From = 0.75
	}
	if o.To <= 0 {
		o.To = 0.5
	}
	if o.Keep <= 0 {
		o.Keep = 2 * time.Minute
	}
	if o.Orphans <= 0 {
		o.Orphans = 10 * time.Minute
	}
}

// usage says how full a stream is.
type usage struct {
	bytes, msgs uint64
	limit       int64
	last        uint64    // the last sequence
	now         time.Time // by the server's clock
}

func (u usage) share() float64 {
	if u.limit <= 0 {
		return 0
	}
	return float64(u.bytes) / float64(u.limit)
}

func usageOf(ctx context.Context, js natsjs.JetStream, stream string) (usage, error) {
	info, err := api.InfoOf(ctx, js, stream)
	return usage{info.State.Bytes, info.State.Msgs, info.Config.MaxBytes, info.State.LastSeq, info.TimeStamp}, err
}

// evictBatch is how many runs are deleted at most before the size is read again.
const evictBatch = 64

// evict deletes ended runs, the earliest first, until there is room, and returns how
// many.
func (w *sweep) evict(ctx context.Context, records, objects usage) (int, error) {
	s := w.States
	var messages map[string]int // by key, once a run is to go
	done := delivered{s: s, oldest: map[string]uint64{}}
	count, batch := 0, []stateMessage(nil)
	low := func(u usage) bool { return u.share() <= w.To }
	all, err := s.newest(ctx, "")
	if err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	groups := evictable(all, records.now, w.Keep)
	if len(groups[0])+len(groups[1])+len(groups[2]) == 0 {
		return 0, nil
	}
	var held heldObjects // if the object store needs room; otherwise a later sweep collects them
	if !low(objects) {
		if held, err = s.heldObjects(ctx, objects); err != nil {
			return 0, fmt.Errorf("sweep: %w", err)
		}
	}
	flush := func() (enough bool, err error) {
		if err := w.purge(ctx, batch, held); err != nil {
			return false, err
		}
		count, batch = count+len(batch), batch[:0]
		if records, err = usageOf(ctx, s.js, s.stream); err != nil {
			return false, err
		}
		if held.of != nil {
			if objects, err = usageOf(ctx, s.js, s.objects.Stream()); err != nil {
				return false, err
			}
		}
		return low(records) && low(objects), nil
	}
	take := func(m stateMessage) (enough bool, err error) {
		large := held.bytes(m)
		enough = low(records)
		if enough && large == 0 {
			return false, nil // only the object store needs room
		}
		if !m.note() {
			if gone, err := done.gone(ctx, m); !gone || err != nil {
				return false, err
			}
		}
		objects.bytes -= min(objects.bytes, large)
		if messages == nil {
			subjects, err := api.Subjects(ctx, s.js, s.stream, s.pattern(">"))
			if err != nil {
				return false, fmt.Errorf("sweep: %w", err)
			}
			messages = s.byKey(subjects)
		}
		// An estimate, until the size is read: most often too much, because documents grow.
		records.bytes -= min(records.bytes, uint64(messages[stateKey(m.id)]*m.stored()))
		batch = append(batch, m)
		if len(batch) < evictBatch && (!low(records) || enough && !low(objects)) {
			return false, nil
		}
		return flush()
	}
	for _, group := range groups {
		for _, m := range group {
			if enough, err := take(m); enough || err != nil {
				return count, err
			}
		}
		if len(batch) > 0 {
			if enough, err := flush(); enough || err != nil {
				return count, err
			}
		}
	}
	return count, nil
}

// evictable returns the notes, the runs that ended and the failed ones among messages that are
// older than keep, each in the order of the messages. Failed runs may be wanted for a retry, so
// they are deleted last.
func evictable(all []stateMessage, now time.Time, keep time.Duration) (groups [3][]stateMessage) {
	for _, m := range all {
		if now.Sub(m.Time) < keep {
			continue // later ones may be older: the clocks of the stream's leaders may differ
		}
		switch {
		case m.note():
			groups[0] = append(groups[0], m)
		case m.status() == aaif.RunFailed:
			groups[2] = append(groups[2], m)
		case state.Terminal(m.status()):
			groups[1] = append(groups[1], m)
		}
	}
	return groups
}

// stored returns about how many bytes a message of a run takes in the stream. Only its headers
// were read.
func (m stateMessage) stored() int {
	const frame = 64 // of the record in the server's file
	size, _ := strconv.Atoi(m.Header.Get("Nats-Msg-Size"))
	size += frame + len(m.Subject)
	for name, values := range m.Header {
		for _, v := range values {
			size += len(name) + len(": \r\n") + len(v)
		}
	}
	return size
}

// purge deletes runs, several at once, up to the revision that was read: a run that was
// written again meanwhile stays. It also deletes the objects of the runs that hold some.
func (w *sweep) purge(ctx context.Context, runs []stateMessage, held heldObjects) error {
	var purges errgroup.Group
	purges.SetLimit(16)
	for _, m := range runs {
		purges.Go(func() error { return w.purgeRun(ctx, m, held) })
	}
	return purges.Wait()
}

// purgeRun deletes the objects at once, and does not leave them to a later search for objects without
// references: until they are old enough for that, the store would still be full, and each sweep
// would delete further runs.
func (w *sweep) purgeRun(ctx context.Context, m stateMessage, held heldObjects) error {
	key := stateKey(m.id)
	var objects map[string]bool
	var err error
	if held.of[key] > 0 {
		if objects, err = w.references(ctx, key); err != nil {
			return err
		}
	}
	if _, err = (api.Purge{Filter: w.pattern(key), Before: m.last + 1}).Do(ctx, w.js, w.stream); err != nil {
		return api.Explain(w.js.Conn(), err, "delete run %s of %s", m.id.Run, m.id.Entity)
	}
	if len(objects) == 0 {
		return nil
	}
	needed, err := w.references(ctx, key) // by newer revisions
	if err != nil {
		return err
	}
	for name := range objects {
		if needed[name] {
			continue
		}
		// An error is one of the sweep: with objects that it cannot delete it would delete run after run.
		if err := w.objects.Delete(ctx, name, held.last); err != nil {
			return err
		}
	}
	return nil
}

// delivered finds out which work messages are gone.
type delivered struct {
	s      *States
	oldest map[string]uint64 // sequence of the oldest work message, by entity
}

// gone reports whether the work message of a run is gone from the stream. The leader
// answers.
func (d *delivered) gone(ctx context.Context, m stateMessage) (bool, error) {
	seq, _ := strconv.ParseUint(m.Header.Get(HeaderWork), 10, 64)
	if seq == 0 {
		return false, nil
	}
	oldest, known := d.oldest[m.id.Entity]
	if !known {
		var err error
		filter := d.s.m.AllWork()
		filter = strings.TrimSuffix(filter, ">") + "*." + m.id.Entity
		if oldest, err = d.ask(ctx, map[string]any{"seq": 1, "next_by_subj": filter}); err != nil {
			return false, err
		}
		d.oldest[m.id.Entity] = oldest
	}
	if oldest == 0 || seq < oldest {
		return true, nil
	}
	at, err := d.ask(ctx, map[string]any{"seq": seq})
	return at == 0, err
}

// ask returns the sequence of the message that the query finds, 0 if there is none.
func (d *delivered) ask(ctx context.Context, query map[string]any) (uint64, error) {
	stream := StreamWork + d.s.m.Suffix()
	var got struct {
		Message struct {
			Seq uint64 `json:"seq"`
		} `json:"message"`
	}
	err := api.Request(ctx, d.s.js, "STREAM.MSG.GET."+stream, query, &got)
	if errors.Is(err, natsjs.ErrMsgNotFound) || errors.Is(err, natsjs.ErrStreamNotFound) {
		return 0, nil
	}
	return got.Message.Seq, api.Explain(d.s.js.Conn(), err, "look for work messages in %s", stream)
}

// Compact deletes all revisions of a run but the newest: for a run that will not change
// any more. A sweep collects their objects later.
func (s *States) Compact(ctx context.Context, id state.ID) error {
	if err := checkID(ctx, id); err != nil {
		return fmt.Errorf("compact run: %w", err)
	}
	_, err := api.Purge{Filter: s.sub + stateKey(id), Keep: 1}.Do(ctx, s.js, s.stream)
	return api.Explain(s.js.Conn(), err, "delete older revisions of run %s of %s", id.Run, id.Entity)
}

// collect deletes objects that no stored revision refers to, and returns how many.
func (w *sweep) collect(ctx context.Context) (int, error) {
	s := w.States
	now, err := api.InfoOf(ctx, s.js, s.objects.Stream())
	if err != nil {
		return 0, err
	}
	names, err := s.objects.All(ctx)
	if err != nil {
		return 0, err
	}
	count := 0
	kept := map[string]map[string]bool{} // objects that the revisions of a run refer to, by its key
	for name, subj := range names {
		key, ours := s.keyOfObject(name)
		if !ours {
			continue
		}
		// Check the age first: a record that refers to a younger object may be about to
		// be stored.
		written, err := s.objects.Written(ctx, subj)
		if errors.Is(err, natsjs.ErrMsgNotFound) || err == nil && now.TimeStamp.Sub(written) < w.Orphans {
			continue
		}
		if err != nil {
			return count, api.Explain(s.js.Conn(), err, "look at object %s", name)
		}
		if kept[key] == nil {
			if kept[key], err = s.references(ctx, key); err != nil {
				return count, err
			}
		}
		if kept[key][name] {
			continue
		}
		// Chunks that its writer stores meanwhile stay: see storeAgain.
		if err := s.objects.Delete(ctx, name, now.State.LastSeq); err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}

// references returns the objects of a run that its revisions refer to. A revision may also refer
// to an object of another run: any worker can write such a record for its own entity.
// references reads until a replica answers that has the leader's messages: with the answer of a
// replica that lags behind, an object that the run's record needs would be deleted.
func (s *States) references(ctx context.Context, key string) (map[string]bool, error) {
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		newest, err := s.current(ctx, key)
		if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
			return nil, api.Explain(s.js.Conn(), err, "look for references of %s", key)
		}
		if s.denied.Has(leaderGets) {
			return nil, fmt.Errorf("look for references of %s: the leader tells nothing while there is no storage: %w", key, ErrDenied)
		}
		names, seen := map[string]bool{}, uint64(0)
		for m, err := range api.ScanSince(ctx, s.js, s.stream, s.pattern(key), 1, time.Time{}) {
			if err != nil {
				return nil, fmt.Errorf("look for references: %w", err)
			}
			if o, ok := objectOf(m.Header); ok {
				if of, ours := s.keyOfObject(o.Name); ours && of == key {
					names[o.Name] = true
				}
			}
			seen = m.Seq
		}
		switch {
		case seen >= newest.last:
			return names, nil
		case wait > time.Second || !pause.For(ctx, wait):
			return nil, fmt.Errorf("look for references of %s: %w: a replica lags behind", key, ErrUnavailable)
		}
	}
}
