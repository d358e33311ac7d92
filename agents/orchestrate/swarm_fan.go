package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Why the asks of a fan-out that are under way are cancelled.
var (
	errEnough = errors.New("what was needed is there")
	errTooFew = errors.New("too few can still succeed")
	errLate   = errors.New("the time of the swarm's members is over")
)

// fan asks many members at once, at most width, and records what came of each.
//
// Outcomes are committed together where they come together: of n asks some
// sixteen share a commit, unless that would keep one waiting for longer than
// 250 ms, or twenty times as long as the last commit took. So a swarm of a
// thousand does not write its growing document a thousand times, and one of a
// few writes each outcome down at once.
type fan struct {
	*work
	asks  []ask
	width int
	until time.Time              // who has not answered by then has failed
	days  time.Time              // the same of people: how long the agent itself may run has nothing to do with it
	each  func(o *Outcome) error // told of each outcome, also of those that were there; an error ends the fan-out

	// decided, if set, is asked when nobody is out but people, who may take days:
	// true ends the fan-out without them.
	decided func(out int) bool

	room    int64 // for further outputs, in bytes
	running int
	waits   []state.Wait  // of people who are out
	fresh   int           // outcomes that are not committed
	took    time.Duration // the last commit
}

// settled is an ask that has ended. The error says that the run cannot go on.
type settled struct {
	out Outcome
	err error
}

const (
	sharers   = 16 // so many commits for all outcomes of a fan-out
	patience  = 250 * time.Millisecond
	dutyCycle = 20 // of the time, one part is spent on commits
)

func (s *swarm) fan(until time.Time) *fan {
	f := &fan{work: s.work, until: until, days: until, width: s.plan.Extras.Width, each: func(*Outcome) error { return nil }}
	if s.run != nil {
		if due := s.run.View().Mesh.Deadline; due.After(s.task.Deadline) {
			f.days = later(until, due.Add(-reserve(time.Until(due), true)))
		}
	}
	if f.width <= 0 {
		f.width = DefaultWidth
	}
	if !s.plan.Parallel {
		f.width = 1
	}
	return f
}

func (f *fan) add(a ask) { f.asks = append(f.asks, a) }

// run asks all who have no outcome yet. It returns what each returned, when
// those that were under way have ended; they are cancelled then. An error that
// ends the run here is returned as it is, and a [stillOut] when nobody is out but
// people.
func (f *fan) run(ctx context.Context) error {
	f.room = f.opts.MaxOutputs - f.held()
	var todo []ask
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

	done := make(chan settled, len(todo))
	var stopAsking <-chan struct{} // the run is to stop between two steps
	if f.work.run != nil {
		stopAsking = f.work.run.Asked()
	}
	batch := max(1, len(todo)/sharers)
	if !f.plan.Parallel {
		batch = 1 // the next may be sent what this one says
	}
	var due <-chan time.Time
	overdue := false
	var end error
	for len(todo) > 0 && end == nil || f.running > 0 {
		if !isClosed(stopAsking) && end == nil {
			for ; len(todo) > 0 && f.running < f.width; todo = todo[1:] {
				f.running++
				go f.one(inTime, todo[0], done)
			}
		}
		if f.running == 0 { // asked to stop, and nothing is under way
			if err := f.write(ctx, state.StepPause); err != nil {
				return err
			}
			stopAsking = f.work.run.Asked()
			continue
		}
		select {
		case d := <-done:
			f.running--
			if err := f.settle(d, end != nil); err != nil && end == nil {
				end = err
				cancel(err)
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

// people ends a fan-out for those who are still out: they are told if nobody
// waits for them any more.
func (f *fan) people(ctx context.Context, end error) error {
	if len(f.waits) == 0 {
		return end
	}
	if end == nil && f.decided != nil && f.decided(len(f.waits)) {
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

// untimed is how much time a task has for which nobody gave it one: the durable
// lane's default is thirty days.
const untimed = 24 * time.Hour

// one asks one member. A member that is late, or was not reached before the time
// was over, has failed.
func (f *fan) one(ctx context.Context, a ask, done chan<- settled) {
	p := &f.plan.Members[a.who]
	late := func() Outcome {
		return Outcome{Slot: a.slot, Alias: p.Alias, Err: envelope.Errorf(envelope.CodeTimeout, "%s did not answer within the time that the swarm has for its members", p.Alias)}
	}
	a.timeout, a.patient = time.Until(f.until), time.Until(f.days)
	if a.timeout <= 0 {
		done <- settled{out: late()}
		return
	}
	if a.timeout > untimed && p.Extras.TimeoutSeconds == 0 {
		// No deadline, which its task would have, too: it may wait for a person, and is
		// not waited for meanwhile.
		patient, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer time.AfterFunc(f.opts.MemberTime, func() { cancel(errLate) }).Stop()
		ctx = patient
	}
	out, err := f.askOrInstead(ctx, a)
	switch {
	case errors.Is(err, errLate):
		out.Output, out.Err, err = nil, late().Err, nil
		f.broken(&out, a, f.then(p, a))
	case errors.Is(err, errEnough), errors.Is(err, errTooFew):
		out.Output, out.Err = nil, envelope.Errorf(envelope.CodeCancelled, "%s is not needed any more", out.Alias)
		f.broken(&out, a, intents.ThenSkip)
	}
	done <- settled{out, err}
}

// broken tells of an ask that was broken off.
func (f *fan) broken(o *Outcome, a ask, then string) {
	o.MS = millis(time.Since(o.Began))
	f.told(intents.RunStepFailed, o, a, then)
}

// askOrInstead asks a member, and the fallback where it fails and the document
// says so.
func (f *fan) askOrInstead(ctx context.Context, a ask) (Outcome, error) {
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

// settle takes in what came of one ask. What is cancelled because of another's
// outcome has none.
func (f *fan) settle(d settled, ending bool) error {
	var out *mesh.WaitsError
	switch {
	case errors.As(d.err, &out):
		f.waits = append(f.waits, out.Wait)
		return nil
	case d.err != nil && (errors.Is(d.err, errEnough) || errors.Is(d.err, errTooFew)):
		return nil
	case d.err != nil:
		return d.err
	case ending:
		return nil // it came too late to count
	}
	if f.room -= int64(len(d.out.Output)); f.room < 0 {
		d.out.Output = nil
		d.out.Err = envelope.Errorf(envelope.CodeTooLarge, "the outputs of the swarm are more than %d bytes together", f.opts.MaxOutputs)
	}
	f.record(d.out)
	f.fresh++
	return f.each(&d.out)
}

// commitNow writes down what is new, unless that would park the run with asks
// under way: they are waited for.
func (f *fan) commitNow(ctx context.Context, stopAsking <-chan struct{}) error {
	if isClosed(stopAsking) {
		return nil
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

// held is what the outputs that are there take, in bytes.
func (f *fan) held() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.pos.Outcomes {
		n += int64(len(f.pos.Outcomes[i].Output))
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
