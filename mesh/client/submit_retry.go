package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream"
)

// submitPatience is how long Submit retries while JetStream does not answer: the servers of a
// cluster elect a leader within some seconds.
const submitPatience = 30 * time.Second

// submitTry bounds one attempt: the task, or its acknowledgement, can be lost while servers
// restart.
const submitTry = 5 * time.Second

// store submits a task to the work queue, and retries with the same id while the stream has no
// leader, or does not confirm: for submitPatience, or for the task's timeout if that is shorter.
// After an attempt with [jetstream.ErrUncertain] every later error is uncertain, too, because that
// attempt may have stored the task.
func (c *Client) store(ctx context.Context, task *envelope.Envelope, s jetstream.Submission, onRetry func(wait time.Duration, why error)) (jetstream.Submitted, error) {
	queue, until := c.cfg.Stores.Queue, time.Now().Add(submitPatience)
	if required, err := task.Requirements(); err == nil && required.Timeout > 0 && required.Timeout < submitPatience {
		until = time.Now().Add(required.Timeout)
	}
	var doubt error
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		try, cancel := context.WithTimeout(ctx, submitTry)
		stored, err := queue.Submit(try, s)
		cancel()
		switch {
		case err == nil:
			return stored, nil
		case errors.Is(err, jetstream.ErrUncertain):
			doubt = err
		case doubt != nil && !errors.Is(err, jetstream.ErrUnavailable):
			return stored, doubt
		case !errors.Is(err, jetstream.ErrUnavailable), queue.Missing(ctx):
			return stored, err
		}
		if doubt != nil {
			err = doubt
		}
		if ctx.Err() != nil || time.Until(until) < wait || errors.Is(err, nats.ErrConnectionClosed) {
			return stored, err
		}
		if onRetry != nil {
			onRetry(wait, err)
		}
		for {
			if !pause.For(ctx, wait) {
				return stored, err
			}
			if c.s.Line() != 0 || c.s.Conn.IsClosed() {
				break
			}
			if time.Until(until) < wait { // without a connection another copy would only wait in its buffer
				return stored, err
			}
		}
	}
}
