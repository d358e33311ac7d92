package runs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Nor is it said to wait in the queue while that is not known.
func TestWhatACommandWaitsFor(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	conn := natstest.Conn(t, srv)
	if got := stillSilent(conn.IsConnected(), "agent.x"); !strings.HasPrefix(got, "no worker of agent.x has answered yet; once the command is stored, ") {
		t.Error(got)
	}
	lost := conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	srv.Close()
	select {
	case <-lost:
	case <-time.After(time.Minute):
		t.Fatal("the connection is not lost")
	}
	if got := stillSilent(conn.IsConnected(), "agent.x"); !strings.HasPrefix(got, "the connection to NATS is lost: whether ") {
		t.Error(got)
	}
}

// A command is said to be queued only if the server has stored it.
func TestWhatBecameOfACommandThatWasNotAnswered(t *testing.T) {
	t.Parallel()
	over := context.DeadlineExceeded
	for _, c := range []struct {
		err  error
		text string
		want outcome.Outcome
	}{
		{fmt.Errorf("command to agent.x: %w: %w", mesh.ErrQueued, over), "will be applied by the first that comes", outcome.Outcome{Code: envelope.CodeTimeout, Exit: outcome.Late}},
		{fmt.Errorf("command to agent.x: %w", over), "before the command was queued", outcome.Outcome{Code: envelope.CodeTimeout, Exit: outcome.Late}},
		{context.Canceled, "before the command was queued", outcome.Outcome{Code: outcome.CodeInterrupted, Exit: outcome.Failed}},
		{fmt.Errorf("command to agent.x: %w: %w", jetstream.ErrUncertain, over), "it may or may not be stored", outcome.Outcome{Code: outcome.CodeUncertain, Exit: outcome.Failed}},
	} {
		err := commandFailed(&session.App{}, c.err, "agent.x")
		if got := outcome.Of(err); got != c.want || !strings.Contains(outcome.Text(err), c.text) {
			t.Errorf("%v: %v, %v", c.err, got, err)
		}
	}
}
