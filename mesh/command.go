package mesh

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/orders"
	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// commands applies orders to the runs of a lane's entity: to those that this worker owns, to
// stored ones, and to tasks that have not begun.
type commands struct {
	*holdings
	lane    *lane
	replies *replyWriter
	notes   orders.Notes
}

// orderFor returns the order in the form in which package run applies it to the run of
// t.
func (cs *commands) orderFor(ctx context.Context, o *orders.Order, t *Task) *run.Order {
	one := o.Order
	if o.Intent == intents.TaskMigrate {
		handed, _, _ := t.readHanded()
		one.MoveID, one.Denied = uuid.NewString(), cs.lane.transfers.mover.Allow(&o.Order, handed != nil)
		if one.Denied == nil && run.ToWorker(&one) {
			one.Absent = cs.present(ctx, one.To)
		}
	}
	return &one
}

// read reads the order of a command.
func (cs *commands) read(env *envelope.Envelope, keyID string, signed bool) (*orders.Order, error) {
	o, err := orders.New(env, keyID, signed)
	if err == nil && !cs.host.Steers {
		o.Unread = envelope.Errorf(envelope.CodeDenied, "%s cannot be steered: no model of its own works on its tasks, and nothing else reads the message", cs.host.Entity)
	}
	return o, err
}

// present returns an error if no worker of the agent has this instance id: then a run does
// not stop to be moved there. A worker that is connected and does not answer counts as
// present.
func (cs *commands) present(ctx context.Context, instance string) error {
	if instance == cs.host.id {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probe.Wait)
	defer cancel()
	if probe.InstanceID.RE().MatchString(instance) && !errors.Is(cs.host.node.prober.Ping(ctx, cs.host.Entity, instance), nats.ErrNoResponders) {
		return nil
	}
	return envelope.Errorf(envelope.CodeNotFound, "there is no worker %s of %s", clip.Text(instance, 128), cs.host.Entity)
}

// mayCommand reports whether an entity may command a task: the task's sender, the
// agent itself, or an operator. A task whose signature was verified accepts signed
// commands only: task ids are public, and an unsigned from proves nothing. caller is the sender that
// the command names, "" if it names none.
func (cs *commands) mayCommand(from, caller string, signed bool, t *Task) bool {
	if t.KeyID != "" && !signed || caller != "" && caller != t.Envelope.From {
		return false
	}
	return from == t.Envelope.From || from == cs.host.Entity || cs.host.operator(from)
}

// command applies a command to the runs that this worker owns, else to stored runs
// that no worker owns. A worker answers if it found a run, or has ended a live task; a worker that
// found none answers only a command that names a durable task by its id, with E_NOT_FOUND.
// A cancel has ended the handlers of this worker's runs when command returns.
func (l *lane) command(t *Task, signed, found bool, answer func(json.RawMessage)) (look func()) {
	h := l.host
	o, err := l.commands.read(t.Envelope, t.KeyID, signed)
	if err != nil {
		h.fail(t, err)
		return nil
	}
	o.Unbound = t.forMesh(h.node.cfg.Prefix, signed) != nil
	live := !o.Durable
	if live && h.Async && o.Intent == intents.TaskCancel && o.RunID(h.Entity) != "" {
		o.Durable = true // noted: a live task that was moved to the queue may have no record yet
	}
	stopped := l.commands.stop(o)
	return func() {
		ctx, cancel := context.WithTimeout(h.taskScope, sched.LookTimeout)
		defer cancel()
		out := l.commands.apply(ctx, o, found, false, stopped...)
		for wait := 5 * time.Millisecond; out.Between && wait < 300*time.Millisecond && pause.For(ctx, wait); wait *= 2 {
			out = l.commands.apply(ctx, o, found, false).After(out)
		}
		if found { // a live task has ended: the answer says so, whatever happens to the durable ones
			out.Found, out.Done, out.Silent, out.Between, out.Refused = true, true, false, false, nil
		}
		none := !out.Found
		switch { // where no worker answers, the sender puts the command into the queue
		case out.Silent, out.Between && !out.Done, none && live:
		case none && (out.Refused == nil || out.Refused.Retryable) && o.RunID(h.Entity) == "": // another worker may be about to write the run's first record, or be able to read it
		case out.Refused != nil:
			h.fail(t, out.Refused)
		case none:
			h.fail(t, orders.NoSuchRun())
		default:
			answer(o.Result(out))
		}
	}
}

// apply applies an order to the run that it names, if this worker owns it or no worker does, and
// it was not found elsewhere. An order that names a corr is applied to all such runs. alone: see
// applyStored; stopped: see stop.
func (cs *commands) apply(ctx context.Context, o *orders.Order, found, alone bool, stopped ...*Run) orders.Outcome {
	out, known := cs.applyRunning(ctx, o, stopped)
	if out.Silent || o.RunID(cs.host.Entity) != "" && (out.Found || found || out.Refused != nil) {
		return out
	}
	stored := cs.applyStored(ctx, o, alone, known)
	if !out.Found && out.Refused == nil {
		return stored
	}
	refused := cmp.Or(out.Refused, stored.Refused)
	out = out.After(stored)
	if out.Done && refused != nil && !refused.Retryable && refused.Code != envelope.CodeInternal {
		refused = nil // the answer names the runs that obeyed; the others may not be commanded
	}
	out.Between, out.Refused = stored.Between, refused
	return out
}

// applyRunning applies an order to the runs that this worker owns, and returns the ids of those
// to which it was applied or does not apply. Silent says that it is not stored yet. A cancel has
// ended the handlers of stopped.
func (cs *commands) applyRunning(ctx context.Context, o *orders.Order, stopped []*Run) (out orders.Outcome, known []string) {
	runs, refused := cs.reached(o)
	out.Refused = refused
	if o.Intent == intents.TaskCancel {
		for _, r := range append(stopped, cancelAll(runs, o)...) {
			if r.cancelled(ctx, o) {
				known = append(known, r.id.Run)
				out.Did(r.id.Run, string(aaif.RunFailed))
			} else if ctx.Err() != nil {
				out.Silent = true
			}
		}
		return out, known
	}
	for _, r := range runs {
		if r.cp.Load() == nil {
			continue // not claimed yet: applyStored applies the command to the run's record
		}
		done, err := r.applyWithin(ctx, o)
		var problem *envelope.Error
		switch {
		case err == nil && (done.Do == run.Applied || done.Do == run.Already):
			known = append(known, r.id.Run)
			out.Did(r.id.Run, done.Status)
		case err == nil:
			known = append(known, r.id.Run)
			out.Found, out.Status = true, done.Status
		case errors.Is(err, errUnwritten):
			out.Silent = true
		case errors.Is(err, ErrLost), errors.Is(err, ErrParked):
		case errors.As(err, &problem):
			known = append(known, r.id.Run)
			out.Found, out.Refused = true, problem
		default:
			cs.host.log.Warn("command not applied", "command", o.Intent, "run", r.id.Run, "err", err)
		}
	}
	return out, known
}

// reached returns the runs of this worker that an order names and may command, and why it may not
// command others.
func (cs *commands) reached(o *orders.Order) (runs []*Run, refused *envelope.Error) {
	for _, t := range cs.host.running.Matching(func(t *Task) bool {
		return t.run != nil && o.Names(t.Envelope.ID, t.Envelope.Corr, t.run.ID())
	}) {
		switch r := t.Run(); {
		case !cs.mayCommand(o.From, o.Caller, o.Signed, t):
			refused = o.MayNot()
		case !o.MayReach(r.cp.Load()) && !o.MayReach(r.stored):
			refused = orders.Unbound()
		default:
			runs = append(runs, r)
		}
	}
	return runs, refused
}

// stop ends the handlers of the runs that a cancel names, and returns these runs. It needs no
// store, and so does not wait where other commands do.
func (cs *commands) stop(o *orders.Order) []*Run {
	if o.Intent != intents.TaskCancel {
		return nil
	}
	runs, _ := cs.reached(o)
	return cancelAll(runs, o)
}

// cancelAll ends runs, and returns those that were not ending or parking already.
func cancelAll(runs []*Run, o *orders.Order) []*Run {
	return slices.DeleteFunc(runs, func(r *Run) bool { return !r.cancel(o) })
}

// errUnchanged ends a write that would change nothing.
var errUnchanged = errors.New("nothing has changed")

// cancel ends the run. It reports false if the run is ending or parking already: its record will
// show the result.
func (r *Run) cancel(o *orders.Order) bool {
	if !r.task.claim() {
		return false
	}
	cause := run.Cancelled(o.From, o.Reason)
	r.cancelledBy.Store(&o.Envelope)
	r.over = make(chan struct{})
	r.task.stop(cause)
	r.lane.host.failed(r.task, cause)
	return true
}

// cancelled waits until the record says that the run was cancelled, and reports whether it does.
// If this worker dies before that, the run goes on. cancelled returns false if ctx ends first, or
// if the run parks or is lost.
func (r *Run) cancelled(ctx context.Context, o *orders.Order) bool {
	select {
	case <-r.over:
	case <-ctx.Done():
	}
	c := r.cp.Load()
	return c != nil && c.Terminal() && slices.Contains(c.Mesh.Commands, o.Envelope)
}

// errUnwritten: whether an order was applied is not stored in time.
var errUnwritten = errors.New("the record of the run cannot be written for now")

// application is the application of one order to a run.
type application struct {
	out  run.Commanded
	err  error
	done chan struct{} // closed when out and err are set
	late chan struct{} // closed when it is not waited for any more
}

// applyWithin applies an order, other than a cancel, to a run of this worker. It returns
// errUnwritten if ctx ends before that is stored; it is stored later, and if the order comes again,
// it was applied. As long as one order is so late, no further ones are accepted.
func (r *Run) applyWithin(ctx context.Context, o *orders.Order) (run.Commanded, error) {
	mine := &application{done: make(chan struct{}), late: make(chan struct{})}
	for !r.applying.CompareAndSwap(nil, mine) {
		other := r.applying.Load()
		if other == nil {
			continue
		}
		select {
		case <-other.done:
		case <-other.late:
			return run.Commanded{}, errUnwritten
		case <-ctx.Done():
			return run.Commanded{}, errUnwritten
		}
	}
	l := r.lane
	l.work.Go(func() {
		defer close(mine.done)
		defer r.applying.Store(nil)
		mine.out, mine.err = r.applyCommand(l.ctx, o)
	})
	select {
	case <-mine.done:
		return mine.out, mine.err
	case <-ctx.Done():
		close(mine.late)
		return run.Commanded{}, errUnwritten
	}
}

// applyCommand applies an order, other than a cancel, to a run of this worker.
func (r *Run) applyCommand(ctx context.Context, o *orders.Order) (out run.Commanded, err error) {
	one := r.lane.commands.orderFor(ctx, o, r.task)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return out, r.end
	}
	err = r.write(ctx, func(c *state.Checkpoint) (err error) {
		if out, err = run.Command(c, one, run.Here, r.lane.clock.now()); err == nil && out.Do != run.Applied {
			err = errUnchanged
		}
		return err
	})
	if errors.Is(err, errUnchanged) {
		return out, nil
	}
	if err == nil && out.Asked {
		r.captureAfter(time.Duration(min(o.WaitMS, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond)
	}
	return out, err
}
