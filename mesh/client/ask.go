package client

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/rpc"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/mesh/internal/tracing"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// Ask sends plain text to an entity's aee.ask lane and returns the plain text of its answer. If
// the agent answers with an error, Ask returns an *[envelope.Error]. It fails if the client
// requires signatures, because plain text has none.
func (c *Client) Ask(ctx context.Context, entity, text string) (string, error) {
	return c.AskRetrying(ctx, entity, text, SendOptions{})
}

// AskRetrying is Ask with retries. It uses Retries, OnRetry and OnHolder of opts.
func (c *Client) AskRetrying(ctx context.Context, entity, text string, opts SendOptions) (answer string, err error) {
	if PublishesTo(entity) {
		return "", Unserved(entity)
	}
	err = sender.Retrying(ctx, opts.Retries, opts.OnRetry, func(int) (err error) {
		answer, err = c.askOnce(ctx, entity, text, opts.OnHolder)
		return err
	})
	return answer, err
}

func (c *Client) askOnce(ctx context.Context, entity, text string, onHolder func()) (string, error) {
	to, err := c.s.Subjects.Ask(entity)
	if err != nil {
		return "", err
	}
	if c.s.Answers.Verifier.Mode == sign.Required {
		return "", envelope.Errorf(envelope.CodeSigRequired, "signatures are required here, and an answer in plain text has none; send a task to %s", entity)
	}
	header := nats.Header{wire.HeaderFrom: {c.cfg.Entity}}
	if parent := tracing.Traceparent(ctx); parent != "" {
		header[tracing.Header(ctx)] = []string{parent}
	}
	deadline, has := ctx.Deadline()
	if !has {
		deadline = time.Now().Add(c.cfg.DefaultTimeout)
	}
	x, err := c.s.Replies.Open(to, false, deadline)
	if err != nil {
		return "", fault.ForPeer(err)
	}
	var holder string
	defer func() {
		c.s.Holders.Leave(holder, x)
		c.s.Replies.Close(x)
	}()
	c.s.Replies.Send(x, rpc.Request{To: to, Header: header, Data: []byte(text)})
	answer, err := c.s.Holders.Await(ctx, x, "", &holder, onHolder)
	if err != nil {
		return "", fault.ForPeer(sender.Failure(&envelope.Envelope{To: entity}, err))
	}
	if code := answer.Header.Get("Nats-Service-Error-Code"); code != "" {
		e := envelope.Errorf(envelope.Code(code), "%s", strings.TrimPrefix(string(answer.Data), "error: "+code+": "))
		return "", e
	}
	return string(answer.Data), nil
}
