package jetstream

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/internal/ack"
	"github.com/nats-io/nats.go"
)

// A Delivery is one task that the server handed to this worker under a lease. Unless the
// worker acknowledges it, or renews the lease by InProgress, within the lease, the server
// redelivers it to another worker. Its methods may be called from any goroutine, even
// after the lane has ended.
//
// The server accepts a late acknowledgement, sent after the task was redelivered, and
// removes the message. So a worker acknowledges only tasks whose run it owns by the run's
// record.
type Delivery struct {
	Subject  string
	Priority string
	Data     []byte
	Header   nats.Header // nil if there are none

	Seq    uint64    // in StreamWork
	Stored time.Time // when the server stored the message, by the server's clock

	// Delivered counts the deliveries of the message, this one included. It also grows
	// when a lane naks a task because it has no room, so it does not say how often the
	// task was started.
	Delivered uint64

	// First is set if this is known to be the first delivery: the consumer is older than the
	// message and counts one delivery. A reset of the consumer restarts the count; the lane may
	// notice that only at its next look.
	First bool

	// Lease is how long the worker may go without renewing the task, the consumer's
	// AckWait.
	Lease time.Duration

	// AckSubject is the subject that acknowledgements are published to. Any connection of
	// the account may do so: see [Queue.Adopt].
	AckSubject string

	nc *nats.Conn
}

// Ack removes the message from the queue without waiting for a confirmation. If the ack
// is lost, the task is redelivered.
func (d *Delivery) Ack() error { return d.say("+ACK") }

// InProgress renews the lease.
func (d *Delivery) InProgress() error { return d.say("+WPI") }

// Nak returns the message to the server, which redelivers it after the delay, at once if
// that is 0.
func (d *Delivery) Nak(delay time.Duration) error {
	if delay <= 0 {
		return d.say("-NAK")
	}
	return d.say(`-NAK {"delay":` + strconv.FormatInt(int64(delay), 10) + `}`)
}

// Term removes the message from the queue as one that cannot be processed. The server
// publishes an advisory with the reason.
func (d *Delivery) Term(reason string) error {
	if reason == "" {
		return d.say("+TERM")
	}
	return d.say("+TERM " + reason)
}

func (d *Delivery) say(word string) error {
	if err := d.nc.Publish(d.AckSubject, []byte(word)); err != nil {
		return fmt.Errorf("acknowledge message %d of %s: %w", d.Seq, d.Subject, err)
	}
	return nil
}

// Adopt returns a delivery for a message that another process received, by its
// [Delivery.AckSubject]. It can be acknowledged and its lease renewed; it has no data. An
// ack subject that does not belong to a task of the entity is refused, so that a peer
// cannot make this process publish elsewhere.
func (q *Queue) Adopt(entity, ackSubject string) (*Delivery, error) {
	a, err := ack.Parse(ackSubject)
	if err != nil {
		return nil, fmt.Errorf("adopt a task of %s: %w", entity, err)
	}
	specs, err := Consumers(q.m, entity, 0)
	if err != nil {
		return nil, fmt.Errorf("adopt a task: %w", err)
	}
	for _, spec := range specs {
		if spec.Priority != "" && a.Stream == spec.StreamName(q.m) && a.Consumer == spec.Config.Durable {
			return &Delivery{
				Subject: spec.Config.FilterSubject, Priority: spec.Priority, Seq: a.Seq, Stored: a.Stored, Delivered: a.Delivered,
				Lease: spec.Config.AckWait, AckSubject: ackSubject, nc: q.js.Conn(),
			}, nil
		}
	}
	return nil, fmt.Errorf("adopt a task of %s: %q is not about one of its tasks", entity, ackSubject)
}
