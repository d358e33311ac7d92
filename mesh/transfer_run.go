package mesh

import (
	"errors"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// stopped is a run that has stopped for a transfer, see [migration.Owned].
type stopped struct {
	*transfers
	r *Run
}

// Checkpoint returns the last checkpoint and its revision.
func (s stopped) Checkpoint() (*state.Checkpoint, uint64) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.r.cp.Load(), s.r.rev
}

// Advance writes the next phase of the run's transfer by compare-and-swap.
func (s stopped) Advance(phase state.Phase, change func(*state.Checkpoint) error) error {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observe(PointBeforeMove + Point(phase))
	r.begun = time.Now() // the time of a transfer does not count as running time
	err := r.write(s.ctx, func(c *state.Checkpoint) error {
		run.Advance(c, phase, s.clock.now())
		if change != nil {
			return change(c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.observe(PointAfterMove + Point(phase))
	s.host.log.Info("run transfer: new phase", "run", r.id.Run, "phase", string(phase), "to", r.cp.Load().Mesh.Migration.To)
	return nil
}

// Observe reports a point of the transfer.
func (s stopped) Observe(point string) { s.r.observe(Point(point)) }

// StopCalls cancels the run's open calls in this mesh.
func (s stopped) StopCalls() {
	c, _ := s.Checkpoint()
	s.work.Go(func() { s.host.calls.Stop(c.Mesh.Calls) })
}

// End ends the run with the reply of the platform that has it.
func (s stopped) End(reply *envelope.Envelope, stream int) {
	raw, err := reply.AppendJSON(nil)
	if err != nil {
		s.nakFailed(s.r, err)
		return
	}
	s.end(func(c *state.Checkpoint) error {
		ending := run.Ending{Reply: raw, Target: clip.Text(c.Mesh.Migration.Target, 128), Stream: stream}
		if reply.Type == envelope.TypeError {
			ending.Error = s.r.runError(envelope.ErrorOf(reply), 0)
		}
		run.End(c, ending)
		return nil
	})
}

// Fail ends the run with an error, although its target has not ended it. nil means that the task's
// deadline has passed.
func (s stopped) Fail(problem *envelope.Error) {
	if problem == nil {
		problem = s.r.overdue()
	}
	s.end(func(c *state.Checkpoint) error { return s.r.setEnd(c, nil, problem) })
}

// end writes the end of a run that is on another platform, and publishes its outcome.
func (s stopped) end(change func(*state.Checkpoint) error) {
	r := s.r
	r.mu.Lock()
	if r.end != nil {
		r.mu.Unlock()
		return
	}
	r.observe(PointBeforeTerminal)
	r.begun = time.Now()
	err := r.write(s.ctx, change)
	if err == nil {
		r.wrote = true
		r.observe(PointAfterTerminal)
	}
	lost := errors.Is(err, ErrLost)
	r.stop(ErrLost)
	r.mu.Unlock()
	if lost {
		return
	}
	r.task.claim()
	s.lane.applyVerdict(r, run.Ended, err)
}

// Moved removes a run that another worker has claimed from this worker.
func (s stopped) Moved() {
	s.r.mu.Lock()
	s.r.stop(ErrLost)
	s.r.mu.Unlock()
	s.unlist(s.r)
	s.dropHold(s.r.hold)
}

// Park acks the run's message.
func (s stopped) Park() {
	s.unlist(s.r)
	s.ack(s.r.hold)
	s.r.observe(PointAcked)
	s.lane.waits.CheckSoon(s.r.id.Run) // the answer may have come meanwhile
}

// Resume goes on with the run here.
func (s stopped) Resume() { s.lane.resume(s.r) }

// Requeue naks the run's message, unless the run was lost. err is the error of writing the record,
// nil if this worker stops.
func (s stopped) Requeue(err error) {
	r := s.r
	switch {
	case errors.Is(err, ErrLost):
		return // the target or another worker owns it
	case err != nil:
		s.nakFailed(r, err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return
	}
	r.stop(ErrLost)
	s.unlist(r)
	s.nak(r.hold, 0)
}
