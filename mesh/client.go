package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/holders"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/tracing"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// SendOptions say how [Node.Send] sends. The zero value waits for the result
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
	// E_DRAINING, E_NO_RESPONDERS). Default 0.
	Retries int
	// OnRetry, if set, is called before each retry.
	OnRetry func(attempt int, wait time.Duration, why *envelope.Error)
	// NoCancel leaves the task running when ctx is cancelled. By default
	// Send then cancels the task.
	NoCancel bool
}

// Send sends a task to the live lane of its addressee (field to) and waits for the terminal
// envelope. It returns a result envelope with a nil error. It returns an error envelope
// together with an *[envelope.Error] that has FromPeer true. The task is signed if the node
// has a signer. ctx needs no deadline: without one, the node's default timeout applies; with
// one, Send writes it into requires.timeout_ms, unless that is set.
func (n *Node) Send(ctx context.Context, task *envelope.Envelope, opts SendOptions) (*envelope.Envelope, error) {
	if task.Type != envelope.TypeTask {
		return nil, fmt.Errorf("send %s: only a task has a result; publish events with Broadcast", task.Type)
	}
	if err := requires.WithoutSecrets(task); err != nil {
		return nil, err
	}
	ctx, span := n.tel.startSend(ctx, task)
	reply, err := n.sendRetrying(ctx, task, opts)
	endSend(span, err)
	return reply, err
}

func (n *Node) sendRetrying(ctx context.Context, task *envelope.Envelope, opts SendOptions) (*envelope.Envelope, error) {
	attempted := *task // the caller's task is not changed
	var reply *envelope.Envelope
	err := retrying(ctx, opts.Retries, opts.OnRetry, func(attempt int) (err error) {
		if attempt > 0 {
			attempted = *task
			attempted.ID, attempted.TS, attempted.Sig = envelope.NewID(), envelope.Now(), nil
		}
		reply, err = n.sendOnce(ctx, &attempted, opts)
		return err
	})
	return reply, err
}

// retrying calls send, and again up to retries times while its error says that the task was
// not begun. told, if not nil, is called before each retry.
func retrying(ctx context.Context, retries int, told func(attempt int, wait time.Duration, why *envelope.Error), send func(attempt int) error) error {
	for attempt := 0; ; attempt++ {
		err := send(attempt)
		if err == nil {
			return nil
		}
		problem, wait := worthRetrying(err, attempt)
		if problem == nil || attempt >= retries {
			return err
		}
		if told != nil {
			told(attempt+1, wait, problem)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err // the answer says more than "deadline exceeded"
		}
	}
}

// worthRetrying returns the error if it says that the task was not begun and a retry may
// succeed, else nil. It also returns how long to wait: the agent's backoff_ms, or an
// exponential backoff if that is longer, with jitter.
func worthRetrying(err error, attempt int) (*envelope.Error, time.Duration) {
	var e *envelope.Error
	if !errors.As(err, &e) {
		return nil, 0
	}
	switch e.Code {
	case envelope.CodeBusy, envelope.CodeRateLimited, envelope.CodeDraining:
	case envelope.CodeNoResponders:
		if e.FromPeer() {
			return nil, 0 // an agent answered, so the error is about another service that the agent called
		}
	default:
		return nil, 0
	}
	wait := max(e.Backoff(), 50*time.Millisecond<<min(attempt, 6))
	return e, wait/2 + rand.N(wait)
}

func (n *Node) sendOnce(ctx context.Context, task *envelope.Envelope, opts SendOptions) (*envelope.Envelope, error) {
	to, err := n.subjects.Live(task.To)
	if err != nil {
		return nil, err
	}
	deadline, stream, err := n.require(ctx, task, opts)
	if err != nil {
		return nil, err
	}
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	header, err := n.sender.Encode(ctx, task, false, opts.CBOR, buf)
	if err != nil {
		return nil, err
	}
	n.journal.Sent(task.ID, *buf, opts.CBOR)
	reply, err := n.sender.Exchange(ctx, deadline, task, rpc.Request{To: to, Header: header, Data: *buf, Stream: stream}, opts.OnStream)
	if err != nil && reply == nil {
		switch {
		case opts.NoCancel:
		case ctx.Err() != nil:
			n.sender.CancelSent(task, ctx.Err())
		case errors.Is(err, holders.ErrDied):
			n.sender.CancelSent(task, err) // the worker may only have lost its connection
		}
		return nil, fault.ForPeer(sender.Failure(task, err))
	}
	if reply.Type == envelope.TypeError {
		return reply, envelope.ErrorOf(reply)
	}
	return reply, err
}

// require sets stream and timeout_ms in requires, unless the task is signed already. It
// returns the time until which to wait: a little longer than the timeout, to get the agent's
// own E_TIMEOUT. It also returns whether stream envelopes will come.
func (n *Node) require(ctx context.Context, task *envelope.Envelope, opts SendOptions) (deadline time.Time, stream bool, err error) {
	have, err := task.Requirements()
	if err != nil {
		return deadline, false, err
	}
	now := time.Now()
	deadline, limited := ctx.Deadline()
	var timeout time.Duration // the timeout_ms to write; 0: none
	switch {
	case limited && have.Timeout == 0:
		left := deadline.Sub(now)
		timeout = max(time.Millisecond, left-min(left/20, sender.Grace))
	case !limited && have.Timeout == 0:
		timeout = n.cfg.DefaultTimeout
		deadline = now.Add(timeout + sender.Grace)
	case !limited:
		deadline = now.Add(have.Timeout + sender.Grace)
	}
	stream = have.Stream || opts.OnStream != nil
	ask := stream && !have.Stream
	if task.Sig != nil {
		return deadline, stream, nil // requires is signed and cannot be changed
	}
	switch {
	case !ask && timeout == 0:
		return deadline, stream, nil
	case task.Requires == nil:
		if !ask && timeout == n.cfg.DefaultTimeout {
			task.Requires = n.defaultRequires
			return deadline, stream, nil
		}
		task.Requires = envelope.Requirements{Stream: ask, Timeout: timeout}.AppendJSON(nil)
		return deadline, stream, nil
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(task.Requires, &members); err != nil {
		return deadline, stream, err
	}
	if ask {
		members["stream"] = json.RawMessage("true")
	}
	if timeout > 0 {
		members["timeout_ms"] = wire.MustJSON(timeout.Milliseconds())
	}
	task.Requires = wire.MustJSON(members)
	return deadline, stream, nil
}

// Cancel sends a cancel to all workers of an entity, for tasks that were sent with this node's
// entity as from. It does not wait; the sender of each cancelled task gets E_CANCELLED.
func (n *Node) Cancel(entity string, what intents.CancelTask) error {
	if err := n.sender.PublishControl(sender.NewCommand(n.cfg.Entity, entity, what)); err != nil {
		return err
	}
	return n.conn.FlushTimeout(2 * time.Second)
}

// Post publishes an envelope to its addressee (field to) and does not wait for a reply: an
// event to a person's inbox or a channel, or a task whose result is not needed.
func (n *Node) Post(ctx context.Context, e *envelope.Envelope) error {
	if err := requires.WithoutSecrets(e); err != nil {
		return err
	}
	to, err := n.subjects.Live(e.To)
	if err != nil {
		return err
	}
	buf := wire.GetBuffer()
	defer wire.PutBuffer(buf)
	header, err := n.sender.Encode(ctx, e, false, false, buf)
	if err != nil {
		return err
	}
	n.journal.Sent(e.ID, *buf, false)
	if err := n.sender.Publish(to, *buf, header); err != nil {
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

func (tel *telemetry) startSend(ctx context.Context, task *envelope.Envelope) (context.Context, trace.Span) {
	if tel.tracer == nil {
		return ctx, nil
	}
	return tel.tracer.Start(tracing.LocalOrRemote(ctx, task), "aee.send "+task.To, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", task.To),
		attribute.String("messaging.message.conversation_id", task.Corr), attribute.String("aee.intent", task.Intent),
	))
}

func endSend(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, string(fault.ForPeer(err).Code))
	}
	span.End()
}
