package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// useJournal adds the mesh's journal and refutations to the configuration of the worker's node. With
// Auto, what does not exist is looked for until it does, or until ctx ends.
func (w *Worker) useJournal(ctx context.Context, js natsjs.JetStream, m subject.Map, cfg *mesh.Config) error {
	use := w.cfg.Journal
	if use == Off {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, use.patience(w.cfg.Wait))
	defer cancel()
	late := &lateJournal{js: js, m: m, wait: w.cfg.Wait, log: w.log}
	entries, refuted, err := late.find(looking)
	switch {
	case use == On && err != nil:
		return &ConfigError{"Journal", err}
	case use == On && !(entries && refuted):
		return &ConfigError{"Journal", ErrNoStreams}
	case entries && refuted:
		cfg.Journal, cfg.Refutations = jetstream.NewJournal(js, m), jetstream.NewRefutations(js, m)
		return nil
	}
	next := late.learn(ctx, entries, refuted, err)
	cfg.Journal, cfg.Refutations = late, &late.refuted
	w.later.Go(jetstream.LookAgain(ctx, js.Conn(), next, nil, late.look))
	return nil
}

// ErrNoStreams is the error of [Config].Journal On in a mesh without the
// journal's streams.
var ErrNoStreams = errors.New("the mesh's streams do not exist")

// lateJournal is the mesh's journal for a worker that finds it, or the mesh's refutations, only after
// its start. Until then it is absent, and the node remembers envelopes in memory.
type lateJournal struct {
	js      natsjs.JetStream
	m       subject.Map
	wait    time.Duration // for an answer
	log     *slog.Logger
	there   atomic.Pointer[jetstream.Journal] // nil: it is not found yet
	refuted lateRefutations

	mu     sync.Mutex // held by a look
	told   bool       // it was logged that something is absent
	pauses pauses
}

// find asks which of the two exist.
func (j *lateJournal) find(ctx context.Context) (entries, refuted bool, err error) {
	plan, err := jetstream.Plan(ctx, j.js, jetstream.Options{Map: j.m, Only: []string{jetstream.StreamJournal, jetstream.BucketRefuted}})
	for _, c := range plan {
		if c.Action == jetstream.ActionCreate || c.Action == jetstream.ActionConflict {
			continue
		}
		entries = entries || c.Name == jetstream.StreamJournal+j.m.Suffix()
		refuted = refuted || c.Name == jetstream.BucketRefuted+j.m.Suffix()
	}
	return entries, refuted, err
}

// look looks for the journal and the refutations once, and returns the pause until the next look; 0:
// none is needed.
func (j *lateJournal) look(ctx context.Context) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.there.Load() != nil && j.refuted.there.Load() != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, j.wait)
	defer cancel()
	entries, refuted, err := j.find(ctx)
	return j.learn(ctx, entries, refuted, err)
}

// learn takes what exists, and returns the pause until the next look.
func (j *lateJournal) learn(ctx context.Context, entries, refuted bool, err error) time.Duration {
	if entries && j.there.Load() == nil {
		j.there.Store(jetstream.NewJournal(j.js, j.m))
	}
	if refuted && j.refuted.there.Load() == nil {
		failed := j.refuted.found(ctx, jetstream.NewRefutations(j.js, j.m))
		refuted, err = failed == nil, errors.Join(err, failed)
	}
	if entries && refuted {
		j.log.Info("the mesh's journal is used from now on")
		return 0
	}
	if err == nil {
		err = fmt.Errorf("%w: %w", ErrNoStreams, jetstream.ErrNotFound)
	}
	if !j.told {
		j.told = true
		j.log.Info("no journal in JetStream; until there is one, envelopes are remembered in memory", "err", err)
	}
	return j.pauses.after(err)
}

// Absent reports whether the journal is not found yet.
func (j *lateJournal) Absent() bool { return j.there.Load() == nil }

func (j *lateJournal) Post(entity, id string, raw []byte) error {
	if there := j.there.Load(); there != nil {
		return there.Post(entity, id, raw)
	}
	return nil
}

func (j *lateJournal) Get(ctx context.Context, entity, id string) ([]byte, error) {
	if there := j.there.Load(); there != nil {
		return there.Get(ctx, entity, id)
	}
	return nil, fmt.Errorf("the journal: %w", jetstream.ErrNotFound)
}

// lateRefutations are the mesh's refutations for a worker that finds them only after its start. What is
// refuted until then is put into them when they are found.
type lateRefutations struct {
	there atomic.Pointer[jetstream.Refutations] // nil: they are not found yet

	mu   sync.Mutex
	held []refutation
}

// A refutation is one that no other worker knows yet.
type refutation struct {
	entity, id string
	record     []byte
}

// maxHeld is how many refutations are held until those of the mesh are found. The node remembers
// further ones in its own memory alone.
const maxHeld = 1024

func (r *lateRefutations) Add(ctx context.Context, entity, id string, record []byte) error {
	if there := r.there.Load(); there != nil {
		return there.Add(ctx, entity, id, record)
	}
	r.mu.Lock()
	there := r.there.Load()
	if there == nil && len(r.held) < maxHeld {
		r.held = append(r.held, refutation{entity, id, record})
	}
	r.mu.Unlock()
	if there != nil { // they were found meanwhile
		return there.Add(ctx, entity, id, record)
	}
	return nil
}

func (r *lateRefutations) List(ctx context.Context, entity, id string) ([][]byte, error) {
	if there := r.there.Load(); there != nil {
		return there.List(ctx, entity, id)
	}
	return nil, fmt.Errorf("the refutations: %w", jetstream.ErrNotFound)
}

// found puts what is held into the mesh's refutations, and uses them from then on. It fails if JetStream
// does not answer.
func (r *lateRefutations) found(ctx context.Context, there *jetstream.Refutations) error {
	for {
		r.mu.Lock()
		if len(r.held) == 0 {
			r.there.Store(there)
			r.mu.Unlock()
			return nil
		}
		next := r.held[0]
		r.mu.Unlock()
		if err := there.Add(ctx, next.entity, next.id, next.record); err != nil && (jetstream.Away(err) || ctx.Err() != nil) {
			return err
		}
		r.mu.Lock()
		r.held = r.held[1:]
		r.mu.Unlock()
	}
}
