package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// Run is a durable task's run while this worker owns it: its checkpoints, one
// after each step. Its methods may be called from many goroutines.
//
// Whoever holds the record's last revision owns the run. Every write of a Run
// is a compare-and-swap on the revision before it, so a worker that lost the
// run, because it was paused or cut off for longer than its lease, finds out at
// its next write and can change nothing.
type Run struct {
	task *Task
	lane *lane
	id   state.ID
	hold *hold // the message that carries it; changed under mu

	// From the message, before the claim.
	stored   *state.Checkpoint // where the message says that a run goes on
	refusal  *envelope.Error   // why the task cannot be done
	deadline time.Time         // by the server's clock
	waiting  atomic.Bool       // drawn, and not begun

	// A handler's steps and the mesh's own are written one at a time.
	mu           sync.Mutex
	cp           atomic.Pointer[state.Checkpoint] // as stored; never changed in place. nil: not claimed
	rev          uint64                           // of cp; 0: it is not written, see claim_late.go
	tried        []string                         // state ids of first writes that may be stored
	end          error                            // why nothing more may be written: ErrLost, ErrParked
	begun        time.Time                        // of this claim, for running time
	ran          time.Duration                    // before it
	dropped      bool                             // its message is dealt with, though it never began
	claimedEarly bool                             // claimed before it was queued: see lane.goOn
	staged       []stagedStep
	restored     bool
	recovered    bool // from an owner that did not let go
	wrote        bool // the run's end was written here
	dead         string
	parked       aaif.RunStatus // how it was parked; "" when it is handed on

	sent       sentTasks
	delegation *delegation // to whom it is handed on; nil: it is not
	stream     durableStream
	calls      calls
	pendingMu  sync.Mutex
	pending    chan struct{}
	releasing  atomic.Bool
	checking   atomic.Bool
	// unwritten: begun without a claim, which is still to be written.
	unwritten atomic.Bool
	reserved  atomic.Int64 // bytes that [share] expects it to take
	seen      atomic.Int64 // when the store last agreed that the run is ours, in Unix nanoseconds
}

type stagedStep struct {
	step   state.Step
	change func(*state.Checkpoint) error
}

func newRun(l *lane, t *Task, hold *hold) *Run {
	r := &Run{task: t, lane: l, hold: hold, pending: make(chan struct{})}
	r.id = state.ID{Entity: l.host.Entity, Run: state.RunID(l.host.Entity, t.Envelope.ID)}
	r.stream.r = r
	t.run = r
	return r
}

// Run is the durable run of the task, nil on the live lane. A handler that has
// no steps of its own needs it not: the mesh commits its outcome.
func (t *Task) Run() *Run { return t.run }

// ID is the run's id, which follows from the entity and the task's id.
func (r *Run) ID() string { return r.id.Run }

// Epoch counts the owners of the run, this one included; see [Run.Claim].
func (r *Run) Epoch() uint64 { return r.cp.Load().Mesh.Epoch }

// Restored reports whether another owner, or an earlier attempt, has worked on
// the run before: View tells how far it came.
func (r *Run) Restored() bool { return r.restored }

// View is a copy of the last checkpoint, with what was staged since.
func (r *Run) View() *state.Checkpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cp.Load().Clone()
	if err := r.stagedOn(c); err != nil {
		return r.cp.Load().Clone() // Commit will say why
	}
	return c
}

// Asked is closed as soon as somebody has asked for a pause or a move of the
// run. A handler that is in the middle of something long, and can take it up
// again, stops it then and calls Commit, which parks. If the wish was taken back
// meanwhile Commit returns nil, and the next call of Asked another channel.
func (r *Run) Asked() <-chan struct{} {
	r.pendingMu.Lock()
	defer r.pendingMu.Unlock()
	return r.pending
}

// signalPending closes the channel that Asked returns, or makes a new one where nothing is
// asked any more.
func (r *Run) signalPending(something bool) {
	r.pendingMu.Lock()
	defer r.pendingMu.Unlock()
	select {
	case <-r.pending:
		if !something {
			r.pending = make(chan struct{})
		}
	default:
		if something {
			close(r.pending)
		}
	}
}

// Steering are the messages that were put in for the next turn, oldest first.
// Whoever makes them part of the conversation takes them out of Mesh.Steering in
// the same Commit.
func (r *Run) Steering() []state.Steer { return slices.Clone(r.cp.Load().Mesh.Steering) }

// Stage ends a step whose checkpoint is not worth a write of its own: the change
// is made with the next Commit, Park, retry or the end of the run, before the
// change of that one. What was staged is lost with the worker.
func (r *Run) Stage(step state.Step, change func(*state.Checkpoint) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return r.end
	}
	r.staged = append(r.staged, stagedStep{step, change})
	return nil
}

// stagedOn makes the staged changes to c. r.mu is held.
func (r *Run) stagedOn(c *state.Checkpoint) error {
	for _, s := range r.staged {
		if err := s.change(c); err != nil {
			return err
		}
		c.Mesh.Step = s.step
	}
	return nil
}

// Commit ends a step: it writes a checkpoint with what change makes of the last
// one, and returns when it is stored. The next step must not begin before.
// change may be nil; it may be called more than once, each time with a fresh
// copy, and must not keep it; an error from it ends Commit, and nothing is
// written. Mesh's fields of ownership, time and streams are the mesh's to keep;
// the rest is the handler's. Told is the exception: the handler clears it in the
// commit that makes the turn part of the conversation; for a [state.StepHandler]
// the mesh does.
//
// Where the store does not answer, Commit goes on trying until ctx ends. It
// fails with [ErrLost] when another worker owns the run, and with [ErrParked]
// when the run was paused, or is handed on because this worker stops: the step
// is stored then, and the handler returns the error as it is. A step of kind
// [state.StepIntent] never parks, nor does any while an effect of the ledger is
// in flight.
func (r *Run) Commit(ctx context.Context, step state.Step, change func(*state.Checkpoint) error) error {
	return r.commit(ctx, step, "", change)
}

// Park is Commit for a run that waits from now on: paused, awaiting_approval or
// migrating. It returns [ErrParked], which the handler returns as it is, once
// that is stored; the run goes on when somebody resumes it.
func (r *Run) Park(ctx context.Context, status aaif.RunStatus, change func(*state.Checkpoint) error) error {
	if !state.Parked(status) {
		return fmt.Errorf("park run %s: %q is no status to wait in", r.id.Run, status)
	}
	kind := state.StepPause
	if status == aaif.RunMigrating {
		kind = state.StepMigrate
	}
	return r.commit(ctx, state.Step{Kind: kind, Detail: string(status)}, status, change)
}

func (r *Run) commit(ctx context.Context, step state.Step, park aaif.RunStatus, change func(*state.Checkpoint) error) error {
	if step.Kind == state.StepHandler && r.task.Streaming() {
		if err := r.stream.endTurn(false); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return r.end
	}
	r.observe(PointBeforeCommit)
	var done run.Stepped
	err := r.write(ctx, func(c *state.Checkpoint) error {
		if err := r.stagedOn(c); err != nil {
			return err
		}
		if change != nil {
			if err := change(c); err != nil {
				return err
			}
		}
		var err error
		if done, err = run.Step(c, step, park, r.lane.draining.Load()); err != nil {
			return fmt.Errorf("commit of run %s: %w", r.id.Run, err)
		}
		if done.Capture {
			return r.captured(c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.staged = nil

	r.observe(PointAfterCommit)
	if done.Stop {
		r.parked = done.Status
		r.stop(ErrParked)
		return ErrParked
	}
	return nil
}

// release gives a run up in the middle of a step: the next owner need not take it by
// force, and this claim does not count. r.mu is held.
func (r *Run) release(ctx context.Context) error {
	return r.write(ctx, func(c *state.Checkpoint) error {
		if err := r.stagedOn(c); err != nil {
			return err
		}
		run.Release(c)
		return nil
	})
}

// stop ends the run for its handler. r.mu is held.
func (r *Run) stop(why error) {
	if r.end == nil {
		r.end = why
		r.task.stop(envelope.Errorf(envelope.CodeUnavailable, "the run does not go on here").WithCause(why))
	}
}

// ended is why nothing more may be written, nil while the run goes on.
func (r *Run) ended() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end
}

// appendEvent writes what events tell of a run beyond what they tell of a task.
func (r *Run) appendEvent(b []byte) []byte {
	b = append(b, `,"run":`...)
	b = envelope.AppendString(b, r.id.Run)
	if c := r.cp.Load(); c != nil {
		b = append(b, `,"epoch":`...)
		b = strconv.AppendUint(b, c.Mesh.Epoch, 10)
		b = append(b, `,"attempt":`...)
		b = strconv.AppendInt(b, int64(c.Mesh.Attempt)+1, 10)
		if state.Parked(c.Doc.Status) {
			b = append(b, `,"status":`...)
			b = envelope.AppendString(b, string(c.Doc.Status))
		}
	}
	return b
}

func (r *Run) observe(p Point) { r.lane.observe(p, r.id) }

// write stores what change makes of the last checkpoint. Where somebody else
// has written meanwhile, a command for instance, and the run is still ours, the
// change is made again on top of that. r.mu is held.
func (r *Run) write(ctx context.Context, change func(*state.Checkpoint) error) error {
	streaming := r.task.Streaming()
	if streaming {
		if err := r.stream.flush(ctx); err != nil {
			return err
		}
	}
	if r.cp.Load().Terminal() {
		return ErrLost // nothing follows the end, whoever wrote it
	}
	for {
		next := r.cp.Load().Clone()
		if streaming {
			r.stream.save(next)
		}
		told := next.Mesh.Told
		r.sent.keep(next)
		if err := change(next); err != nil {
			return err
		}
		r.calls.takeOut(next)
		r.task.turns.keep(next)
		next.Mesh.Ran = r.ran + time.Since(r.begun)
		rev, rec, err := r.lane.put(ctx, r.id, r.rev, next)
		if err == nil {
			r.keep(next, rev)
			r.calls.takenOut(next)
			if streaming {
				r.stream.saved(told, next.Mesh.Told)
			}
			return nil
		}
		if !errors.Is(err, state.ErrChanged) {
			if r.rev == 0 {
				r.tried = append(r.tried, next.Doc.StateID)
			}
			return fmt.Errorf("checkpoint of run %s: %w", r.id.Run, err)
		}
		if err := r.resolveConflict(ctx, rec); err != nil {
			return err
		}
	}
}

// keep remembers a checkpoint as the one that is stored. r.mu is held.
func (r *Run) keep(c *state.Checkpoint, rev uint64) {
	if r.rev = rev; rev > 0 {
		r.lane.share.stored(r)
	}
	r.unwritten.Store(rev == 0)
	r.cp.Store(c)
	r.seen.Store(time.Now().UnixNano())
	r.signalPending(c.Mesh.Want != "")
}

// reload takes over what somebody else has written, if it left the run with us.
// r.mu is held.
func (r *Run) reload(rec *state.Record) error {
	if rec != nil {
		c, err := r.lane.codec.Read(*rec)
		if err != nil {
			return fmt.Errorf("checkpoint of run %s: %w", r.id.Run, err)
		}
		if run.Owns(c, r.lane.host.id, r.Epoch()) {
			r.keep(c, rec.Revision)
			return nil
		}
	}
	r.lose()
	return ErrLost
}

// lose gives a run up that belongs to somebody else. Its message is neither
// acknowledged nor given back: that is for the one who owns it. r.mu is held.
func (r *Run) lose() {
	if r.end == nil {
		r.lane.lost(r)
	}
	r.stop(ErrLost)
}

// verify asks the store whether the run is still ours, and gives it up if not.
func (r *Run) verify(ctx context.Context) {
	if r.checking.Swap(true) {
		return
	}
	defer r.checking.Store(false)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil || r.cp.Load() == nil {
		return
	}
	rec, err := r.lane.cfg.States.Get(ctx, r.id)
	switch {
	case errors.Is(err, state.ErrNotFound) && r.rev > 0:
		r.lose()
	case errors.Is(err, state.ErrNotFound), err == nil && rec.Revision == r.rev:
		r.seen.Store(time.Now().UnixNano())
	case err == nil:
		_ = r.resolveConflict(ctx, &rec)
	}
}
