package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/holders"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/tracing"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// SendOptions say how [Client.Send] sends. The zero value waits for the result
// in JSON and does not retry.
type SendOptions struct {
	// OnStream gets the stream envelopes in order. If it is set, Send sets
	// requires.stream. If OnStream returns an error, Send cancels the task and returns
	// the error.
	OnStream func(*envelope.Envelope) error
	// CBOR sends, and so receives, CBOR.
	CBOR bool
	// Retries is the maximum number of retries, each with a new id and the same corr,
	// after an error that says that the task was not begun (E_BUSY, E_RATE_LIMITED,
	// E_DRAINING, E_NO_RESPONDERS). Default 0. A task that was signed elsewhere is not retried
	// by a node without a signer: the signature covers the id.
	Retries int
	// OnRetry, if set, is called before each retry.
	OnRetry func(attempt int, wait time.Duration, why *envelope.Error)
	// OnHolder, if set, is called when the worker that has the task names itself, and when such a
	// worker has delegated the task. From then on Send itself notices the death of that worker, or
	// of the receiver's that names itself next.
	OnHolder func()
	// NoCancel leaves the task running when ctx ends. By default Send then cancels the task,
	// unless the agent ends it by then: see requires.timeout_ms. A task that was sent without a
	// connection, or over one that was lost, may arrive later, so it is cancelled.
	NoCancel bool
}

// Send sends a task to the live lane of its addressee (field to) and waits for the terminal
// envelope. To an entity without a worker (see [PublishesTo]) it sends nothing and fails. It
// returns a result envelope with a nil error. It returns an error envelope
// together with an *[envelope.Error] that has FromPeer true. The task is signed if the node
// has a signer. ctx needs no deadline: without one, the node's default timeout applies; with
// one, Send writes it into requires.timeout_ms, unless that is set or the task is signed already.
func (c *Client) Send(ctx context.Context, task *envelope.Envelope, opts SendOptions) (*envelope.Envelope, error) {
	if task.Type != envelope.TypeTask {
		return nil, fmt.Errorf("send %s: only a task has a result; publish events with Broadcast", task.Type)
	}
	if err := requires.WithoutSecrets(task); err != nil {
		return nil, err
	}
	if PublishesTo(task.To) {
		return nil, Unserved(task.To)
	}
	ctx, span := tracing.StartSend(c.cfg.Tracer, ctx, task)
	reply, err := c.sendRetrying(ctx, task, opts)
	tracing.EndSend(span, err)
	return reply, err
}

func (c *Client) sendRetrying(ctx context.Context, task *envelope.Envelope, opts SendOptions) (*envelope.Envelope, error) {
	attempted := *task // the caller's task is not changed
	if task.Sig != nil && c.s.Signer == nil {
		opts.Retries = 0
	}
	var reply *envelope.Envelope
	err := sender.Retrying(ctx, opts.Retries, opts.OnRetry, func(attempt int) (err error) {
		if attempt > 0 {
			attempted = *task
			attempted.ID, attempted.TS, attempted.Sig = envelope.NewID(), envelope.Now(), nil
		}
		reply, err = c.sendOnce(ctx, &attempted, opts)
		return err
	})
	return reply, err
}

func (c *Client) sendOnce(ctx context.Context, task *envelope.Envelope, opts SendOptions) (*envelope.Envelope, error) {
	to, err := c.s.Subjects.Live(task.To)
	if err != nil {
		return nil, err
	}
	deadline, known, stream, err := c.require(ctx, task, opts)
	if err != nil {
		return nil, err
	}
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	header, err := c.s.Encode(ctx, task, false, opts.CBOR, buf)
	if err != nil {
		return nil, err
	}
	c.s.Journal.Sent(task.ID, *buf, opts.CBOR)
	line := c.s.Line()
	reply, err := c.s.Exchange(ctx, deadline, task, rpc.Request{To: to, Header: header, Data: *buf, Stream: stream}, sender.Hooks{Stream: opts.OnStream, Holder: opts.OnHolder})
	if err != nil && reply == nil {
		switch {
		case opts.NoCancel:
		case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
			if !known || line == 0 || line != c.s.Line() { // it may arrive, or have arrived, later than it was sent
				c.s.CancelSent(task)
			}
		case ctx.Err() != nil:
			c.s.CancelSent(task)
		case errors.Is(err, holders.ErrDied):
			c.s.CancelSent(task) // the worker may only have lost its connection
		}
		return nil, fault.ForPeer(sender.Failure(task, err))
	}
	if reply.Type == envelope.TypeError {
		return reply, envelope.ErrorOf(reply)
	}
	return reply, err
}

// require sets stream and timeout_ms in requires, unless the task is signed already. It returns
// the time until which to wait: a little longer than the timeout, so that the agent's own
// E_TIMEOUT arrives. known reports whether the agent knows of it: the task's timeout ends no later.
// stream reports whether stream envelopes will come.
func (c *Client) require(ctx context.Context, task *envelope.Envelope, opts SendOptions) (deadline time.Time, known, stream bool, err error) {
	have, err := task.Requirements()
	if err != nil {
		return deadline, false, false, err
	}
	now := time.Now()
	deadline, limited := ctx.Deadline()
	var timeout time.Duration // the timeout_ms to write; 0: none
	switch {
	case limited && have.Timeout == 0:
		left := deadline.Sub(now)
		timeout = max(time.Millisecond, left-min(left/20, sender.Grace))
	case !limited && have.Timeout == 0:
		timeout = c.cfg.DefaultTimeout
		deadline = now.Add(timeout).Add(sender.Grace)
	case !limited:
		deadline = now.Add(have.Timeout).Add(sender.Grace) // the sum of the two may be too long for a Duration
	}
	known = task.Sig == nil // the timeout is written below
	if have.Timeout > 0 {
		known = !now.Add(have.Timeout).After(deadline)
	}
	stream = have.Stream || opts.OnStream != nil
	ask := stream && !have.Stream
	if task.Sig != nil {
		return deadline, known, stream, nil // requires is signed and cannot be changed
	}
	switch {
	case !ask && timeout == 0:
		return deadline, known, stream, nil
	case task.Requires == nil:
		if !ask && timeout == c.cfg.DefaultTimeout {
			task.Requires = c.defaultRequires
			return deadline, known, stream, nil
		}
		task.Requires = envelope.Requirements{Stream: ask, Timeout: timeout}.AppendJSON(nil)
		return deadline, known, stream, nil
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(task.Requires, &members); err != nil {
		return deadline, known, stream, err
	}
	if ask {
		members["stream"] = json.RawMessage("true")
	}
	if timeout > 0 {
		members["timeout_ms"] = wire.MustJSON(timeout.Milliseconds())
	}
	task.Requires = wire.MustJSON(members)
	return deadline, known, stream, nil
}

// Post publishes an envelope to its addressee (field to) and does not wait for a reply: an
// event to a person's inbox or a channel, or a task whose result is not needed. Without a connection
// it waits in the connection's buffer: a signed task for a person that is stored later than the skew
// bound (5 minutes) after its ts is hidden from the person.
func (c *Client) Post(ctx context.Context, e *envelope.Envelope) error {
	return c.post(ctx, e, false)
}

// PostCBOR is [Client.Post] in CBOR.
func (c *Client) PostCBOR(ctx context.Context, e *envelope.Envelope) error {
	return c.post(ctx, e, true)
}

func (c *Client) post(ctx context.Context, e *envelope.Envelope, cbor bool) error {
	if err := requires.WithoutSecrets(e); err != nil {
		return err
	}
	to, err := c.s.Subjects.Live(e.To)
	if err != nil {
		return err
	}
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	header, err := c.s.Encode(ctx, e, false, cbor, buf)
	if err != nil {
		return err
	}
	c.s.Journal.Sent(e.ID, *buf, cbor)
	if err := c.s.Publish(to, *buf, header); err != nil {
		return fault.ForPeer(err)
	}
	return nil
}

// PublishesTo reports whether an entity has no worker that answers: people
// and channels.
func PublishesTo(entity string) bool {
	t := subject.EntityType(entity)
	return t == subject.TypeHuman || t == subject.TypeBus
}

// Unserved returns the error for a task that would wait for an answer of an entity that
// [PublishesTo] names.
func Unserved(entity string) error {
	return envelope.Errorf(envelope.CodeNoResponders, "%s has no worker that answers", clip.Text(entity, 128))
}
