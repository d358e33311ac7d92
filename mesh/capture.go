package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// captured prepares a checkpoint for a transfer: the run is stopped, and the checkpoint
// holds all text that was sent to the task's sender. This worker sends no more text. r.mu
// is held.
func (r *Run) captured(c *state.Checkpoint) error {
	if r.task.Streaming() {
		if err := r.stream.Seal(r.lane.ctx); err != nil {
			return err
		}
		r.stream.Save(c)
	}
	run.Capture(c, r.lane.host.id, uuid.NewString(), r.lane.clock.now())
	return nil
}

// captureAfter captures the run while its handler still runs, if the handler has not stopped
// within wait; with 0 it does nothing. A running tool call is transferred too, and settled at the
// target as after a crash. captureAfter replaces the wait of an earlier transfer. r.mu is held.
func (r *Run) captureAfter(wait time.Duration) {
	if r.endWait != nil {
		r.endWait()
		r.endWait = nil
	}
	if wait <= 0 {
		return
	}
	l := r.lane
	ctx, cancel := context.WithCancel(l.ctx)
	r.endWait = cancel
	l.work.Go(func() { // beside the handler
		defer cancel()
		defer context.AfterFunc(r.task.context(), cancel)() // the run has ended, or moved
		if !pause.For(ctx, wait) {
			return
		}
		r.mu.Lock()
		if r.end != nil || ctx.Err() != nil {
			r.mu.Unlock()
			return
		}
		err := r.write(l.ctx, func(c *state.Checkpoint) error {
			if err := r.applyStaged(c); err != nil {
				return err
			}
			if !run.CaptureNow(c) {
				return errUnchanged
			}
			return r.captured(c)
		})
		if err == nil {
			r.parked = aaif.RunMigrating
			r.stop(ErrParked)
		}
		r.mu.Unlock()
		if err == nil {
			l.releaseParked(r, ErrParked)
		} else if !errors.Is(err, ErrLost) && !errors.Is(err, errUnchanged) {
			l.host.log.Warn("run not captured", "run", r.id.Run, "err", err)
		}
	})
}
