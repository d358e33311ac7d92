package mesh

import "time"

// alarm is the one timer of many deadlines. They mostly come in order, so it
// is seldom set: a timer for each would cost more than what it guards. Its
// methods are called under its owner's lock, f is not.
type alarm struct {
	f       func()
	at      time.Time // when it goes off; nothing is due before; zero: not set
	timer   *time.Timer
	stopped bool
}

// set makes sure that the alarm goes off at deadline, or before.
func (a *alarm) set(deadline time.Time) {
	if a.stopped || !a.at.IsZero() && !deadline.Before(a.at) {
		return
	}
	a.at = deadline
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(deadline), a.f)
		return
	}
	a.timer.Reset(time.Until(deadline))
}

// wentOff is what f calls first: the alarm is not set any more.
func (a *alarm) wentOff() { a.at = time.Time{} }

// stop ends it for good.
func (a *alarm) stop() {
	a.stopped = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
