package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// daemon serves several agents on one node, from start until drained. "worker"
// and "demo" use it.
type daemon struct {
	node   *mesh.Node
	agents []*agents.Agent

	// refused receives the permission violations that the server reports. An
	// agent whose subscription was refused receives no tasks, so a violation
	// ends the daemon.
	refused chan error
}

func newDaemon(node *mesh.Node, served []*agents.Agent) *daemon {
	return &daemon{node: node, agents: served, refused: make(chan error, 1)}
}

// status handles an event of the connection before it is printed. It reports
// whether it is to be printed.
func (d *daemon) status(s natsconn.Status) bool {
	if s.Err == nil || !errors.Is(s.Err, nats.ErrPermissionViolation) {
		return true
	}
	text := s.Err.Error()
	if strings.Contains(text, "Subscription") && d.mustHear(text) {
		select {
		case d.refused <- s.Err:
		default:
		}
		return false
	}
	// The code that looks for JetStream's streams reports missing ones itself,
	// and a worker uses its inbox for nothing else.
	return !strings.Contains(text, `"$JS.`) && !strings.Contains(text, "Subscription")
}

// mustHear reports whether a violation is about a subject on which an agent
// receives tasks, and not about an inbox.
func (d *daemon) mustHear(violation string) bool {
	violation = strings.ToLower(violation)
	if strings.Contains(violation, `"$srv.`) {
		return true
	}
	for _, a := range d.agents {
		if strings.Contains(violation, strings.ToLower(a.Entity)+`"`) {
			return true
		}
	}
	return false
}

// run serves until ctx ends, then drains. Its error says which agents could not
// be served, or what was lost.
func (d *daemon) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wait sync.WaitGroup
	errs := make([]error, len(d.agents))
	for i, a := range d.agents {
		wait.Go(func() {
			if errs[i] = a.Run(ctx, d.node); errs[i] != nil {
				stop(nil) // if one agent fails, the others are stopped as well, because the operator restarts them together
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		wait.Wait()
		close(ended)
	}()
	var denied error
	select {
	case <-ended:
	case err := <-d.refused:
		denied = outcome.Hinted(fmt.Errorf("the NATS user may not listen where the agent must: %w", err),
			"\"aeemesh auth perms %s\" prints what it needs.", d.agents[0].Entity)
		stop(nil)
		<-ended
	}
	return errors.Join(append([]error{denied}, errs...)...)
}

// tellOnce lets each text through once, so that a message that recurs with
// every heartbeat does not fill a terminal.
type tellOnce struct {
	mu   sync.Mutex
	told map[string]bool
}

const maxTold = 256

func (t *tellOnce) first(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told == nil || len(t.told) > maxTold {
		t.told = map[string]bool{}
	}
	if t.told[text] {

		return false
	}
	t.told[text] = true
	return true
}
