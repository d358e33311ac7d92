package jetstream

import (
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/waited"
	"github.com/nats-io/nats.go"
)

// A source of a lane with a [Notifier] sleeps while its subject holds no messages: it
// has no open request, and a lane whose sources all sleep has no inbox, no timers and no
// goroutine but that of Run. The notifier wakes it.
//
// A source falls asleep in three steps, so that no task is missed: no task came for
// linger and a poll found no messages; the lane subscribes to the source's subject; and a
// poll that was sent after that finds no messages either.

// linger is how long a source stays awake without tasks. To fall asleep and to wake costs
// a few messages to the server.
const linger = 10 * time.Second

// starts puts a source to sleep at the start of Run. Unless the entity is registered, the
// consumer of the normal priority has to exist: it shows that the entity has a durable
// lane ([Queue.Served]).
func (l *Lane) starts(s *source) {
	n := l.opts.Notifier
	s.asked, s.want, s.hot, s.unproven, s.tries, s.mendAt = 0, 0, false, false, 0, time.Time{}
	s.sleepSoon, s.busy, s.subscribedAt, s.emptyAt, s.unheard = false, time.Now(), time.Time{}, time.Time{}, time.Time{}
	s.ready = s.ready && n != nil
	s.ahead = aheadWatch{refused: s.ahead.refused, on: s.ahead.on, blind: s.ahead.blind}
	s.ahead.again(n != nil)
	s.asleep = n != nil && l.maySleep(s) && (l.registered || s.ready || s.spec.Priority != "normal")
	if s.asleep {
		s.become(LaneWorking, nil)
	} else {
		s.become(LaneStarting, nil)
	}
}

// maySleep reports whether the notifier can find the source's messages, and the lane may
// create the source's consumer when they come. l.mu is held.
func (l *Lane) maySleep(s *source) bool {
	n := l.opts.Notifier
	return n != nil && !l.operated && !n.blind[s.watched()].Load()
}

// operate records that this user may not create consumers: then no source sleeps, so that
// the lane's health says what an operator has to do.
func (l *Lane) operate() {
	l.mu.Lock()
	l.operated = true
	l.mu.Unlock()
	l.rouseBlind()
}

func (s *source) watched() int {
	if s.weight == 0 {
		return watchedDue
	}
	return watchedWork
}

// rouse wakes the source of a priority, "" for delayed tasks. It does not block.
func (l *Lane) rouse(priority string) {
	l.rouseIf(func(s *source) bool { return s.spec.Priority == priority })
}

// rouseBlind wakes the sources that may not sleep.
func (l *Lane) rouseBlind() {
	l.rouseIf(func(s *source) bool { return !l.maySleep(s) })
}

func (l *Lane) rouseIf(match func(*source) bool) {
	woken := false
	l.mu.Lock()
	for _, s := range l.sources {
		if !l.stopped && match(s) {
			woken = s.wake() || woken
		}
	}
	l.mu.Unlock()
	if woken {
		pause.Wake(l.mend)
		l.Wake()
	}
}

// wake ends the sleep of a source, and reports whether it slept.
func (s *source) wake() bool {
	slept := s.asleep
	s.asleep, s.sleepSoon = false, false
	if slept {
		s.busy, s.emptyAt = time.Now(), time.Time{}
		s.tries, s.mendAt, s.unheard = 0, time.Time{}, time.Time{}
	}
	return slept
}

// polledEmpty records which sources of a stream a poll found without messages.
func (l *Lane) polledEmpty(stream int, p poll) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		switch {
		case s.watched() != stream:
		case p.held[heldKey{l.entity, s.spec.Priority}]:
			s.emptyAt, s.sleepSoon = time.Time{}, false
		default:
			s.emptyAt = p.began
		}
	}
}

// sleepIdle puts the sources to sleep that have nothing to do, and reports whether all sleep.
func (r *laneRun) sleepIdle() bool {
	r.mu.Lock()
	now, all := time.Now(), true
	for _, s := range r.sources {
		switch {
		case s.asleep:
			continue
		case !r.maySleep(s) || s.state != LaneWorking || now.Sub(s.busy) < r.opts.Notifier.linger || !s.emptyAt.After(s.busy):
			s.sleepSoon = false
		case !s.sleepSoon:
			s.sleepSoon, s.subscribedAt = true, time.Time{} // see subscribeSleeping
		case !s.subscribedAt.IsZero() && s.emptyAt.After(s.subscribedAt):
			s.asleep, s.sleepSoon = true, false
			s.asked, s.want, s.turn, s.hot = 0, 0, 0, false
			s.pending, s.unacked, s.redelivered, s.oldest, s.lag, s.warning = 0, 0, 0, time.Time{}, waited.Looks{}, nil
			continue
		}
		all = false
	}
	r.mu.Unlock()
	r.subscribeSleeping()
	return all
}

// subscribeSleeping subscribes to the subjects of the sources that sleep, or are about to, and to no
// others: the tasks of a busy source come twice to each worker that subscribes to it.
func (l *Lane) subscribeSleeping() {
	n := l.opts.Notifier
	if n == nil {
		return
	}
	l.mu.Lock()
	var want []string
	for _, s := range l.sources[:len(draws)] {
		if s.asleep || s.sleepSoon {
			want = append(want, s.spec.Config.FilterSubject)
		}
	}
	l.mu.Unlock()
	if len(want) == len(draws) {
		if all, err := l.q.m.WorkOf(l.entity); err == nil {
			want = []string{all}
		}
	}
	old := l.wakeSubs
	if slices.EqualFunc(want, old, func(subj string, b wakeSub) bool { return b.subject == subj }) {
		l.noteSubscribed()
		return
	}
	l.wakeSubs = make([]wakeSub, 0, len(want))
	for _, subj := range want {
		if i := slices.IndexFunc(old, func(b wakeSub) bool { return b.subject == subj }); i >= 0 {
			l.wakeSubs = append(l.wakeSubs, old[i])
			continue
		}
		l.wakeSubs = append(l.wakeSubs, wakeSub{subj, n.ring(subj)})
	}
	l.noteSubscribed()
	for _, b := range old { // after the new ones, so that there is no gap
		if !slices.ContainsFunc(l.wakeSubs, func(now wakeSub) bool { return now.subject == b.subject }) {
			b.unsubscribe()
		}
	}
}

// noteSubscribed records when the sources that are about to sleep were subscribed to.
func (l *Lane) noteSubscribed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		if s.sleepSoon && s.subscribedAt.IsZero() {
			s.subscribedAt = time.Now()
		}
	}
}

// unsubscribeAll ends all subscriptions.
func (l *Lane) unsubscribeAll() {
	for _, b := range l.wakeSubs {
		b.unsubscribe()
	}
	l.wakeSubs = nil
}

// A wakeSub is a subscription to the subject of tasks, which wakes a sleeping priority.
type wakeSub struct {
	subject string
	sub     *nats.Subscription // nil: there is none, and the poll has to do
}

func (b wakeSub) unsubscribe() {
	if b.sub != nil {
		_ = b.sub.Unsubscribe() // the connection may be gone
	}
}

// sleeping returns the state of a sleeping source, since when it holds, and its cause: the
// source would receive tasks if there were any, as long as the polls are answered. since is
// when the source began to work.
func (p poll) sleeping(since time.Time) (state LaneState, why error, began time.Time) {
	if p.why != nil {
		return LaneDeaf, p.why, p.since
	}
	if p.since.After(since) {
		since = p.since
	}
	return LaneWorking, nil, since
}
