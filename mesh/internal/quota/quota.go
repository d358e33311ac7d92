package quota

import (
	"cmp"
	"time"

	"golang.org/x/time/rate"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// Limits are what one sender may ask of one process, on each lane.
// The live lane refuses a task beyond them with E_RATE_LIMITED; the durable lane,
// whose queue has taken it already, puts it off.
//
// A sender is known when its signature was verified or Known names it; any other
// from is a claim that costs nothing to make (AEE, Security Considerations, "Trust
// Boundaries" and "Denial of Service via Priority Field Abuse").
type Limits struct {
	// Rate is how many tasks a second one known sender may send, Burst how
	// many at once. 0: no limit. It may send as many commands besides.
	Rate  float64
	Burst int
	// UnknownRate and UnknownBurst are for each unknown sender. 0: 1000 a
	// second, 2000 at once; below 0: no limit. All unknown senders together
	// have ten times as much, for a name costs nothing. As many commands
	// besides.
	UnknownRate  float64
	UnknownBurst int
	// UrgentRate is how many tasks a second of one sender may keep
	// priority high or urgent; those beyond are served as normal. 0: 100;
	// below 0: no limit.
	UrgentRate float64
	// Cap is the highest priority for known senders, UnknownCap for
	// unknown ones. Default urgent and high.
	Cap        envelope.Priority
	UnknownCap envelope.Priority
	// Known names senders that count as known although they do not sign.
	Known []string
}

// Table counts what senders send, and holds it to their limits.
type Table struct {
	limits Limits
	named  map[string]bool // Known

	// Claims cannot push out the proven: each kind has a table of its own.
	proven, claimed senders
	// unknown is for all unknown senders together.
	unknown allowances
}

// allowances are what may be sent of each kind. Commands have one of their own, so that
// a sender over its quota of tasks can still end them.
type allowances struct{ tasks, commands allowance }

func newAllowances(perSecond float64, burst int) allowances {
	return allowances{newAllowance(perSecond, burst), newAllowance(perSecond, burst)}
}

// of is the allowance that an envelope counts against.
func (a *allowances) of(e *envelope.Envelope) *allowance {
	if intents.IsCommand(e.Intent) {
		return &a.commands
	}
	return &a.tasks
}

// An allowance has a limiter for each lane: the debt of the durable one must not close
// the live one. They are nil where there is no limit.
type allowance struct{ live, paced *rate.Limiter }

func newAllowance(perSecond float64, burst int) (a allowance) {
	if perSecond > 0 {
		a.live = rate.NewLimiter(rate.Limit(perSecond), max(1, burst))
		a.paced = rate.NewLimiter(a.live.Limit(), a.live.Burst())
	}
	return a
}

// allow takes one now, if there is one.
func (a *allowance) allow(now time.Time) bool { return a.live == nil || a.live.AllowN(now, 1) }

// wait takes the next one, and returns how long it is until then.
func (a *allowance) wait(now time.Time) time.Duration {
	if a.paced == nil {
		return 0
	}
	return a.paced.ReserveN(now, 1).DelayFrom(now)
}

// New makes a table; see [Limits] for the defaults.
func New(q Limits) *Table {
	q.UnknownRate, q.UnknownBurst = cmp.Or(q.UnknownRate, 1000), cmp.Or(q.UnknownBurst, 2000)
	q.UrgentRate = cmp.Or(q.UrgentRate, 100)
	q.Cap = cmp.Or(q.Cap, envelope.PriorityUrgent)
	q.UnknownCap = cmp.Or(q.UnknownCap, envelope.PriorityHigh)
	out := &Table{limits: q, named: map[string]bool{}, unknown: newAllowances(10*q.UnknownRate, 10*q.UnknownBurst)}
	out.proven.init(func() *sender { return newSender(q.Rate, q.Burst, q.UrgentRate) })
	out.claimed.init(func() *sender { return newSender(q.UnknownRate, q.UnknownBurst, q.UrgentRate) })
	for _, name := range q.Known {
		out.named[name] = true
	}
	return out
}

// Admit applies the quotas to an envelope of a sender: it returns the priority
// that e is served with, and E_RATE_LIMITED when the sender is over its rate.
func (q *Table) Admit(e *envelope.Envelope, verified bool, now time.Time) (envelope.Priority, *envelope.Error) {
	known, perSecond := q.rate(e, verified)
	priority := q.Cap(e, e.Priority, verified)
	urgent := q.urgent(e, priority)
	if perSecond <= 0 && !urgent {
		return priority, nil
	}
	s := q.sender(e, known, now)
	if !s.of(e).allow(now) {
		wait := time.Duration(float64(time.Second) / perSecond)
		return priority, q.over(e, s, perSecond).WithBackoff(max(wait, 100*time.Millisecond))
	}
	if !known && !q.unknown.of(e).allow(now) {
		return priority, q.over(e, nil, 10*q.limits.UnknownRate).WithBackoff(time.Second)
	}
	if urgent && !s.urgent.AllowN(now, 1) {
		priority = envelope.PriorityNormal
	}
	return priority, nil
}

// pace applies the quotas to a message of the durable lane, whose priority is capped already. It
// does not refuse a task over its sender's rate, because the sender knows that the task is stored:
// it returns E_RATE_LIMITED, whose backoff says how long to delay the task. The delayed task was
// counted, so it is not counted again when it is redelivered (again).
func (q *Table) pace(e *envelope.Envelope, verified, again bool, now time.Time) (envelope.Priority, *envelope.Error) {
	known, perSecond := q.rate(e, verified)
	urgent := q.urgent(e, e.Priority)
	if perSecond <= 0 && !urgent {
		return e.Priority, nil
	}
	s := q.sender(e, known, now)
	if !again {
		if wait := s.of(e).wait(now); wait > 0 {
			return e.Priority, q.over(e, s, perSecond).WithBackoff(wait)
		}
		if !known {
			if wait := q.unknown.of(e).wait(now); wait > 0 {
				return e.Priority, q.over(e, nil, 10*q.limits.UnknownRate).WithBackoff(wait)
			}
		}
	}
	if urgent && !s.urgent.AllowN(now, 1) {
		return envelope.PriorityNormal, nil
	}
	return e.Priority, nil
}

// atOnce reports whether the sender of a message of the durable lane is within its rate now, and
// counts the message if it is.
func (q *Table) atOnce(e *envelope.Envelope, verified bool, now time.Time) bool {
	known, perSecond := q.rate(e, verified)
	return perSecond <= 0 || q.sender(e, known, now).of(e).paced.AllowN(now, 1) && (known || q.unknown.of(e).paced.AllowN(now, 1))
}

func (q *Table) known(e *envelope.Envelope, verified bool) bool { return verified || q.named[e.From] }

// rate is that of a sender; perSecond 0 or less: no limit.
func (q *Table) rate(e *envelope.Envelope, verified bool) (known bool, perSecond float64) {
	if q.known(e, verified) {
		return true, q.limits.Rate
	}
	return false, q.limits.UnknownRate
}

func (q *Table) sender(e *envelope.Envelope, known bool, now time.Time) *sender {
	if known {
		return q.proven.get(e.From, now)
	}
	return q.claimed.get(e.From, now)
}

// Cap is the highest priority that a sender gets who asks for one.
func (q *Table) Cap(e *envelope.Envelope, asked envelope.Priority, verified bool) envelope.Priority {
	highest := q.limits.UnknownCap
	if q.known(e, verified) {
		highest = q.limits.Cap
	}
	if asked.Rank() < highest.Rank() {
		return highest
	}
	return asked
}

// urgent reports whether an envelope's priority is one that UrgentRate limits.
// Commands are urgent by nature.
func (q *Table) urgent(e *envelope.Envelope, p envelope.Priority) bool {
	return p.Rank() < envelope.PriorityNormal.Rank() && q.limits.UrgentRate > 0 && !intents.IsCommand(e.Intent)
}

// over says who is over which quota; s is nil for all unknown senders together.
func (q *Table) over(e *envelope.Envelope, s *sender, perSecond float64) *envelope.Error {
	kind, is := "tasks", "is over its"
	if intents.IsCommand(e.Intent) {
		kind = "commands"
	}
	who := "sender " + e.From
	switch s {
	case nil:
		who, is = "unknown senders together", "are over their"
	case q.proven.rest, q.claimed.rest:
		who += ", with all others that are new,"
	}
	return envelope.Errorf(envelope.CodeRateLimited, "%s %s quota of %g %s a second", who, is, perSecond, kind)
}
