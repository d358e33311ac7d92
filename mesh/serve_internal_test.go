package mesh

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Agents that wait for others to start do not wait longer than they are served.
func TestServeEndsWhileOtherAgentsStart(t *testing.T) {
	t.Parallel()
	n, err := New(natstest.Conn(t, natstest.Run(t, natsd.Config{})), Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range startAtOnce {
		n.starting <- struct{}{}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- n.Serve(ctx, Agent{Entity: "agent.a", Handler: HandlerFunc(func(context.Context, *Task) (json.RawMessage, error) { return nil, nil })})
	}()
	stop()
	if err := natstest.Within(t, "Serve to return", done); err != nil {
		t.Fatal(err)
	}
}
