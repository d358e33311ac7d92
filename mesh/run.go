package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/calls"
	"github.com/aeemesh/aeemesh/mesh/internal/share"
	"github.com/aeemesh/aeemesh/mesh/internal/stream"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// Run is a durable task's run while this worker owns it: its checkpoints, one after
// each step. Its methods may be called from many goroutines.
//
// The run's record names the owner. Every write of a Run is a compare-and-swap on the
// revision before it. A worker that lost the run, because its process was suspended or
// cut off for longer than its lease, finds out at its next write and
// can change nothing.
type Run struct {
	task *Task
	lane *lane
	id   state.ID
	hold *hold // the run's message; changed under mu
	// tally is that of its message, also if that is delivered again.
	tally *tally

	// From the message, before the claim.
	stored   *state.Checkpoint // the record of a run that the message resumes
	arrived  *state.Record     // the record, without its data, as it was read when the message arrived
	refusal  *envelope.Error   // why the agent refuses the task
	deadline time.Time         // by the server's clock
	waiting  atomic.Bool       // counted in deliveries.waiting

	// A handler's steps and the mesh's own are written one at a time.
	mu           sync.Mutex
	cp           atomic.Pointer[state.Checkpoint] // as stored; never changed in place. nil: not claimed
	claiming     *state.Checkpoint                // while a claim also captures the run: what its stream is sent for
	rev          uint64                           // of cp; 0: not written, see claim_late.go
	tried        []triedWrite                     // writes since cp that may be stored
	end          error                            // why nothing more may be written: ErrLost, ErrParked
	begun        time.Time                        // of this claim, for running time
	ran          time.Duration                    // before this claim
	dropped      bool                             // its message was acked or nakked before the run began
	claimedEarly bool                             // claimed before it was queued: see lane.resume
	staged       []stagedStep
	applied      int // how many of them the current write has applied
	restored     bool
	recovered    bool                   // claimed from an owner that had not released it
	wrote        bool                   // the run's end was written here
	replied      bool                   // the run's reply is stored beside its record
	answer       *envelope.Envelope     // what setEnd made the reply
	bareReply    *jetstream.Reply       // the reply that endBare stored
	cancelledBy  atomic.Pointer[string] // the id of the command that ends the run; nil: none does
	over         chan struct{}          // closed when that command is carried out, as far as this worker can; see Run.closeOver
	overOnce     sync.Once
	applying     atomic.Pointer[application] // nil: no order is being applied
	dead         string
	parked       aaif.RunStatus // the status it was parked with; "" when it was released
	endWait      func()         // ends the wait of captureAfter; nil: there was none

	delegation *delegation // nil: the task is not delegated
	stream     stream.Stream
	calls      calls.Record
	pendingMu  sync.Mutex
	pending    chan struct{}
	interrupts map[*interrupt]struct{} // to be called while pending is closed
	releasing  atomic.Bool
	checking   atomic.Bool
	// unwritten: begun without a claim, which is still to be written.
	unwritten atomic.Bool
	reserved  share.Reservation
	seen      atomic.Int64 // the lane's age when the store last agreed that the run is ours
}

func newRun(l *lane, t *Task, hold *hold) *Run {
	r := &Run{task: t, lane: l, hold: hold, tally: hold.tally, pending: make(chan struct{})}
	r.id = state.ID{Entity: l.host.Entity, Run: state.RunID(l.host.Entity, t.Envelope.ID)}
	r.stream.Init(l.streams, (*streamedRun)(r))
	t.run, t.priority = taskRun{r}, envelope.Priority(hold.Priority)
	return r
}

// Run returns the durable run of the task, nil on the live lane. A handler without
// steps of its own does not need it: the mesh commits its outcome.
func (t *Task) Run() *Run {
	r, _ := t.run.(taskRun)
	return r.Run
}

// RunDeadline returns when the task's run ends at the latest, by this machine's clock. It may be
// after Deadline, because [Agent].Timeout does not count while a run waits for people.
func (t *Task) RunDeadline() time.Time {
	if t.run == nil {
		return t.Deadline
	}
	return t.host.node.clock.local(t.run.until())
}

// ID returns the run's id, which is derived from the entity and the task's id.
func (r *Run) ID() string { return r.id.Run }

// Epoch is the run's epoch since this worker's claim. A later owner has a higher one; see
// [Run.Claim].
func (r *Run) Epoch() uint64 { return r.cp.Load().Mesh.Epoch }

// Restored reports whether an earlier owner or attempt has worked on the run: View
// shows its progress.
func (r *Run) Restored() bool { return r.restored }

// View returns a copy of the last checkpoint with the staged changes applied.
func (r *Run) View() *state.Checkpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cp.Load().Clone()
	if err := r.applyStaged(c); err != nil {
		return r.cp.Load().Clone() // Commit will say why
	}
	return c
}

// StopRequested returns a channel that is closed when a pause or a transfer of the run is
// requested. A handler in the middle of a long operation that it can resume stops then
// and calls Commit, which parks the run. If the request was withdrawn meanwhile,
// Commit returns nil, and the next call of StopRequested returns a new channel.
func (r *Run) StopRequested() <-chan struct{} {
	r.pendingMu.Lock()
	defer r.pendingMu.Unlock()
	return r.pending
}

// signalPending closes the channel that StopRequested returns if a request is pending, and
// makes a new one if none is pending any more. It calls the interrupts also if the channel was
// closed before: another request may be pending now, for which a call stops.
func (r *Run) signalPending(something bool) {
	r.pendingMu.Lock()
	defer r.pendingMu.Unlock()
	closed := false
	select {
	case <-r.pending:
		closed = true
	default:
	}
	switch {
	case something:
		if !closed {
			close(r.pending)
		}
		for i := range r.interrupts {
			i.call()
		}
	case closed:
		r.pending = make(chan struct{})
	}
}

// interrupt is a function that a stop request calls.
type interrupt struct{ call func() }

// onStopRequest calls f, which must not block, when the channel of StopRequested is closed: at
// once if it is, and with each write while it is, until the returned function is called.
func (r *Run) onStopRequest(f func()) (release func()) {
	i := &interrupt{f}
	r.pendingMu.Lock()
	defer r.pendingMu.Unlock()
	if r.interrupts == nil {
		r.interrupts = map[*interrupt]struct{}{}
	}
	r.interrupts[i] = struct{}{}
	select {
	case <-r.pending:
		f()
	default:
	}
	return func() {
		r.pendingMu.Lock()
		defer r.pendingMu.Unlock()
		delete(r.interrupts, i)
	}
}

// Steering returns the messages that were added for the next turn, oldest first; there are
// none unless [Agent].Steers is set. A handler that adds them to the conversation removes
// them from Mesh.Steering in the same Commit.
func (r *Run) Steering() []state.Steer { return slices.Clone(r.cp.Load().Mesh.Steering) }

// Commit ends a step: it applies change to a copy of the last checkpoint, stores the
// copy, and returns when it is stored. The next step must not begin before. change may
// be nil; it may be called more than once, each time with a fresh copy, and must not
// keep it; an error from it ends Commit, and nothing is written. The mesh manages
// Mesh's fields of ownership, time and streams; the rest belongs to the handler. Told
// (streamed text) is the exception: the handler clears it in the commit that makes the turn part of
// the conversation; for a [state.StepHandler] the mesh does.
//
// While the store does not answer, Commit retries until ctx ends or the worker has stopped. The
// step may be stored then, with the staged ones, which are not applied again. change is, if the
// handler calls Commit with it once more, so such a change sets values and does not append to them.
// Commit fails with [ErrLost] when another worker owns the run, and with [ErrParked] when the run was
// paused, or is released because this worker stops: the step is stored then, and the
// handler returns the error unchanged. A step of kind [state.StepIntent] or
// [state.StepCall] never parks, nor does any while an effect of the ledger is in flight.
func (r *Run) Commit(ctx context.Context, step state.Step, change func(*state.Checkpoint) error) error {
	return r.commit(ctx, step, "", change)
}

// Park is Commit for a run that waits from now on with a status of paused,
// awaiting_approval or migrating. It returns [ErrParked] once that is stored, which
// the handler returns unchanged. The run goes on when it is resumed; answers that it has
// called for do not wake it. A run that parks for an approval and needs such an answer stays in the
// mesh: a pending move out of it is given up.
func (r *Run) Park(ctx context.Context, status aaif.RunStatus, change func(*state.Checkpoint) error) error {
	if !state.Parked(status) {
		return fmt.Errorf("park run %s: %q is no status to wait in", r.id.Run, status)
	}
	kind := state.StepPause
	if status == aaif.RunMigrating {
		kind = state.StepMigrate
	}
	return r.commit(ctx, state.Step{Kind: kind, Detail: string(status)}, status, func(c *state.Checkpoint) error {
		for i := range c.Mesh.Waits {
			c.Mesh.Waits[i].Later = status == aaif.RunAwaitingApproval
		}
		if change != nil {
			if err := change(c); err != nil {
				return err
			}
		}
		if status == aaif.RunAwaitingApproval {
			run.StayForApproval(c, r.lane.clock.now())
		}
		return nil
	})
}

func (r *Run) commit(ctx context.Context, step state.Step, park aaif.RunStatus, change func(*state.Checkpoint) error) error {
	if step.Kind == state.StepHandler && r.task.Streaming() {
		if err := r.stream.EndTurn(false); err != nil {
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
		if err := r.applyStaged(c); err != nil {
			return err
		}
		if change != nil {
			if err := change(c); err != nil {
				return err
			}
		}
		var err error
		if done, err = run.Step(c, step, park, r.lane.draining.Load(), r.lane.clock.now()); err != nil {
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

// release writes a checkpoint that releases the run in the middle of a step: the next
// owner need not wait for the lease, and this claim does not count against MaxClaims.
// r.mu is held.
func (r *Run) release(ctx context.Context) error {
	return r.write(ctx, func(c *state.Checkpoint) error {
		if err := r.applyStaged(c); err != nil {
			return err
		}
		run.Release(c)
		return nil
	})
}

// stop records why the run does not go on here and cancels the handler's context. r.mu
// is held.
func (r *Run) stop(why error) {
	if r.end == nil {
		r.end = why
		cause := lostCause // most runs end so
		if why != ErrLost {
			cause = notHere(why)
		}
		r.task.stop(cause)
	}
}

var lostCause = notHere(ErrLost)

func notHere(why error) *envelope.Error {
	return envelope.Errorf(envelope.CodeUnavailable, "the run does not go on here").WithCause(why)
}

func (r *Run) observe(p Point) { r.lane.cfg.observe(p, r.id) }

// write applies change to a copy of the last checkpoint and stores it. If another
// writer, a command for instance, changed the record and this worker still owns the
// run, the change is applied again to the new record. The end of the lane ends a write, whatever
// ctx is: the lane waits for r.mu. r.mu is held.
func (r *Run) write(ctx context.Context, change func(*state.Checkpoint) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.lane.ctx, func() { cancel(context.Cause(r.lane.ctx)) })()
	streaming := r.task.Streaming()
	if streaming {
		if err := r.stream.Flush(ctx); err != nil {
			return err
		}
	}
	if r.cp.Load().Terminal() {
		return ErrLost // no checkpoint may follow the last one
	}
	for {
		next := r.cp.Load().Clone()
		if streaming {
			r.stream.Save(next)
		}
		told := next.Mesh.Told
		r.calls.KeepSent(next)
		r.calls.RemoveEnded(next) // the change may depend on what is open
		r.applied = 0
		if err := change(next); err != nil {
			return err
		}
		r.calls.RemoveEnded(next)
		r.task.tree.KeepTurns(next)
		next.Mesh.Ran = r.ran + time.Since(r.begun)
		rev, rec, err := r.lane.records.putNoted(ctx, r.id, r.rev, next, jetstream.Note{Corr: r.task.Envelope.Corr})
		if err == nil {
			r.keep(next, rev)
			r.calls.ForgetRemoved(next)
			if streaming {
				r.stream.Saved(told, next.Mesh.Told)
			}
			return nil
		}
		if !errors.Is(err, state.ErrChanged) {
			if !errors.As(err, new(unencodable)) {
				r.tried = append(r.tried, triedWrite{next.Doc.StateID, r.applied})
			}
			return fmt.Errorf("checkpoint of run %s: %w", r.id.Run, err)
		}
		if err := r.resolveConflict(ctx, rec); err != nil {
			return err
		}
	}
}

// keep sets the checkpoint that is stored, at revision rev. r.mu is held.
func (r *Run) keep(c *state.Checkpoint, rev uint64) {
	if r.rev = rev; rev > 0 {
		r.lane.share.Stored(&r.reserved)
	}
	r.unwritten.Store(rev == 0)
	r.cp.Store(c)
	r.tried = nil
	r.seen.Store(int64(r.lane.age()))
	r.signalPending(c.Mesh.Pending != "")
}

// reload makes the record of another writer the current checkpoint, if this worker
// still owns the run; else the run is lost. The record may also be, or follow, a write of this worker
// that was not answered: the staged steps of that one are stored. r.mu is held.
func (r *Run) reload(rec *state.Record) error {
	if rec != nil {
		c, err := r.lane.records.read(*rec)
		if err != nil {
			return fmt.Errorf("checkpoint of run %s: %w", r.id.Run, err)
		}
		if run.Owns(c, r.lane.host.id, r.Epoch()) {
			for _, w := range r.tried { // at most one of them is stored: each compared with the same revision
				if w.in(c) {
					r.staged = r.staged[min(w.staged, len(r.staged)):]
				}
			}
			r.keep(c, rec.Revision)
			return nil
		}
	}
	r.lose()
	return ErrLost
}

// lose records that another worker owns the run. The message is neither acked nor
// nakked: that is for the owner. r.mu is held.
func (r *Run) lose() {
	if r.end == nil {
		r.lane.lost(r)
	}
	r.stop(ErrLost)
}

// verify reads the record and loses the run if another worker owns it.
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
		r.seen.Store(int64(r.lane.age()))
	case err == nil:
		_ = r.resolveConflict(ctx, &rec)
	}
}

// vouchedBy returns the platform that states who sent the run's task, "" if this mesh has verified
// the sender itself; see [state.Mesh.Vouched].
func (r *Run) vouchedBy() string {
	c := r.cp.Load()
	if c == nil {
		c = r.stored
	}
	if c == nil {
		return ""
	}
	return c.Mesh.Vouched()
}
