package mesh

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream"
)

// heedful is a handler of the messages that were published to a subject, and may be
// answered.
func (h *host) heedful(subject string, handle nats.MsgHandler) nats.MsgHandler {
	handle = h.fromInboxes(handle)
	return func(msg *nats.Msg) {
		if !jetstream.Published(msg, subject) {
			h.counts.dropped.Add(1)
			h.node.tel.refused(h, "stray")
			return
		}
		handle(msg)
	}
}

// drainSubscriptions takes the subscriptions back: the server sends nothing more
// that it hears of after this. The returned function waits until what it has sent
// already has been handled.
func (h *host) drainSubscriptions(subs []*nats.Subscription) (wait func()) {
	if !h.node.conn.IsConnected() {
		// Nothing comes, and nobody is there to wait for.
		for _, sub := range subs {
			sub.Unsubscribe()
		}
		return func() { h.forget(subs) }
	}
	var all []<-chan nats.SubStatus
	for _, sub := range subs {
		closed := sub.StatusChanged(nats.SubscriptionClosed)
		if sub.Drain() == nil {
			all = append(all, closed)
		}
	}
	return func() {
		defer h.forget(subs)
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

// forget handles what has come over subscriptions that have ended.
func (h *host) forget(subs []*nats.Subscription) {
	for _, e := range []*ears{&h.node.asked, &h.node.told} {
		e.settle()
		e.forget(subs)
	}
}
