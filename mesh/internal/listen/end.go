package listen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream/denial"
)

// RoundTrip waits until the server has processed everything that was sent, however long that
// takes. It calls waits after each period in which the server has not answered. If the
// connection is lost meanwhile, nats.go subscribes again after the reconnect, and RoundTrip
// tries again. It fails if ctx ends, and if the connection is closed.
func RoundTrip(ctx context.Context, conn *nats.Conn, period time.Duration, waits func()) error {
	for {
		patience, cancel := context.WithTimeout(ctx, period)
		err := conn.FlushWithContext(patience)
		late := patience.Err() != nil
		cancel()
		switch {
		case err == nil || conn.IsClosed():
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case late:
			waits()
		case !errors.Is(err, nats.ErrConnectionClosed): // the error of a flush that is under way when the connection breaks
			return err
		}
	}
}

// Refused returns an error if the server has refused one of the subscriptions since then.
func Refused(since denial.Since, subs []*nats.Subscription) error {
	d, refused := since.Find(func(d denial.Denial) bool {
		return slices.ContainsFunc(subs, func(s *nats.Subscription) bool { return d.Is(denial.Subscribe, s.Subject) })
	})
	if !refused {
		return nil
	}
	return fmt.Errorf("the server does not permit subscribing to %s; \"aeemesh auth perms\" prints what a worker needs: %w", d.Subject, d.Err)
}

// Drain unsubscribes: the server delivers no message that it receives after this.
// The returned function waits until the messages that the server has already delivered are
// handled, five seconds at most. Then it forgets those subscriptions that are in shared.
func Drain(conn *nats.Conn, subs []*nats.Subscription, shared ...*Shared) (wait func()) {
	if !conn.IsConnected() {
		// Without a connection no more messages come.
		for _, sub := range subs {
			sub.Unsubscribe()
		}
		return func() { forget(subs, shared) }
	}
	var all []<-chan nats.SubStatus
	for _, sub := range subs {
		closed := sub.StatusChanged(nats.SubscriptionClosed)
		if sub.Drain() == nil {
			all = append(all, closed)
		}
	}
	return func() {
		defer forget(subs, shared)
		deadline := time.NewTimer(5 * time.Second)
		defer deadline.Stop()
		for _, closed := range all {
			select {
			case <-closed:
			case <-deadline.C:
				return
			}
		}
	}
}

// forget waits until the messages that have come over ended subscriptions are handled, and
// then forgets the subscriptions.
func forget(subs []*nats.Subscription, shared []*Shared) {
	for _, e := range shared {
		e.Settle(subs)
		e.Forget(subs)
	}
}
