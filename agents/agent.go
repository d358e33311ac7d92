package agents

import (
	"context"
	"errors"

	"github.com/aeemesh/aeemesh/mesh"
)

// Agent is one agent, ready to be served.
type Agent struct {
	mesh.Agent
	Program *Program
}

// Run serves the agent.
func (a *Agent) Run(ctx context.Context, node *mesh.Node) error {
	if a.Program == nil {
		return node.Serve(ctx, a.Agent)
	}
	if err := a.Program.check(); err != nil {
		return err
	}
	serving, giveUp := context.WithCancel(ctx)
	defer giveUp()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		defer giveUp()
		ended <- a.Program.Run(running)
	}()
	err := node.Serve(serving, a.Agent)
	stop()
	return errors.Join(err, <-ended)
}
