package outcome

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
)

func TestTextLeavesOutTheLibrarysName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("nats: no servers"), "no servers"},
		{fmt.Errorf("connect: %w", errors.New("nats: timeout")), "connect: timeout"},
		{errors.Join(errors.New("nats: timeout"), errors.New("nats: no servers")), "timeout\nno servers"},
		{fmt.Errorf("to nats://a: %w\n", errors.New("x")), "to nats://a: x"},
	} {
		if got := Text(tt.err); got != tt.want {
			t.Errorf("%q is %q, want %q", tt.err, got, tt.want)
		}
	}
}

// Errors in the words of Go, NATS or JetStream have a hint at what to do.
func TestErrorsOfTheServerHaveAHint(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("read AEE_HUMAN: %w", context.DeadlineExceeded), "did not answer in time"},
		{fmt.Errorf("read AEE_HUMAN: %w", nats.ErrTimeout), "did not answer in time"},
		{fmt.Errorf("publish: %w: %w", jetstream.ErrUncertain, context.DeadlineExceeded), "may have been stored"},
		{fmt.Errorf("publish: %w: %w", jetstream.ErrDenied, context.DeadlineExceeded), "may not do this"},
		{fmt.Errorf("create: %w", &natsjs.APIError{Code: 400, ErrorCode: 10026}), "max_consumers"},
		{fmt.Errorf("create: %w", &natsjs.APIError{Code: 400, ErrorCode: 10027}), "max_streams"},
	} {
		if got := Hint(tt.err); !strings.Contains(got, tt.want) {
			t.Errorf("%v: hint %q, want %q in it", tt.err, got, tt.want)
		}
	}
}
