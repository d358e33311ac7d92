package mesh

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/aeemesh/aeemesh/envelope"
)

// Quotas are the limits for what one sender may ask of one process, on each lane.
// The live lane refuses a task beyond them with E_RATE_LIMITED; the durable lane,
// whose queue has taken it already, puts it off.
//
// A sender is known when its signature was verified or Known names it; any other
// from is a claim that costs nothing to make (AEE, Security Considerations, "Trust
// Boundaries" and "Denial of Service via Priority Field Abuse").
type Quotas struct {
	// Rate is how many tasks a second one known sender may send, Burst how
	// many at once. 0: no limit.
	Rate  float64
	Burst int
	// UnknownRate and UnknownBurst are for each unknown sender. 0: 1000 a
	// second, 2000 at once; below 0: no limit. All unknown senders together
	// have ten times as much, for a name costs nothing.
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

// maxSenders bounds the memory for senders; the least recent is forgotten.
const maxSenders = 8192

type quotas struct {
	Quotas
	known        map[string]bool
	unknown      *rate.Limiter // of all unknown senders together; nil: no limit
	unknownPaced *rate.Limiter // the same of the durable lane

	mu      sync.Mutex
	senders map[string]*list.Element
	recent  list.List // of *sender, the most recent first
}

type sender struct {
	name   string
	tasks  *rate.Limiter // nil: no limit
	paced  *rate.Limiter // of durable tasks: its debt must not close the live lane
	urgent *rate.Limiter
}

func newQuotas(q Quotas) *quotas {
	if q.UnknownRate == 0 {
		q.UnknownRate, q.UnknownBurst = 1000, 2000
	}
	if q.UrgentRate == 0 {
		q.UrgentRate = 100
	}
	if q.Cap == "" {
		q.Cap = envelope.PriorityUrgent
	}
	if q.UnknownCap == "" {
		q.UnknownCap = envelope.PriorityHigh
	}
	out := &quotas{Quotas: q, known: map[string]bool{}, senders: map[string]*list.Element{}}
	if q.UnknownRate > 0 {
		out.unknown = rate.NewLimiter(rate.Limit(10*q.UnknownRate), max(1, 10*q.UnknownBurst))
		out.unknownPaced = rate.NewLimiter(out.unknown.Limit(), out.unknown.Burst())
	}
	for _, name := range q.Known {
		out.known[name] = true
	}
	return out
}

// admit applies the quotas to an envelope of a sender: it returns the priority
// that e is served with, and E_RATE_LIMITED when the sender is over its rate.
func (q *quotas) admit(e *envelope.Envelope, verified bool, now time.Time) (envelope.Priority, *envelope.Error) {
	known, perSecond, burst := q.allowance(e, verified)
	priority := q.cap(e, e.Priority, verified)
	urgent := q.urgent(priority)
	if perSecond <= 0 && !urgent {
		return priority, nil
	}
	s := q.sender(e.From, known, perSecond, burst)
	if s.tasks != nil && !s.tasks.AllowN(now, 1) {
		wait := time.Duration(float64(time.Second) / perSecond)
		return priority, overRate(e.From, perSecond).WithBackoff(max(wait, 100*time.Millisecond))
	}
	if !known && q.unknown != nil && !q.unknown.AllowN(now, 1) {
		return priority, unknownOverRate(10 * q.UnknownRate).WithBackoff(time.Second)
	}
	if urgent && !s.urgent.AllowN(now, 1) {
		priority = envelope.PriorityNormal
	}
	return priority, nil
}

// pace applies the quotas to a durable task, whose priority is capped already. A
// sender over its rate is not refused: it was told that its task is stored. The
// task is put off, with an E_RATE_LIMITED whose backoff is how long, and its place
// is kept: one that comes again, having waited, is not counted.
func (q *quotas) pace(e *envelope.Envelope, verified, again bool, now time.Time) (envelope.Priority, *envelope.Error) {
	known, perSecond, burst := q.allowance(e, verified)
	urgent := q.urgent(e.Priority)
	if perSecond <= 0 && !urgent {
		return e.Priority, nil
	}
	s := q.sender(e.From, known, perSecond, burst)
	if s.paced != nil && !again {
		if wait := s.paced.ReserveN(now, 1).DelayFrom(now); wait > 0 {
			return e.Priority, overRate(e.From, perSecond).WithBackoff(wait)
		}
		if !known && q.unknownPaced != nil {
			if wait := q.unknownPaced.ReserveN(now, 1).DelayFrom(now); wait > 0 {
				return e.Priority, unknownOverRate(10 * q.UnknownRate).WithBackoff(wait)
			}
		}
	}
	if urgent && !s.urgent.AllowN(now, 1) {
		return envelope.PriorityNormal, nil
	}
	return e.Priority, nil
}

// allowance is the rate of a sender; perSecond 0 or less: no limit.
func (q *quotas) allowance(e *envelope.Envelope, verified bool) (known bool, perSecond float64, burst int) {
	if verified || q.known[e.From] {
		return true, q.Rate, q.Burst
	}
	return false, q.UnknownRate, q.UnknownBurst
}

// cap is the highest priority that a sender gets who asks for one.
func (q *quotas) cap(e *envelope.Envelope, asked envelope.Priority, verified bool) envelope.Priority {
	highest := q.UnknownCap
	if verified || q.known[e.From] {
		highest = q.Cap
	}
	if asked.Rank() < highest.Rank() {
		return highest
	}
	return asked
}

// urgent reports whether a priority is one that UrgentRate limits.
func (q *quotas) urgent(p envelope.Priority) bool {
	return p.Rank() < envelope.PriorityNormal.Rank() && q.UrgentRate > 0
}

func overRate(sender string, perSecond float64) *envelope.Error {
	return envelope.Errorf(envelope.CodeRateLimited, "sender %s is over its quota of %g tasks a second", sender, perSecond)
}

func unknownOverRate(perSecond float64) *envelope.Error {
	return envelope.Errorf(envelope.CodeRateLimited, "unknown senders together are over their quota of %g tasks a second", perSecond)
}

func (q *quotas) sender(name string, known bool, perSecond float64, burst int) *sender {
	if known {
		name = "+" + name // a claim must not eat the quota of the proven
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if at, ok := q.senders[name]; ok {
		q.recent.MoveToFront(at)
		return at.Value.(*sender)
	}
	s := &sender{name: name, urgent: rate.NewLimiter(rate.Limit(q.UrgentRate), max(1, int(2*q.UrgentRate)))}
	if perSecond > 0 {
		s.tasks = rate.NewLimiter(rate.Limit(perSecond), max(1, burst))
		s.paced = rate.NewLimiter(s.tasks.Limit(), s.tasks.Burst())
	}
	q.senders[name] = q.recent.PushFront(s)
	if q.recent.Len() > maxSenders {
		oldest := q.recent.Remove(q.recent.Back()).(*sender)
		delete(q.senders, oldest.name)
	}
	return s
}
