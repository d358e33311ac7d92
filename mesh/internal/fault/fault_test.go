package fault

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// What a peer is told of the failures of NATS and JetStream. Finding D7 of the
// reliability review: with JetStream away for a moment tasks ended with E_INTERNAL,
// which is not retried.
func TestTheBorderKnowsWhatMayPass(t *testing.T) {
	t.Parallel()
	api := func(http int, code natsjs.ErrorCode, text string) error {
		return &natsjs.APIError{Code: http, ErrorCode: code, Description: text}
	}
	for _, c := range []struct {
		err   error
		code  envelope.Code
		again bool
	}{
		{fmt.Errorf("find a reply: %w: %w", jetstream.ErrUnavailable, nats.ErrNoResponders), envelope.CodeUnavailable, true},
		{fmt.Errorf("submit a task: %w: %w", jetstream.ErrUnavailable, natsjs.ErrNoStreamResponse), envelope.CodeUnavailable, true},
		{fmt.Errorf("submit a task: %w", natsjs.ErrNoStreamResponse), envelope.CodeUnavailable, true},
		{fmt.Errorf("put into the inbox: %w", api(503, 10008, "JetStream system temporarily unavailable")), envelope.CodeUnavailable, true},
		{fmt.Errorf("put: %w", natsjs.ErrJetStreamNotEnabled), envelope.CodeUnavailable, true},
		{fmt.Errorf("publish: %w: %w", jetstream.ErrUncertain, context.DeadlineExceeded), envelope.CodeUnavailable, true},
		{fmt.Errorf("publish: %w: %w", state.ErrUncertain, nats.ErrTimeout), envelope.CodeUnavailable, true},
		{fmt.Errorf("publish: %w: %w", jetstream.ErrUncertain, nats.ErrDisconnected), envelope.CodeUnavailable, true},
		{fmt.Errorf("submit: %w", jetstream.ErrFull), envelope.CodeUnavailable, true},
		{fmt.Errorf("publish: %w", nats.ErrConnectionReconnecting), envelope.CodeUnavailable, true},
		{fmt.Errorf("publish: %w", nats.ErrReconnectBufExceeded), envelope.CodeUnavailable, true},
		{fmt.Errorf("publish: %w: %w", jetstream.ErrTooLarge, nats.ErrMaxPayload), envelope.CodeTooLarge, false},
		{fmt.Errorf("find: %w", api(400, 10003, "bad request")), envelope.CodeInternal, false},
		{fmt.Errorf("find: %w: %w", jetstream.ErrDenied, nats.ErrPermissionViolation), envelope.CodeInternal, false},
		{context.DeadlineExceeded, envelope.CodeTimeout, true},
		{nats.ErrTimeout, envelope.CodeTimeout, true},
		{context.Canceled, envelope.CodeCancelled, false},
		{nats.ErrNoResponders, envelope.CodeNoResponders, true},
		{errors.New("what nobody knows"), envelope.CodeInternal, false},
		{fmt.Errorf("said on purpose: %w", envelope.Errorf(envelope.CodeAgent, "no").WithCause(jetstream.ErrUnavailable)), envelope.CodeAgent, false},
	} {
		if got := ForPeer(c.err); got.Code != c.code || got.Retryable != c.again {
			t.Errorf("%v: %s, retryable %v; want %s, %v", c.err, got.Code, got.Retryable, c.code, c.again)
		}
	}
}
