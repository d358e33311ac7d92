package listen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
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

// Refused returns an error if the server has refused a subscription. The only sign
// of that is a new last error of the connection that names the subscription.
func Refused(before, after error, subs []*nats.Subscription) error {
	if after == before || !errors.Is(after, nats.ErrPermissionViolation) {
		return nil
	}
	for _, sub := range subs {
		if strings.Contains(strings.ToLower(after.Error()), strings.ToLower(fmt.Sprintf("subscription to %q", sub.Subject))) {
			return fmt.Errorf("the server does not permit subscribing to %s; \"aeemesh auth perms\" prints what a worker needs: %w", sub.Subject, after)
		}
	}
	return nil
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
