package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// The causes with which running calls of a fan-out are cancelled.
var (
	errEnough = errors.New("enough members have answered")
	errTooFew = errors.New("too few can still succeed")
	errLate   = errors.New("the time of the swarm's members is over")
)

// fan calls many members, at most width at the same time, and records their
// outcomes.
//
// Outcomes share commits: of n outcomes about n/16 are committed together, but none waits for
// longer than 250 ms, or twenty times the duration of the last commit. So a swarm of a thousand
// does not write its growing document a thousand times, and a swarm of a few commits each outcome
// at once.
type fan struct {
	*work
	asks  []memberCall
	width int
	until time.Time              // the deadline of the members
	days  time.Time              // the deadline of people, which may lie after the agent's own deadline
	each  func(o *Outcome) error // called with each outcome, also with those known before; an error ends the fan-out

	// decided, if set, is called when only people have not answered, and no member waits for its turn.
	// If it returns true, the fan-out ends without them, because people may take days.
	decided func() bool

	// inTurn: no member begins while the answer to an earlier one is missing, even if the answer may
	// take days.
	inTurn bool
	behind int // number of members that wait for their turn

	room    int64 // bytes left for further outputs and errors
	running int
	halts   chan halt
	halted  map[int]halt  // running calls that wait for the others to end, by slot
	waits   []state.Wait  // the answers of people that are still missing
	fresh   int           // number of outcomes that are not committed
	took    time.Duration // the duration of the last commit
}

// halt is a call that was interrupted because the run was asked to stop. A commit would park the
// run, and the work of members on the live lane would be lost, so the call waits for them.
type halt struct {
	slot int
	done chan struct{} // closed if the run continues after all
}

// pause waits until the run has stopped, or continues after all. ctx is the fan-out's, not the call's: the
// answer of a member may be there when the members' time ends, but it is not read while the run is to stop.
func (f *fan) pause(ctx context.Context, slot int) error {
	h := halt{slot, make(chan struct{})}
	select {
	case f.halts <- h:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// memberOutcome is the result of a call. An error means that the run cannot continue.
type memberOutcome struct {
	out Outcome
	err error
}

const (
	sharers   = 16 // the number of commits for all outcomes of a fan-out
	patience  = 250 * time.Millisecond
	dutyCycle = 20 // at most one part in so many of the time is spent on commits
)

// fan makes the fan-out of a stage. others reports whether judges or a merge may follow, which take
// time.
func (s *swarm) fan(stage string, others bool) *fan {
	until := s.task.Deadline.Add(-s.keep(stage, s.left(), others))
	f := &fan{work: s.work, until: until, days: until, width: s.plan.Extras.Width, each: func(*Outcome) error { return nil }, halts: make(chan halt), halted: map[int]halt{}}
	if due := s.task.RunDeadline(); due.After(s.task.Deadline) {
		f.days = later(until, due.Add(-s.keep(stage+"_people", time.Until(due), true)))
	}
	if f.width <= 0 {
		f.width = DefaultWidth
	}
	if !s.plan.Parallel {
		f.width = 1
	}
	return f
}

func (f *fan) add(a memberCall) {
	f.asks = append(f.asks, a)
}

// run calls all members that have no outcome yet. It returns when all calls have ended; when the
// fan-out ends early, the running calls are cancelled. An error that ends the run on this worker is
// returned unchanged. If only people have not answered, it returns a [stillOut].
func (f *fan) run(ctx context.Context) error {
	f.room = f.opts.MaxOutputs - f.held()
	var todo []memberCall
	for _, a := range f.asks {
		o := f.ended(a.slot)
		if o == nil {
			todo = append(todo, a)
		} else if err := f.each(o); err != nil {
			return err
		}
	}
	if len(todo) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	inTime, stop := context.WithDeadlineCause(ctx, f.until, errLate)
	defer stop()

	done := make(chan memberOutcome, len(todo))
	var stopAsking <-chan struct{} // closed when the run must stop between two steps
	if f.work.run != nil {
		stopAsking = f.work.run.StopRequested()
	}
	batch := max(1, len(todo)/sharers)
	if !f.plan.Parallel {
		batch = 1 // the input of the next member may contain this output
	}
	var due <-chan time.Time
	overdue := false
	var end error
	for len(todo) > 0 && end == nil || f.running > 0 {
		if !isClosed(stopAsking) && len(f.halted) == 0 && end == nil {
			for ; len(todo) > 0 && f.running < f.width; todo = todo[1:] {
				f.running++
				a := todo[0]
				a.pause = func(context.Context) error { return f.pause(ctx, a.slot) }
				go f.one(inTime, a, done)
			}
		}
		if f.running == len(f.halted) && end == nil { // asked to stop, and no call is running
			if end = f.write(ctx, state.StepPause); end != nil {
				cancel(end)
				continue
			}
			for slot, h := range f.halted {
				close(h.done)
				delete(f.halted, slot)
			}
			stopAsking = f.work.run.StopRequested()
			continue
		}
		select {
		case h := <-f.halts:
			f.halted[h.slot] = h
		case d := <-done:
			f.running--
			delete(f.halted, d.out.Slot)
			if err := f.recordOutcome(d, end != nil); err != nil && end == nil {
				end = err
				cancel(err)
			}
			if f.inTurn && len(f.waits) > 0 {
				todo = f.begunOf(todo)
			}
		case <-due:
			due, overdue = nil, true
		}
		switch {
		case end != nil || f.fresh == 0:
			due = nil
		case overdue || f.fresh >= batch && len(done) == 0:
			due, overdue = nil, false
			if err := f.commitNow(ctx, stopAsking); err != nil {
				end = err
				cancel(err)
			}
		case due == nil:
			due = time.After(max(patience, dutyCycle*f.took))
		}
	}
	return f.people(ctx, end)
}

// begunOf returns the calls that the run has sent before, in this attempt at its task. An earlier
// release did not wait for the answers of people before it called the next member.
func (f *fan) begunOf(todo []memberCall) (begun []memberCall) {
	m := f.work.run.View().Mesh
	for _, a := range todo {
		mine := func(key, id string) bool {
			return (key == a.key || strings.HasPrefix(key, a.key+"/")) && id == f.task.CallID(key)
		}
		if slices.ContainsFunc(m.Calls, func(c state.Call) bool { return mine(c.Key, c.ID) }) ||
			slices.ContainsFunc(m.Waits, func(w state.Wait) bool { return mine(w.Key, w.TaskID) }) {
			begun = append(begun, a)
		} else {
			f.behind++
		}
	}
	return begun
}

// people ends a fan-out in which people have not answered yet. If their answers are not needed any
// more, it withdraws their tasks.
func (f *fan) people(ctx context.Context, end error) error {
	if len(f.waits) == 0 {
		return end
	}
	if end == nil && f.behind == 0 && f.decided != nil && f.decided() {
		end = errEnough
	}
	switch {
	case end == nil:
		return &stillOut{f.waits}
	case errors.Is(end, errEnough), errors.Is(end, errTooFew):
		for _, w := range f.waits {
			f.task.Withdraw(context.WithoutCancel(ctx), w.Key, end.Error())
		}
	}
	return end
}

// unanswered returns the number of members that have no outcome. In a sequence a person without
// timeout_seconds has an equal share of the time that is left for them when the question is sent; the
// run keeps the time of a question that was sent. Without shares nothing would be left for the members
// after a person who does not answer.
func (f *fan) unanswered() (n int) {
	for _, a := range f.asks {
		if f.ended(a.slot) == nil {
			n++
		}
	}
	return n
}

// untimed is the timeout above which a task counts as having none, because the durable lane's
// default is thirty days.
const untimed = 24 * time.Hour

// one calls one member. A member that has not answered by the deadline of the members, or could not
// be called before it, has failed; there is no time for a fallback then.
func (f *fan) one(ctx context.Context, a memberCall, done chan<- memberOutcome) {
	p := &f.plan.Members[a.member]
	late := func() Outcome {
		return Outcome{Slot: a.slot, Alias: p.Alias, Err: envelope.Errorf(envelope.CodeTimeout, "%s did not answer within the time that the swarm has for its members", p.Alias)}
	}
	a.timeout, a.people = time.Until(f.until), f.days
	if f.inTurn {
		a.share = f.unanswered()
	}
	if a.timeout <= 0 {
		done <- memberOutcome{out: late()}
		return
	}
	if a.timeout > untimed {
		a.silent = f.opts.MemberTime
	}
	out, err := f.askOrInstead(ctx, a)
	switch {
	case errors.Is(err, errLate):
		out.Output, out.Err, err = nil, late().Err, nil
		f.publishBroken(&out, a, f.afterFailure(p, a))
	case errors.Is(err, errEnough), errors.Is(err, errTooFew):
		out.Output, out.Err = nil, envelope.Errorf(envelope.CodeCancelled, "%s is not needed any more", out.Alias)
		f.publishBroken(&out, a, intents.ThenSkip)
	}
	done <- memberOutcome{out, err}
}

// publishBroken publishes a cancelled call.
func (f *fan) publishBroken(o *Outcome, a memberCall, then string) {
	o.MS = millis(time.Since(o.Began))
	f.publishStep(intents.RunStepFailed, o, a, then)
}

// askOrInstead calls a member. If the member fails, it calls the fallback, if the document says so.
func (f *fan) askOrInstead(ctx context.Context, a memberCall) (Outcome, error) {
	out, err := f.ask(ctx, a)
	if err != nil || out.OK() || a.plain {
		return out, err
	}
	a.key += "/fallback"
	slot, alias := out.Slot, out.Alias
	out, err = f.instead(ctx, out, a)
	out.Slot, out.Alias = slot, alias
	return out, err
}

// recordOutcome records the outcome of a call. A call that was cancelled because of another
// member's outcome has none.
func (f *fan) recordOutcome(d memberOutcome, ending bool) error {
	var out *mesh.PendingError
	switch {
	case errors.As(d.err, &out):
		f.waits = append(f.waits, out.Wait)
		return nil
	case d.err != nil && (errors.Is(d.err, errEnough) || errors.Is(d.err, errTooFew)):
		return nil
	case d.err != nil:
		return d.err
	case ending:
		return nil // too late to count
	}
	if d.out.Err != nil {
		d.out.Err = f.bounded(d.out.Err)
	} else if size := int64(len(d.out.Output)); size <= max(f.room, 0) {
		f.room -= size
	} else {
		d.out.Output = nil
		d.out.Err = envelope.Errorf(envelope.CodeTooLarge, "the outputs of the swarm are more than %d bytes together", f.opts.MaxOutputs)
	}
	f.record(d.out)
	f.fresh++
	return f.each(&d.out)
}

// bounded returns an error as it is stored: if it takes more than one part in sixteen of the room, so that
// errors leave room for outputs, without its details, and with the beginning of its message.
func (f *fan) bounded(e *envelope.Error) *envelope.Error {
	if size := int64(len(e.Payload())); size <= f.room/16 {
		f.room -= size
		return e
	}
	return short(e)
}

// short returns an error without its details, and with the beginning of its message.
func short(e *envelope.Error) *envelope.Error {
	c := *e
	c.Details, c.EvidenceRefs, c.Message = nil, nil, clip.Cut(c.Message, maxReason)
	return &c
}

// commitNow commits the new outcomes. While calls are running it does not park the run, because
// live calls would be lost: before a stop, the fan-out waits for them. It commits the outcomes then,
// too, because the worker may not live until they have ended.
func (f *fan) commitNow(ctx context.Context, stopAsking <-chan struct{}) error {
	switch {
	case f.running > len(f.halted):
		return f.write(ctx, state.StepCall)
	case isClosed(stopAsking) || len(f.halted) > 0:
		return nil // run commits what is left
	}
	return f.write(ctx, state.StepTeam)
}

func (f *fan) write(ctx context.Context, kind state.StepKind) error {
	begun := time.Now()
	step := stepTeam("swarm", fmt.Sprintf("%d more have ended", f.fresh), 0)
	step.Kind = kind
	if err := f.commit(ctx, step); err != nil {
		return err
	}
	f.took, f.fresh = time.Since(begun), 0
	return nil
}

// held returns the size of the outputs and errors so far, in bytes.
func (f *fan) held() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.pos.Outcomes {
		o := &f.pos.Outcomes[i]
		if n += int64(len(o.Output)); o.Err != nil {
			n += int64(len(o.Err.Payload()))
		}
	}
	return n
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
