package mesh

import "github.com/aeemesh/aeemesh/jetstream"

// A worker may start before the streams of the durable lane exist: JetStream is down,
// the streams were not created, or the worker's NATS user has no permission to see them.
// Until [Durable].Ready is closed the worker serves live tasks like a node without a
// durable lane. Then it joins the lane.

// LaneWaiting is the state, in health and heartbeats, of a lane whose streams do not
// exist yet. It adds to the states of [jetstream.LaneState].
const LaneWaiting jetstream.LaneState = "waiting"

// joined returns the agent's durable lane, nil if it has none or the streams do not
// exist yet.
func (h *host) joined() *lane {
	if h.durable != nil && h.durable.cfg.Available() {
		return h.durable
	}
	return nil
}

// join starts the durable lane, now or when its streams exist. The returned function
// ends the wait, and returns when the lane has started or will not start any more.
func (h *host) join() (end func()) {
	l := h.durable
	if l == nil {
		return func() {}
	}
	if l.cfg.Available() {
		l.start()
		return func() {}
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-l.cfg.Ready:
			l.openQueue()
			l.start()
		case <-over:
		}
	}()
	return func() { close(over); <-done }
}

// awaited returns the status of a lane whose streams do not exist yet.
func (l *lane) awaited() laneStatus {
	s := laneStatus{State: string(LaneWaiting), Reason: "its streams do not exist yet"}
	if l.cfg.NotReady != nil {
		if err := l.cfg.NotReady(); err != nil {
			s.Reason = err.Error()
		}
	}
	return s
}

// Values of [MetaDurable].
const (
	DurableOn      = "on"      // this worker takes durable tasks
	DurableOff     = "off"     // it takes live tasks only
	DurableWaiting = "waiting" // it will take them as soon as the streams exist
	DurableLeft    = "left"    // it submits durable tasks and draws none; see [Agent].SubmitOnly
)

func (h *host) takesDurable() string {
	switch {
	case h.durable == nil:
		return DurableOff
	case h.joined() == nil:
		return DurableWaiting
	case h.SubmitOnly:
		return DurableLeft
	}
	return DurableOn
}
