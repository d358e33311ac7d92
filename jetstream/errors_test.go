package jetstream_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// What a connection refuses to buffer during an outage was certainly not sent, and may be
// sent later.
func TestAWriteThatIsNotBufferedIsAway(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	plain := connect(t, srv, nats.ReconnectBufSize(-1))
	srv.Close()
	waitFor(t, "the connection is lost", func() bool { return !plain.Conn().IsConnected() })
	for name, js := range map[string]natsjs.JetStream{"plain": plain, "gathered": jetstream.Gather(plain)} {
		_, err := jetstream.NewStates(js, subject.Map{}).Put(t.Context(), state.ID{Entity: "agent.a", Run: "r"}, 0, []byte("{}"))
		if !errors.Is(err, jetstream.ErrUnavailable) || errors.Is(err, jetstream.ErrUncertain) || !jetstream.Away(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

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
