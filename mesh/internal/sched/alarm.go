package sched

import "time"

// Alarm is the one timer of many deadlines. They mostly come in order, so it is seldom
// set: a timer for each would cost more than what it guards. Its methods are called under
// its owner's lock, F is not.
type Alarm struct {
	F       func()
	at      time.Time // when it goes off; nothing is due before; zero: not set
	timer   *time.Timer
	stopped bool
}

// Set makes sure that the alarm goes off at deadline, or before.
func (a *Alarm) Set(deadline time.Time) {
	if a.stopped || !a.at.IsZero() && !deadline.Before(a.at) {
		return
	}
	a.at = deadline
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(deadline), a.F)
		return
	}
	a.timer.Reset(time.Until(deadline))
}

// At is when the alarm goes off; zero where it is not set.
func (a *Alarm) At() time.Time { return a.at }

// WentOff is what F calls first: the alarm is not set any more.
func (a *Alarm) WentOff() { a.at = time.Time{} }

// Stop ends it for good.
func (a *Alarm) Stop() {
	a.stopped = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
