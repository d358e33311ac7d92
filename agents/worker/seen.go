package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh"
)

// A WindowError says that the mesh keeps the ids of envelopes for a shorter time
// than this worker has to remember them: an older envelope could come again.
type WindowError struct {
	Want, Kept time.Duration
}

func (e *WindowError) Error() string {
	return fmt.Sprintf("ids have to be remembered for %v (ReplayWindow, or twice the Skew), and the mesh's bucket keeps them for %v", e.Want, e.Kept)
}

// useSeen adds the mesh's replay window to the configuration of the worker's node. With
// Auto, a bucket that does not exist or does not answer is looked for until it does, or until ctx
// ends.
func (w *Worker) useSeen(ctx context.Context, js natsjs.JetStream, m subject.Map, cfg *mesh.Config) error {
	use := w.cfg.Replay
	if use == Off || cfg.ReplayWindow <= 0 {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, use.patience(w.cfg.Wait))
	defer cancel()
	ids := seen.New(js, m, cfg.ReplayWindow)
	bound, age, err := ids.Bound(asking)
	switch {
	case err != nil && use == Auto:
		late := &lateSeen{conn: js.Conn(), window: ids, length: cfg.ReplayWindow, insists: cfg.Verifier.Mode == sign.Required, wait: w.cfg.Wait, log: w.log,
			wake: make(chan struct{}, 1), expected: true}
		next := late.learn(ctx, bound, age, err)
		cfg.Seen = late
		w.later.Go(jetstream.LookAgain(ctx, js.Conn(), next, late.wake, func(ctx context.Context) time.Duration { return late.look(ctx, false) }))
		return nil
	case err != nil:
		return &ConfigError{"Replay", err}
	case bound > 0 && cfg.ReplayWindow > bound:
		return &ConfigError{"Replay", &WindowError{cfg.ReplayWindow, bound}}
	}
	cfg.Seen, cfg.SeenUnsigned = datedSeen{ids, recordedSince(age)}, use == On
	return nil
}

// datedSeen is the mesh's replay window for a worker that finds it at its start.
type datedSeen struct {
	*seen.Window
	since time.Time
}

// KeepsSince returns the time from which on the workers of the mesh record claims.
func (s datedSeen) KeepsSince() time.Time { return s.since }

// recordedSince returns the time from which on the workers of the mesh record claims, if the bucket has
// an age: those that were there before it look for it every laneInterval.
func recordedSince(age time.Duration) time.Time { return time.Now().Add(2*laneInterval - age) }

// overheard reports whether a request that gets no answer may have reached a program that subscribes
// to ">", and no JetStream: the server has none, and a request to a subject of no service gets no
// answer either, not even that there are no responders.
func overheard(ctx context.Context, nc *nats.Conn) bool {
	if has, _ := nc.ConnectedServerJetStream(); has || !nc.IsConnected() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, autoWait)
	defer cancel()
	subj := nuid.Next() + "." + nuid.Next()
	ctx, stop := denial.Until(ctx, nc, func(d denial.Denial) error {
		if d.Is(denial.Publish, subj) {
			return d.Err
		}
		return nil
	})
	defer stop()
	_, err := nc.RequestWithContext(ctx, subj, nil)
	return err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// lateSeen is the mesh's replay window for a worker that learns only after its start whether
// the mesh has one. Where there is none it treats every id as new, and only the worker's own
// memory detects replays. While that is unknown it fails, and the node refuses tasks if it
// requires signatures.
type lateSeen struct {
	conn    *nats.Conn
	window  *seen.Window
	length  time.Duration // of the window
	insists bool          // signatures are required
	wait    time.Duration // for an answer
	log     *slog.Logger
	known   atomic.Pointer[seenState] // nil: the mesh has no replay window
	wake    chan struct{}             // the next look is due
	since   atomic.Pointer[time.Time] // of KeepsSince; nil: none yet

	mu       sync.Mutex // held by a look
	settled  bool       // the bucket need not be looked for any more
	expected bool       // nothing says that there is no bucket
	told     bool       // it was logged that there is none: claims were not recorded
	pauses   pauses
}

// seenState is what a worker knows of the mesh's replay window: that it answers, or err, why it
// cannot be used.
type seenState struct{ err error }

func (s *lateSeen) Claim(ctx context.Context, entity, id, by string) (holder string, err error) {
	switch known := s.known.Load(); {
	case known == nil:
		return by, nil
	case known.err != nil:
		return "", fmt.Errorf("the bucket of ids: %w: %w", jetstream.ErrUnavailable, known.err)
	}
	return s.window.Claim(ctx, entity, id, by)
}

// KeepsSince returns the time from which on the workers of the mesh record claims, see recordedSince; if
// this one did not record all its claims, not before a minute after it has found the bucket. It is zero
// until then.
func (s *lateSeen) KeepsSince() time.Time {
	if since := s.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// look looks for the bucket once, and returns the pause until the next look; 0: none is needed.
// laneCame says that the durable lane has just come, so that a bucket is to be expected.
func (s *lateSeen) look(ctx context.Context, laneCame bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled {
		return 0
	}
	if laneCame {
		s.expected, s.pauses = true, pauses{}
		pause.Wake(s.wake)
	}
	asking, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	bound, age, err := s.window.Bound(asking)
	return s.learn(ctx, bound, age, err)
}

// learn takes an answer of the bucket, and returns the pause until the next look.
func (s *lateSeen) learn(ctx context.Context, bound, age time.Duration, err error) time.Duration {
	before := s.known.Load()
	switch {
	case err == nil && bound > 0 && s.length > bound:
		err = &WindowError{s.length, bound}
		s.log.Warn("the mesh's replay window cannot be used", "err", err)
		var known *seenState
		if s.insists {
			known = &seenState{err}
		}
		s.known.Store(known)
		s.settled = true
		return 0
	case err == nil:
		if s.told {
			age = 0 // this worker may have moved a task without a record just now
		}
		since := recordedSince(age)
		s.since.Store(&since)
		s.known.Store(new(seenState))
		level := slog.LevelInfo
		if before != nil { // it was a warning that this was not known
			level = slog.LevelWarn
		}
		s.log.Log(ctx, level, "the mesh's replay window is used from now on")
		s.settled = true
		return 0
	case absent(err) || overheard(ctx, s.conn):
		s.known.Store(nil)
		s.expected = s.expected && !absent(err) // where it is overheard, JetStream may be on another server
		if !s.told {
			s.told = true
			s.log.Info("ids are remembered by this process alone, until the mesh has a bucket for them", "err", err)
		}
	case s.expected && ctx.Err() == nil:
		if s.known.Store(&seenState{err}); before == nil {
			s.log.Warn("it is not known whether the mesh has a replay window: it is asked again", "err", err)
		}
	}
	return s.pauses.after(err)
}
