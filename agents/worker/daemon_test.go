package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func answering(entity string) *agents.Agent {
	return &agents.Agent{Agent: mesh.Agent{Entity: entity, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return json.RawMessage(`{"ok":true}`), nil
	})}}
}

// The daemon serves all its agents, and ends when its context ends.
func TestDaemonServesAndDrains(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	node, err := mesh.New(natstest.Conn(t, srv), mesh.Config{Drain: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- newDaemon(node, []*agents.Agent{answering("agent.one"), answering("agent.two")}).run(ctx)
	}()
	client, err := mesh.New(natstest.Conn(t, srv), mesh.Config{Entity: "human.ada"})
	if err != nil {
		t.Fatal(err)
	}
	for _, entity := range []string{"agent.one", "agent.two"} {
		task := envelope.New(envelope.TypeTask, "human.ada", entity, "agent.ask", nil)
		if _, err := client.Send(t.Context(), task, mesh.SendOptions{Retries: 20}); err != nil {
			t.Errorf("%s: %v", entity, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// One agent that cannot be served ends the others, with its error.
func TestDaemonEndsWithItsAgents(t *testing.T) {
	t.Parallel()
	node, err := mesh.New(natstest.Conn(t, natstest.Run(t, natsd.Config{})), mesh.Config{Drain: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = newDaemon(node, []*agents.Agent{answering("agent.one"), answering("bus.wrong")}).run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "bus.wrong") {
		t.Errorf("run: %v", err)
	}
}

// A worker whose subscriptions are refused ends.
func TestDaemonEndsWhenASubscriptionIsRefused(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{{Name: "w", Password: "w",
		Permissions: &natsd.Permissions{Subscribe: natsd.Subjects{Allow: []string{"$SRV.>"}}}}}})
	d := newDaemon(nil, []*agents.Agent{answering("agent.one")})
	conn, err := natsconn.Connect(t.Context(), natsconn.Config{URL: srv.ClientURL(), User: "w", Password: "w",
		OnStatus: func(s natsconn.Status) { d.status(s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if d.node, err = mesh.New(conn, mesh.Config{Drain: time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := d.run(t.Context()); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("run: %v", err)
	}
}
