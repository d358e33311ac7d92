package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A consumer can be ahead of its stream. If a nats-server is killed while it cannot write, for
// example because its disk is full, it may have stored that a consumer delivered messages that the
// stream has lost. The stream then gives their sequences to new messages, which the consumer
// neither delivers nor counts. Only the stream shows these messages, and only a reset of the
// consumer delivers them.
//
// A lane asks the stream about a source if nothing is pending and nothing unacknowledged, and
//   - its notifier found messages of the source between two looks at the consumer, and the
//     consumer has delivered none between them; or
//   - the lane has no notifier, and has begun to draw from the consumer anew, or could not
//     look at it.
//
// The second condition is enough without a notifier, because a consumer can get ahead only if its
// server restarts. Then it counts as ahead if it has delivered more than the stream has, even if
// no message is stuck.
//
// A busy lane may never be idle. So after it has begun to draw from a consumer anew, it also
// compares the two while tasks are in work, until it finds that the stream did not change during a
// comparison and that the consumer knows all its messages. After that a busy lane makes no
// additional requests.

// An aheadWatch is what a source knows about its consumer and its stream. The lane's mu guards it.
type aheadWatch struct {
	unsure  bool   // the stream has to be asked at the next look at an idle consumer
	begun   bool   // also at a look at a busy consumer: the two were not compared since the lane began to draw
	idle    bool   // at the last look nothing was pending, and nothing unacknowledged
	drawn   uint64 // deliveries of the consumer as of that look
	strikes int    // looks in a row that found it ahead
	why     error  // it is ahead
	stuck   int    // how many tasks it does not deliver because of that
	setDeaf bool   // the source was set deaf because of that
	refused error  // the user may not reset it
	on      uint64 // the number of reconnects when the reset was refused
	blind   bool   // the user may not ask the stream
}

// resetPause is the number of looks after a failed reset before the lane tries it again: an older
// server does not answer, and the other consumers are not looked at meanwhile.
const resetPause = 10

// again makes the source ask the stream at the next look, because the lane draws from a consumer
// that its server may have recovered. Earlier findings stay: the requests of a lane may break off
// between any two looks.
func (a *aheadWatch) again(notified bool) {
	a.unsure, a.begun = !notified || a.why != nil || a.strikes > 0, true
	a.strikes = max(a.strikes, 0) // a reset that failed may be answered now
}

// asks reports, after a look at the consumer, whether the stream must be asked. held reports
// whether a notifier found messages of the source since the last look.
func (a *aheadWatch) asks(info natsjs.ConsumerInfo, held bool) bool {
	idle := info.NumPending == 0 && info.NumAckPending == 0 && !info.Paused
	same := idle && a.idle && a.drawn == info.Delivered.Consumer
	if idle != a.idle || idle && !same {
		a.strikes = 0
	}
	a.idle, a.drawn = idle, info.Delivered.Consumer
	if !idle {
		a.why, a.stuck = nil, 0
		return !a.blind && a.begun && !info.Paused
	}
	return !a.blind && (a.unsure || same && held)
}

// caughtUp ends the deafness of a source whose consumer is not ahead any more.
func (s *source) caughtUp() {
	if s.ahead.setDeaf && s.ahead.why == nil && s.ready && s.state == LaneDeaf {
		s.become(LaneWorking, nil)
	}
	s.ahead.setDeaf = s.ahead.why != nil
}

// heldSinceLook reports whether the notifier has asked since the last look at the consumer what
// the streams hold, and found messages of the source.
func (l *Lane) heldSinceLook(s *source) bool {
	n := l.opts.Notifier
	if n == nil {
		return false
	}
	p := n.last(s.watched())
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.why == nil && p.began.After(s.looked) && p.held[heldKey{l.entity, s.spec.Priority}]
}

// checkAhead finds out whether a consumer is ahead of its stream, and resets it after two
// looks that agree.
func (l *Lane) checkAhead(ctx context.Context, s *source, info natsjs.ConsumerInfo) {
	idle := info.NumPending == 0 && info.NumAckPending == 0
	stuck, ahead, err := l.q.ahead(ctx, s, &info, idle)
	reconnects := l.q.js.Conn().Stats().Reconnects
	l.mu.Lock()
	a := &s.ahead
	if a.on != reconnects {
		a.refused = nil
	}
	switch {
	case errors.Is(err, ErrDenied):
		a.blind, a.unsure, a.begun, a.why, a.stuck = true, false, false, nil, 0
		s.caughtUp()
	case err != nil: // the next look asks again
	case !ahead:
		a.unsure, a.begun, a.strikes, a.why, a.stuck = false, false, 0, nil, 0
		s.caughtUp()
	default:
		a.unsure, a.begun = true, true
		a.strikes++
	}
	// The consumer records an acknowledgement before the stream removes the message.
	certain, refused := a.strikes >= 2 && idle || a.strikes >= 3, a.refused
	if certain && refused == nil {
		s.made = info.TimeStamp // it begins to count deliveries anew: see [Delivery.First]
	}
	l.mu.Unlock()
	if err != nil || !certain {
		return
	}

	err = refused
	if refused == nil {
		err = l.q.resetConsumer(ctx, s, info, idle)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if api.Refused(err) {
		err = ErrDenied
		a.refused, a.on = err, reconnects // each further attempt is a line in the server's log
	}
	switch {
	case l.stopped || !s.ready || errors.Is(err, errMoved):
		return
	case err == nil:
		a.strikes, s.looked = 0, time.Time{} // look now whether it delivers
	case a.refused == nil:
		a.strikes = -resetPause
	}
	what := fmt.Sprintf("consumer %s/%s is ahead of its stream and ", s.stream, s.consumer)
	if stuck > 0 {
		what += fmt.Sprintf("does not deliver %d of its tasks", stuck)
	} else {
		what += "will not deliver its next tasks"
	}
	if a.why, a.stuck = fmt.Errorf("%s: this worker resets it", what), stuck; err != nil {
		a.why = fmt.Errorf(`%s: an operator has to run "nats req '%s' '{"seq":1}'", with nats-server 2.14 or newer; this worker cannot: %w`, what, api.Prefix(l.q.js)+s.resets(), err)
	}
	a.setDeaf = true
	s.become(LaneDeaf, a.why)
}

// resets is where the API is asked to reset the source's consumer.
func (s *source) resets() string { return "CONSUMER.RESET." + s.stream + "." + s.consumer }

// holding is what a stream says that it holds of a source.
type holding struct {
	last  uint64 // the stream's last sequence
	tasks int    // messages of the source
}

func (q *Queue) holding(ctx context.Context, s *source) (holding, error) {
	var stream struct {
		State struct {
			Last     uint64         `json:"last_seq"`
			Subjects map[string]int `json:"subjects"`
		} `json:"state"`
	}
	err := api.Request(ctx, q.js, "STREAM.INFO."+s.stream, map[string]any{"subjects_filter": s.spec.Config.FilterSubject}, &stream)
	h := holding{last: stream.State.Last}
	for _, n := range stream.State.Subjects {
		h.tasks += n
	}
	return h, err
}

// ahead reports whether a consumer is ahead of its stream, and how many messages it does not
// deliver because of that. If the consumer is not idle, both may change at any time: then ahead
// reads info between two looks at the stream, and fails with errMoved if the looks differ.
func (q *Queue) ahead(ctx context.Context, s *source, info *natsjs.ConsumerInfo, idle bool) (stuck int, ahead bool, err error) {
	h, err := q.holding(ctx, s)
	if err == nil && !idle {
		before := h
		if err = api.Request(ctx, q.js, "CONSUMER.INFO."+s.stream+"."+s.consumer, nil, info); err == nil {
			h, err = q.holding(ctx, s)
		}
		if err == nil && h != before {
			err = errMoved
		}
	}
	stuck = max(0, h.tasks-int(info.NumPending)-info.NumAckPending)
	return stuck, stuck > 0 || info.Delivered.Stream > h.last, err
}

// errMoved: the consumer or its stream has changed during the comparison.
var errMoved = errors.New("the consumer works")

// resetConsumer resets a consumer so that it delivers what its stream holds, unless it delivers
// again by itself. Several workers may do so at the same time: acknowledged messages are not in
// the stream, and a task that is delivered twice is done once, as after the end of a lease.
func (q *Queue) resetConsumer(ctx context.Context, s *source, then natsjs.ConsumerInfo, idle bool) error {
	var now natsjs.ConsumerInfo
	if err := api.Request(ctx, q.js, "CONSUMER.INFO."+s.stream+"."+s.consumer, nil, &now); err != nil {
		return errMoved // the next look finds out
	}
	works := now.NumPending > 0 || now.NumAckPending > 0 || now.Delivered.Consumer != then.Delivered.Consumer
	if now.Paused || idle && works || now.Delivered.Consumer < then.Delivered.Consumer { // another worker has reset it
		return errMoved
	}
	err := api.Request(ctx, q.js, s.resets(), map[string]int{"seq": 1}, nil)
	return api.Explain(q.js.Conn(), err, "ask for it")
}
