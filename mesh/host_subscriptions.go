package mesh

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream"
)

// heedful returns a handler that calls handle for messages that were published to the subject
// and whose reply subject, if they have one, is an inbox. It drops all others.
func (h *host) heedful(subject string, handle nats.MsgHandler) nats.MsgHandler {
	handle = h.requireInbox(handle)
	return func(msg *nats.Msg) {
		if !jetstream.Published(msg, subject) {
			h.counts.dropped.Add(1)
			h.node.tel.Refused(h.Entity, "stray")
			return
		}
		handle(msg)
	}
}

// drainSubscriptions unsubscribes: the server delivers no message that it receives after this.
// The returned function waits until the messages that the server has already delivered are
// handled, five seconds at most.
func drainSubscriptions(n *Node, subs []*nats.Subscription) (wait func()) {
	if !n.conn.IsConnected() {
		// Without a connection no more messages come.
		for _, sub := range subs {
			sub.Unsubscribe()
		}
		return func() { forget(n, subs) }
	}
	var all []<-chan nats.SubStatus
	for _, sub := range subs {
		closed := sub.StatusChanged(nats.SubscriptionClosed)
		if sub.Drain() == nil {
			all = append(all, closed)
		}
	}
	return func() {
		defer forget(n, subs)
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
func forget(n *Node, subs []*nats.Subscription) {
	for _, e := range []*sharedSubs{&n.asked, &n.told} {
		e.settle(subs)
		e.forget(subs)
	}
}
