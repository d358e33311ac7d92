package mesh

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/aeemesh/aeemesh/envelope"
)

// Quotas are the limits for what one sender may ask of one process. A sender
// is known when its signature was verified or Known names it; any other from
// is a claim that costs nothing to make (AEE, Security Considerations, "Trust
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
	known   map[string]bool
	unknown *rate.Limiter // of all unknown senders together; nil: no limit

	mu      sync.Mutex
	senders map[string]*list.Element
	recent  list.List // of *sender, the most recent first
}

type sender struct {
	name   string
	tasks  *rate.Limiter // nil: no limit
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
	}
	for _, name := range q.Known {
		out.known[name] = true
	}
	return out
}

// admit applies the quotas to an envelope of a sender: it returns the priority
// that e is served with, and E_RATE_LIMITED when the sender is over its rate.
func (q *quotas) admit(e *envelope.Envelope, verified bool, now time.Time) (envelope.Priority, *envelope.Error) {
	known := verified || q.known[e.From]
	highest, perSecond, burst := q.Cap, q.Rate, q.Burst
	if !known {
		highest, perSecond, burst = q.UnknownCap, q.UnknownRate, q.UnknownBurst
	}
	priority := e.Priority
	if priority.Rank() < highest.Rank() {
		priority = highest
	}
	urgent := priority.Rank() < envelope.PriorityNormal.Rank() && q.UrgentRate > 0
	if perSecond <= 0 && !urgent {
		return priority, nil
	}
	s := q.sender(e.From, known, perSecond, burst)
	if s.tasks != nil && !s.tasks.AllowN(now, 1) {
		wait := time.Duration(float64(time.Second) / perSecond)
		return priority, envelope.Errorf(envelope.CodeRateLimited, "sender %s is over its quota of %g tasks a second", e.From, perSecond).WithBackoff(max(wait, 100*time.Millisecond))
	}
	if !known && q.unknown != nil && !q.unknown.AllowN(now, 1) {
		return priority, envelope.Errorf(envelope.CodeRateLimited, "unknown senders together are over their quota of %g tasks a second", 10*q.UnknownRate).WithBackoff(time.Second)
	}
	if urgent && !s.urgent.AllowN(now, 1) {
		priority = envelope.PriorityNormal
	}
	return priority, nil
}

// cap is the priority that a durable task is served with. Its sender has no
// rate: the queue takes what comes, and workers take from it what they can do.
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
	}
	q.senders[name] = q.recent.PushFront(s)
	if q.recent.Len() > maxSenders {
		oldest := q.recent.Remove(q.recent.Back()).(*sender)
		delete(q.senders, oldest.name)
	}
	return s
}
