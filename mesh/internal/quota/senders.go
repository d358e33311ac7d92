package quota

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxSenders bounds the senders of one kind, known or unknown, that are counted each
// for itself.
const maxSenders = 8192

// senders remembers what each sender has used of its quota. One that has used nothing
// of late is forgotten first: what is forgotten begins with a full quota, so a sender
// that has used some may not be, or made-up names would give it back. While all have,
// those that are new share one quota.
type senders struct {
	fresh func() *sender
	rest  *sender // of those that are new while there is no place

	mu     sync.Mutex
	byName map[string]*list.Element
	recent list.List // of *sender, the most recent first
}

type sender struct {
	name string
	allowances
	urgent *rate.Limiter // nil: no limit
}

func newSender(perSecond float64, burst int, urgentRate float64) *sender {
	s := &sender{allowances: newAllowances(perSecond, burst)}
	if urgentRate > 0 {
		s.urgent = rate.NewLimiter(rate.Limit(urgentRate), max(1, int(2*urgentRate)))
	}
	return s
}

// idle reports whether a sender has all of its quota.
func (s *sender) idle(now time.Time) bool {
	for _, l := range []*rate.Limiter{s.tasks.live, s.tasks.paced, s.commands.live, s.commands.paced, s.urgent} {
		if l != nil && l.TokensAt(now) < float64(l.Burst()) {
			return false
		}
	}
	return true
}

func (t *senders) init(fresh func() *sender) {
	t.fresh, t.rest, t.byName = fresh, fresh(), map[string]*list.Element{}
}

func (t *senders) get(name string, now time.Time) *sender {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.byName[name]; ok {
		t.recent.MoveToFront(at)
		return at.Value.(*sender)
	}
	if len(t.byName) >= maxSenders && !t.forget(now) {
		return t.rest
	}
	s := t.fresh()
	s.name = name
	t.byName[name] = t.recent.PushFront(s)
	return s
}

// forget makes a place, if it finds a sender that is idle. It looks at a few, the least
// recent ones; those that are not idle it will look at again after all others.
func (t *senders) forget(now time.Time) bool {
	for range 8 {
		at := t.recent.Back()
		if s := at.Value.(*sender); s.idle(now) {
			t.recent.Remove(at)
			delete(t.byName, s.name)
			return true
		}
		t.recent.MoveToFront(at)
	}
	return false
}
