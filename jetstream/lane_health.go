package jetstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A LaneState says whether a lane receives tasks.
type LaneState string

// The states of a lane, and of each of its parts.
const (
	LaneStopped  LaneState = "stopped"  // it is not running
	LaneStarting LaneState = "starting" // it looks up its consumers
	LaneWorking  LaneState = "working"  // it receives tasks if there are any
	LanePaused   LaneState = "paused"   // the consumer is paused (`nats consumer pause`)
	LaneDeaf     LaneState = "deaf"     // it cannot receive tasks; it tries to recover
	LaneDegraded LaneState = "degraded" // of the whole lane: some of its consumers do not work
)

// LaneHealth says whether a lane receives tasks, and how far it lags behind.
type LaneHealth struct {
	Entity string
	State  LaneState
	Reason string    // the cause; "" if all is well. It names all missing consumers
	Err    error     // the first cause, for errors.Is
	Since  time.Time // the beginning of the state

	Pending     int       // tasks that were never delivered
	Unacked     int       // tasks that were delivered and not acknowledged
	Redelivered int       // those of Unacked that were delivered more than once
	Oldest      time.Time // when the oldest of Pending was stored; zero if there are none

	Parts []LanePart // by priority, the most urgent first, then the delayed tasks
}

// A LanePart is one consumer of a lane.
type LanePart struct {
	Priority string // "" for delayed tasks that fall due
	Consumer string
	State    LaneState
	Reason   string
	Err      error
	Since    time.Time

	// Asleep: the priority has no tasks, and the lane keeps no request open for them. Its
	// consumer need not exist, and is not looked at: State says whether the lane learns
	// when tasks come.
	Asleep bool

	// Numbers of the consumer, for all workers of the entity, as of Looked. Looked is
	// zero if the lane has not read them yet.
	Pending, Unacked, Redelivered int
	Oldest, Looked                time.Time
}

// Health returns the state of the lane. It does no I/O: while the server answers, the
// numbers are at most [LaneOptions.Check] old.
func (l *Lane) Health() LaneHealth {
	var polled [watchedStreams]poll
	if n := l.opts.Notifier; n != nil {
		for stream := range polled {
			polled[stream] = n.last(stream)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := LaneHealth{Entity: l.entity}
	states := map[LaneState]int{}
	var missing []string // missing consumers, except one that is named as the first cause
	for _, s := range l.sources {
		state, why, began := s.state, s.why, s.since
		if s.asleep && !l.stopped {
			state, why, began = polled[s.watched()].sleeping(s.since)
		}
		switch {
		case why != nil:
		case s.weight == 0 && l.delayedErr != nil:
			why = l.delayedErr
		default:
			why = s.warning
		}
		p := LanePart{
			Priority: s.spec.Priority, Consumer: s.stream + "/" + s.consumer, State: state, Err: why, Since: began, Asleep: s.asleep,
			Pending: s.pending + s.ahead.stuck, Unacked: s.unacked, Redelivered: s.redelivered, Oldest: s.oldest, Looked: s.learnt,
		}
		if why != nil {
			p.Reason = why.Error()
			if h.Err == nil {
				h.Err, h.Reason = why, fmt.Sprintf("%s: %s", p.name(), p.Reason)
			} else if errors.Is(why, natsjs.ErrConsumerNotFound) {
				missing = append(missing, p.Consumer)
			}
		}
		states[state]++
		if state != LaneWorking && (h.Since.IsZero() || began.Before(h.Since)) {
			h.Since = began
		}
		h.Pending += s.pending + s.ahead.stuck
		h.Unacked += s.unacked
		h.Redelivered += s.redelivered
		if !s.oldest.IsZero() && (h.Oldest.IsZero() || s.oldest.Before(h.Oldest)) {
			h.Oldest = s.oldest
		}
		h.Parts = append(h.Parts, p)
	}
	if len(missing) > 0 {
		h.Reason += "; also missing: " + strings.Join(missing, ", ")
	}
	switch all := len(l.sources); {
	case states[LaneWorking] == all:
		h.State = LaneWorking
		for _, p := range h.Parts {
			if p.Since.After(h.Since) {
				h.Since = p.Since
			}
		}
	case states[LaneStarting] > 0:
		h.State = LaneStarting
	case states[LaneStopped] == all:
		h.State = LaneStopped
	case states[LaneDeaf] == all:
		h.State = LaneDeaf
	case states[LanePaused]+states[LaneDeaf] == all:
		h.State = LanePaused
	default:
		h.State = LaneDegraded
	}
	return h
}

func (p LanePart) name() string {
	if p.Priority == "" {
		return "delayed tasks"
	}
	return p.Priority + " tasks"
}

// tell calls Changed if a state has changed since the last time.
func (r *laneRun) tell() {
	h := r.Health()
	states := []LaneState{h.State}
	for _, p := range h.Parts {
		states = append(states, p.State)
	}
	if slices.Equal(states, r.reported) {
		return
	}
	r.reported = states
	if r.opts.Changed != nil {
		r.opts.Changed(h)
	}
}
