package mesh

import "github.com/aeemesh/aeemesh/jetstream"

// A worker may be there before the streams of the durable lane are: JetStream is
// away, nobody has made them, its NATS user may not see them. Until
// [Durable].Ready is closed it serves live tasks as a node without a durable lane
// does, and then joins the lane.

// LaneWaiting is the state of a lane whose streams are not there yet, in health
// and heartbeats, beside those of [jetstream.LaneState].
const LaneWaiting jetstream.LaneState = "waiting"

// There reports whether the streams are there: whether Ready is closed, or was
// never set.
func (d *Durable) There() bool {
	if d.Ready == nil {
		return true
	}
	select {
	case <-d.Ready:
		return true
	default:
		return false
	}
}

// durable is the node's durable lane, nil where it has none, or none yet.
func (n *Node) durable() *Durable {
	if d := n.cfg.Durable; d != nil && d.There() {
		return d
	}
	return nil
}

// counters are the mesh's, nil where this process counts for itself: they are
// streams, too.
func (n *Node) counters() Counters {
	if d := n.cfg.Durable; d != nil && !d.There() {
		return nil
	}
	return n.cfg.Counters
}

// joined is the agent's durable lane, nil where it has none, or none yet.
func (h *host) joined() *lane {
	if h.durable != nil && h.durable.cfg.There() {
		return h.durable
	}
	return nil
}

// join starts the durable lane, now or when it is there. The returned function
// ends the waiting, and returns when the lane has started or never will.
func (h *host) join() (end func()) {
	l := h.durable
	if l == nil {
		return func() {}
	}
	if l.cfg.There() {
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

// awaited is what is told of a lane that is not there yet.
func (l *lane) awaited() laneStatus {
	s := laneStatus{State: string(LaneWaiting), Reason: "its streams do not exist yet"}
	if l.cfg.Lacks != nil {
		if err := l.cfg.Lacks(); err != nil {
			s.Reason = err.Error()
		}
	}
	return s
}

// Values of [MetaDurable].
const (
	DurableOn      = "on"      // this worker takes durable tasks
	DurableOff     = "off"     // it takes live tasks alone
	DurableWaiting = "waiting" // it will, as soon as JetStream has the streams
	DurableLeft    = "left"    // it leaves them to others; see [Agent].Leave
)

func (h *host) takesDurable() string {
	switch {
	case h.durable == nil:
		return DurableOff
	case h.joined() == nil:
		return DurableWaiting
	case h.Leave:
		return DurableLeft
	}
	return DurableOn
}
