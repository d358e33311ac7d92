package worker

import (
	"context"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// newNode makes the node that serves the agents, with the stores that the mesh
// has. It returns the connection's JetStream, too.
func (w *Worker) newNode(ctx context.Context, conn *nats.Conn) (*mesh.Node, natsjs.JetStream, error) {
	cfg := w.cfg.Node
	m, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, nil, &ConfigError{"Node", err}
	}
	js, err := jetstream.New(conn, w.cfg.Domain)
	if err != nil {
		return nil, nil, err
	}
	cfg.ReplayWindow = mesh.ReplayWindow(cfg.ReplayWindow, cfg.Skew)
	if err := w.useSeen(ctx, js, m, &cfg); err != nil {
		return nil, nil, err
	}
	if err := w.useJournal(ctx, js, m, &cfg); err != nil {
		return nil, nil, err
	}
	if err := w.useLane(ctx, js, m, &cfg); err != nil {
		return nil, nil, err
	}
	node, err := mesh.New(conn, cfg)
	if err != nil {
		return nil, nil, &ConfigError{"Node", err}
	}
	return node, js, nil
}
