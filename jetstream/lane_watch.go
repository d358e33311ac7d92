package jetstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// watchPatience is the timeout of one look at a consumer.
const watchPatience = 2 * time.Second

// watch creates the consumers, recovers those that fail, and reads how far the lane lags
// behind.
func (r *laneRun) watch(ctx context.Context) {
	for {
		var looks sync.WaitGroup
		for _, s := range r.sources {
			at, ready := r.nextLook(s)
			if at.After(time.Now()) {
				continue
			}
			looks.Go(func() {
				if ready {
					r.look(ctx, s)
				} else if r.ensure(ctx, s) == nil {
					r.Wake()
				}
			})
		}
		looks.Wait()
		r.tell()
		next := time.Now().Add(r.opts.Check)
		for _, s := range r.sources {
			if at, _ := r.nextLook(s); at.Before(next) {
				next = at
			}
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.mend:
			timer.Stop()
			r.tell()
		case <-timer.C:
		}
	}
}

// nextLook returns when the watcher has to look at a source again, and whether the source
// is ready: then it reads the lag, else it tries to recover the consumer.
func (l *Lane) nextLook(s *source) (at time.Time, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.asleep:
		return time.Now().Add(l.opts.Check), false
	case s.ready:
		return s.looked.Add(l.opts.Check), true
	}
	return s.mendAt, false
}

// ensure creates or looks up a consumer, so that requests can be sent to it.
func (l *Lane) ensure(ctx context.Context, s *source) error {
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	began := time.Now()
	// It looks for the consumer first: a user without permission to create one must not try if an
	// operator has made it.
	cons, err := EnsureConsumer(ctx, l.q.js, l.q.m, s.spec, l.opts.Create)
	operated := false
	if l.opts.Create && api.Refused(err) {
		// A user with the permission may have created it.
		cons, err = EnsureConsumer(ctx, l.q.js, l.q.m, s.spec, false)
		operated = true
	}
	var cfg natsjs.ConsumerConfig
	var made time.Time
	if err == nil {
		cfg, made = cons.CachedInfo().Config, cons.CachedInfo().Created
		err = s.unfit(cfg)
	}
	if operated {
		l.operate()
		if errors.Is(err, ErrNotFound) {
			err = fmt.Errorf("%w; this user may not make it: an operator has to run \"aeemesh apply --entity %s\"", err, s.spec.Entity)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	denied := errors.Is(err, ErrDenied)
	switch {
	case err == nil:
		s.lease, s.made, s.bounded, s.batch, s.ready, s.fit = cfg.AckWait, made, cfg.MaxAckPending > 0, cfg.MaxRequestBatch, true, began
		s.ahead.again(l.opts.Notifier != nil)
		if s.state == LaneStarting || s.state == LaneDeaf && !s.unproven {
			s.serves()
		}
	case l.stopped, ctx.Err() != nil && errors.Is(err, context.Canceled):
	default:
		s.mendAt = time.Now().Add(backoff(s.tries))
		s.tries++
		// A user without permission to look at the consumer may still be permitted to
		// draw from it.
		s.ready, s.unproven = denied, denied
		s.become(LaneDeaf, err)
	}
	return err
}

// unfit returns an error if the consumer's configuration keeps back tasks of the source or parts of
// them, or delivers tasks of others: an operator has edited the consumer, or a worker of an older
// release has made it. [Lane.ensure] repairs it if the user may, and otherwise refuses it.
func (s *source) unfit(cfg natsjs.ConsumerConfig) error {
	why := ""
	var c Change
	cfg.Metadata = s.spec.Config.Metadata // or what a newer release has made would not be compared
	c.compareConsumer(Options{}, s.spec.Config, cfg)
	for _, d := range c.Differences {
		switch d.Field {
		case "ack_policy", "filter_subject", "headers_only", "max_request_expires", "max_request_max_bytes":
			why = fmt.Sprintf("has %s %s, should be %s", d.Field, d.Have, d.Want)
		}
	}
	switch grouped := slices.Contains(cfg.PriorityGroups, drawGroup); {
	case !grouped && len(cfg.PriorityGroups) > 0:
		return fmt.Errorf("%w: consumer %s gives tasks to workers that know %s, and this one knows %s: update it", ErrNewer, s.consumer, strings.Join(cfg.PriorityGroups, " "), drawGroup)
	case why != "":
	case !grouped:
		why = "gives tasks to workers of older releases, too"
	default:
		return nil
	}
	return fmt.Errorf("consumer %s/%s %s: an operator has to run \"aeemesh apply --entity %s\"", s.stream, s.consumer, why, s.spec.Entity)
}

// spoiltPause is the shortest delay of a nak for a spoilt message; meanwhile the watcher looks at
// the consumer. A source remembers up to mostEmpty messages without bodies, for emptyKept.
const (
	spoiltPause = time.Second
	mostEmpty   = 256
	emptyKept   = time.Minute
)

// spoilt reports whether a message came without its body, or is for another entity, because the
// consumer was edited after the last look at it. Such a message is nakked with the returned delay,
// and the watcher looks at the consumer; with 0 it is not spoilt.
func (l *Lane) spoilt(s *source, d *Delivery) (pause time.Duration) {
	size := d.Header.Values(nats.MsgSize) // the server adds its own at the end
	empty := len(d.Data) == 0 && len(size) > 0 && size[len(size)-1] != "0"
	other := s.weight > 0 && d.Subject != s.spec.Config.FilterSubject
	if !empty && !other {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	first, known := s.empty[d.Seq]
	if known = known && now.Sub(first) < emptyKept; known && !other && s.fit.After(first) {
		delete(s.empty, d.Seq)
		return 0 // the consumer was as it should be since: any sender can write the header
	}
	s.looked = time.Time{}
	if other {
		// The server redelivers what it has once delivered, whatever the filter is now, until
		// the other entity's worker has done it.
		return spoiltPause << min(max(d.Delivered, 1)-1, 8)
	}
	if known {
		return max(spoiltPause, min(now.Sub(first), emptyKept/4))
	}
	if len(s.empty) >= mostEmpty {
		maps.DeleteFunc(s.empty, func(_ uint64, first time.Time) bool { return now.Sub(first) >= emptyKept })
	}
	if s.empty == nil {
		s.empty = map[uint64]time.Time{}
	}
	if len(s.empty) < mostEmpty {
		s.empty[d.Seq] = now
	}
	return spoiltPause
}

// look reads how far the source lags behind, and notices a consumer that is ahead of its stream.
func (l *Lane) look(ctx context.Context, s *source) {
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	held := l.heldSinceLook(s)
	if info, suspect := l.lag(ctx, s, held); suspect {
		l.checkAhead(ctx, s, info)
	}
}

// lag reads how far the source lags behind, and reports whether the stream must be asked too. held
// reports whether a notifier found messages of the source since the last look.
func (l *Lane) lag(ctx context.Context, s *source, held bool) (info natsjs.ConsumerInfo, suspect bool) {
	began := time.Now()
	err := api.Request(ctx, l.q.js, "CONSUMER.INFO."+s.stream+"."+s.consumer, nil, &info)
	var oldest time.Time
	if err == nil && info.NumPending > 0 {
		oldest = l.q.firstPending(ctx, s.stream, s.spec.Config.FilterSubject, info)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.looked = time.Now()
	switch {
	case l.stopped || !s.ready:
	case errors.Is(err, natsjs.ErrConsumerNotFound), errors.Is(err, natsjs.ErrStreamNotFound):
		s.trouble(api.Explain(l.q.js.Conn(), err, "look at %s", s.consumer), false)
		pause.Wake(l.mend)
	case err != nil: // the requests under way will find out
		s.ahead.unsure = s.ahead.unsure || l.opts.Notifier == nil // its server may have restarted
	case s.unfit(info.Config) != nil:
		s.trouble(s.unfit(info.Config), false)
		pause.Wake(l.mend)
	default:
		s.pending, s.unacked, s.redelivered = int(info.NumPending), info.NumAckPending, info.NumRedelivered
		s.floor, s.batch, s.fit = info.AckFloor.Stream, info.Config.MaxRequestBatch, began
		since := s.lag.Since(info)
		if oldest.IsZero() {
			oldest = since
		}
		s.oldest, s.learnt, s.server = oldest, s.looked, info.TimeStamp
		if info.Paused {
			s.become(LanePaused, fmt.Errorf("consumer %s is paused for another %s", s.consumer, info.PauseRemaining.Round(time.Second)))
		} else if s.state == LanePaused {
			s.become(LaneWorking, nil)
		}
		s.warning = nil
		if info.Config.MaxAckPending > 0 && info.NumAckPending >= info.Config.MaxAckPending {
			s.warning = fmt.Errorf("consumer %s is at its bound of %d messages in flight (max_ack_pending)", s.consumer, info.Config.MaxAckPending)
		}
		if info.Delivered.Consumer < s.ahead.drawn { // another worker, or an operator, has reset it
			s.made = info.TimeStamp
		}
		suspect = s.ahead.asks(info, held)
		s.caughtUp()
	}
	return info, suspect
}

// Gone reports whether a message of the entity is known to have left [StreamWork]. It
// judges by the last look at the entity's consumers: each has acknowledged everything up
// to the message's sequence, or has no messages left; or its source sleeps, because its
// subject holds none. It is for workers whose permissions
// end at their entity; a user who may read the stream calls [Queue.Has]. since is a time,
// by the server's clock, at which the message was stored already.
func (l *Lane) Gone(seq uint64, since time.Time) bool {
	var polled poll
	if n := l.opts.Notifier; n != nil {
		polled = n.last(watchedWork)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources[:len(draws)] {
		if s.asleep && polled.at.After(since) && !polled.held[heldKey{l.entity, s.spec.Priority}] {
			continue
		}
		idle := s.pending == 0 && s.unacked == 0 && s.server.After(since) && !s.ahead.unsure
		if !idle && s.floor < seq {
			return false
		}
	}
	return true
}

// firstPending returns when the oldest undelivered message was stored; zero if that is
// unknown.
func (q *Queue) firstPending(ctx context.Context, stream, filter string, info natsjs.ConsumerInfo) time.Time {
	if q.fenced.Load() {
		return time.Time{}
	}
	batch, err := api.Direct(ctx, q.js, stream, map[string]any{"seq": info.Delivered.Stream + 1, "next_by_subj": filter, "batch": 1})
	q.fence(err)
	if err != nil || len(batch.Messages) == 0 {
		return time.Time{}
	}
	return batch.Messages[0].Time
}
