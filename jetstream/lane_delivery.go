package jetstream

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// A Delivery is one task, handed to this worker under a lease: unless it is
// acknowledged, or its lease renewed by InProgress, within [LaneOptions.Lease]
// the server hands it to another one. Its methods may be called from any
// goroutine, after the lane has ended, too.
//
// An acknowledgement that comes late, when the task was handed to another
// worker, still takes the message away. So a worker acknowledges only what it
// has proved to own by other means, the run's record.
type Delivery struct {
	Subject  string
	Priority string
	Data     []byte
	Header   nats.Header // nil if there are none

	Seq    uint64    // in StreamWork
	Stored time.Time // when the server stored it, by its clock

	// Delivered counts how often the message was handed out, this time
	// included. It also grows when a lane gives a task back for which it has no
	// room, so it says nothing about how often the task was begun.
	Delivered uint64

	// First says that the message was not handed out before: its consumer, which
	// is older than the message, knows of no other time.
	First bool

	// Lease is how long the worker may be silent about it, the consumer's
	// AckWait.
	Lease time.Duration

	// AckSubject is where acknowledgements go. They may come from any
	// connection of the account: see [Queue.Adopt].
	AckSubject string

	nc *nats.Conn
}

// Ack takes the message off the queue, without waiting for the server's word:
// if it is lost the task is delivered again.
func (d *Delivery) Ack() error { return d.say("+ACK") }

// DoubleAck takes the message off the queue and waits until the server has
// done so. It fails with [ErrUnavailable] when nobody takes acknowledgements, as
// when the consumer was deleted, and with [ErrUncertain] when no answer comes.
func (d *Delivery) DoubleAck(ctx context.Context) error {
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	_, err := d.nc.RequestWithContext(ctx, d.AckSubject, []byte("+ACK"))
	return uncertain(explain(d.nc, err, "acknowledge message %d of %s", d.Seq, d.Subject))
}

// InProgress begins the lease anew.
func (d *Delivery) InProgress() error { return d.say("+WPI") }

// Nak gives the message back. It is handed out again after a delay, at once if
// that is 0.
func (d *Delivery) Nak(delay time.Duration) error {
	if delay <= 0 {
		return d.say("-NAK")
	}
	return d.say(`-NAK {"delay":` + strconv.FormatInt(int64(delay), 10) + `}`)
}

// Term takes the message off the queue as one that cannot be done; the server
// tells with an advisory, and the reason.
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

// Adopt returns a delivery for a message that another process was handed, by
// its [Delivery.AckSubject]: it can be acknowledged and its lease renewed. It
// has no data. An ack subject that is not about a task of the entity is refused,
// so that a peer cannot make this process publish elsewhere.
func (q *Queue) Adopt(entity, ackSubject string) (*Delivery, error) {
	a, err := parseAck(ackSubject)
	if err != nil {
		return nil, fmt.Errorf("adopt a task of %s: %w", entity, err)
	}
	specs, err := Consumers(q.m, entity, 0)
	if err != nil {
		return nil, fmt.Errorf("adopt a task: %w", err)
	}
	for _, spec := range specs {
		if spec.Priority != "" && a.stream == spec.StreamName(q.m) && a.consumer == spec.Config.Durable {
			return &Delivery{
				Subject: spec.Config.FilterSubject, Priority: spec.Priority, Seq: a.seq, Stored: a.stored, Delivered: a.delivered,
				Lease: spec.Config.AckWait, AckSubject: ackSubject, nc: q.js.Conn(),
			}, nil
		}
	}
	return nil, fmt.Errorf("adopt a task of %s: %q is not about one of its tasks", entity, ackSubject)
}

// An ackInfo is what an ack subject says.
type ackInfo struct {
	stream, consumer        string
	delivered, seq, pending uint64
	stored                  time.Time
}

// parseAck reads the subjects that nats-server makes:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<consumer seq>.<time>.<pending>
//	$JS.ACK.<domain>.<account>.<the same>[.<more>]
func parseAck(s string) (ackInfo, error) {
	const shape = "%q is no subject of an acknowledgement"
	rest, ok := strings.CutPrefix(s, "$JS.ACK.")
	if !ok || strings.ContainsAny(s, " \t\r\n*>") {
		return ackInfo{}, fmt.Errorf(shape, s)
	}
	var tokens [12]string
	n := 0
	for more := true; more; n++ {
		if n == len(tokens) {
			return ackInfo{}, fmt.Errorf(shape, s)
		}
		tokens[n], rest, more = strings.Cut(rest, ".")
		if tokens[n] == "" {
			return ackInfo{}, fmt.Errorf(shape, s)
		}
	}
	t := tokens[:]
	switch {
	case n >= 9:
		t = t[2:]
	case n != 7:
		return ackInfo{}, fmt.Errorf(shape, s)
	}
	a := ackInfo{stream: t[0], consumer: t[1]}
	var nanos uint64
	for _, f := range []struct {
		to   *uint64
		text string
	}{{&a.delivered, t[2]}, {&a.seq, t[3]}, {&nanos, t[5]}, {&a.pending, t[6]}} {
		v, err := strconv.ParseUint(f.text, 10, 63)
		if err != nil {
			return ackInfo{}, fmt.Errorf(shape, s)
		}
		*f.to = v
	}
	a.stored = time.Unix(0, int64(nanos)).UTC()
	return a, nil
}
