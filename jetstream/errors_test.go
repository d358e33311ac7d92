package jetstream_test

import (
	"errors"
	"fmt"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
)

// A caller tries again what a server says of a stream that is away for now. nats-server
// gives some of that class 500.
func TestAway(t *testing.T) {
	t.Parallel()
	api := func(code int, id natsjs.ErrorCode, text string) error {
		return fmt.Errorf("read a run: %w", &natsjs.APIError{Code: code, ErrorCode: id, Description: text})
	}
	for _, c := range []struct {
		err  error
		away bool
	}{
		{api(503, 10008, "JetStream system temporarily unavailable"), true},
		{api(500, 10118, "stream is offline"), true},
		{api(500, 10119, "consumer is offline"), true},
		{api(500, 10194, "stream is offline: unsupported"), true},
		{api(500, 10195, "consumer is offline: unsupported"), true},
		{api(500, 10009, "JetStream cluster can not handle request"), true},
		{fmt.Errorf("write: %w", jetstream.ErrUncertain), true},
		{jetstream.ErrFull, true},
		{jetstream.ErrUnavailable, true},
		{natsjs.ErrNoStreamResponse, true},
		{api(400, 10071, "wrong last sequence"), false},
		{api(500, 10052, "invalid configuration"), false},
		{jetstream.ErrNotFound, false},
		{errors.New("else"), false},
	} {
		if got := jetstream.Away(c.err); got != c.away {
			t.Errorf("%v: away %v", c.err, got)
		}
	}
}
