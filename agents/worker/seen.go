package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// useSeen adds the mesh's replay window to the configuration of the worker's
// node, if its bucket exists. If the bucket does not answer now, it is asked until
// it does, or until ctx ends.
func (w *Worker) useSeen(ctx context.Context, js natsjs.JetStream, m subject.Map, cfg *mesh.Config) error {
	use := w.cfg.Replay
	if use == Off || cfg.ReplayWindow <= 0 {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, use.patience(w.cfg.Wait))
	defer cancel()
	ids := seen.New(js, m, cfg.ReplayWindow)
	bound, err := ids.Bound(asking)
	switch {
	case err != nil && use == Auto && noSeen(err):
		w.log.Info("ids are remembered by this process alone", "err", err)
		return nil
	case err != nil && use == Auto:
		late := w.newLateSeen(js.Conn(), ids, cfg)
		late.learn(ctx, bound, err)
		cfg.Seen = late
		w.later.Go(func() { late.ask(ctx) })
		return nil
	case err != nil:
		return &ConfigError{"Replay", err}
	case bound > 0 && cfg.ReplayWindow > bound:
		return &ConfigError{"Replay", &WindowError{cfg.ReplayWindow, bound}}
	}
	cfg.Seen, cfg.SeenUnsigned = ids, use == On
	return nil
}

// noSeen reports whether an error of the bucket of ids means that the worker has none. After
// any other error it may have one.
func noSeen(err error) bool {
	return errors.Is(err, jetstream.ErrNotFound) || jetstream.Off(err) || errors.Is(err, jetstream.ErrDenied) && !jetstream.Away(err)
}

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
	heard   bool                      // it was logged that a program listens to all
}

// seenState is what a worker knows of the mesh's replay window: that it answers, or err, why it
// cannot be used.
type seenState struct{ err error }

func (w *Worker) newLateSeen(conn *nats.Conn, window *seen.Window, cfg *mesh.Config) *lateSeen {
	return &lateSeen{conn: conn, window: window, length: cfg.ReplayWindow, insists: cfg.Verifier.Mode == sign.Required, wait: w.cfg.Wait, log: w.log}
}

func (s *lateSeen) Claim(ctx context.Context, entity, id, by string) (holder string, err error) {
	switch known := s.known.Load(); {
	case known == nil:
		return by, nil
	case known.err != nil:
		return "", fmt.Errorf("the bucket of ids: %w: %w", jetstream.ErrUnavailable, known.err)
	}
	return s.window.Claim(ctx, entity, id, by)
}

// ask asks for the bucket, with growing pauses, until learn has learnt what it needs.
func (s *lateSeen) ask(ctx context.Context) {
	for next := time.Second / 4; pause.For(ctx, next); next = min(2*next, laneInterval) {
		if s.look(ctx) {
			return
		}
	}
}

// look asks for the bucket once. It reports whether it need not be asked again.
func (s *lateSeen) look(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	bound, err := s.window.Bound(asking)
	return s.learn(ctx, bound, err)
}

// learn takes an answer of the bucket. It reports whether the bucket need not be asked again.
func (s *lateSeen) learn(ctx context.Context, bound time.Duration, err error) bool {
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
		return true
	case err == nil:
		s.known.Store(new(seenState))
		if before != nil {
			s.log.Warn("the mesh's replay window is used from now on")
		}
		return true
	case noSeen(err):
		s.known.Store(nil)
		s.log.Info("ids are remembered by this process alone", "err", err)
		return true
	case overheard(ctx, s.conn): // asked again all the same: JetStream may be on another server
		s.known.Store(nil)
		if !s.heard {
			s.heard = true
			s.log.Info("ids are remembered by this process alone, until JetStream answers", "err", err)
		}
		return false
	}
	if s.known.Store(&seenState{err}); before == nil {
		s.log.Warn("it is not known whether the mesh has a replay window: it is asked again", "err", err)
	}
	return false
}
