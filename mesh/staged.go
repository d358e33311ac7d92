package mesh

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

type stagedStep struct {
	step   state.Step
	change func(*state.Checkpoint) error
}

// triedWrite is a write that ended without an answer.
type triedWrite struct {
	stateID string
	staged  int // how many of the staged steps it has applied
}

// in reports whether the checkpoint is this write or follows it. Behind more than six further
// writes it is not recognized.
func (w triedWrite) in(c *state.Checkpoint) bool {
	stored, _ := c.Follows(&state.Checkpoint{Doc: aaif.State{StateID: w.stateID}})
	return stored
}

// Stage ends a step that needs no write of its own: its change is stored with the next
// Commit, call, Park, retry or end of the run, before the change of that one. change may be nil. It
// may be called more than once, and also while the handler still runs: by View, and when a cancel,
// the deadline, a transfer or the end of the drain writes the record. So it must not wait for the
// handler. Staged changes are lost if the worker dies before, and when the run ends or is retried
// although one of them panics or no document can hold them.
func (r *Run) Stage(step state.Step, change func(*state.Checkpoint) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return r.end
	}
	r.staged = append(r.staged, stagedStep{step, change})
	return nil
}

// applyStaged applies the staged changes to the checkpoint c. r.mu is held.
func (r *Run) applyStaged(c *state.Checkpoint) (err error) {
	defer func() {
		if p := recover(); p != nil { // the caller may be a goroutine of the mesh
			err = unencodable{fmt.Errorf("a staged change panicked: %v", p)}
		}
	}()
	for _, s := range r.staged {
		if s.change != nil {
			if err := s.change(c); err != nil {
				return err
			}
		}
		c.Mesh.Step = s.step
	}
	r.applied = len(r.staged)
	return nil
}

// writeOutcome writes the staged changes and change, which ends or retries the run. If one of the
// staged ones panics or no document can hold them, it writes change alone: every later claim would
// do the same work, and fail again. r.mu is held.
func (r *Run) writeOutcome(change func(*state.Checkpoint) error) error {
	err := r.write(r.lane.ctx, func(c *state.Checkpoint) error {
		if err := r.applyStaged(c); err != nil {
			return err
		}
		return change(c)
	})
	if len(r.staged) == 0 || !errors.As(err, new(unencodable)) {
		return err
	}
	e := r.task.Envelope
	r.lane.host.log.Error("staged steps left out: no document can hold them", "run", r.id.Run, "id", e.ID, "corr", e.Corr, "err", err)
	r.staged = nil
	return r.write(r.lane.ctx, change)
}
