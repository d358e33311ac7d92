package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
)

// denied ends the worker if the server denies a subscription on which an agent receives tasks: the
// agent would wait in vain. Inboxes, and the optional subscription to new tasks of the queue, do
// not count.
func (w *Worker) denied(d denial.Denial) {
	mine := func(h *hosted) bool { return strings.HasSuffix("."+d.Subject, "."+h.Entity) }
	if d.Op != denial.Subscribe || strings.Contains(d.Subject, "aee.work.") || !strings.HasPrefix(d.Subject, "$SRV.") && !slices.ContainsFunc(w.agents, mine) {
		return
	}
	select {
	case w.refused <- d.Err:
	default:
	}
}

// A DeniedError says that the NATS user may not subscribe to a subject on which
// an agent receives tasks.
type DeniedError struct {
	Entity string // the agent, or the worker's first one if that is not known
	Err    error
}

func (e *DeniedError) Error() string {
	return "the NATS user may not listen where the agent must: " + e.Err.Error()
}
func (e *DeniedError) Unwrap() error { return e.Err }

// serve serves the agents until ctx ends, then drains. Its error says which
// agents could not be served, or what was lost.
func (w *Worker) serve(ctx context.Context, node *mesh.Node) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wait sync.WaitGroup
	errs := make([]error, len(w.agents))
	for i, h := range w.agents {
		wait.Go(func() {
			if errs[i] = h.Run(ctx, node); errs[i] != nil {
				stop() // if one agent fails, the others are stopped as well, because the operator restarts them together
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
	case err := <-w.refused:
		denied = &DeniedError{w.agents[0].Entity, err}
		stop()
		<-ended
	}
	for i, err := range errs {
		if denied == nil && errors.Is(err, nats.ErrPermissionViolation) { // mesh has seen it first
			errs[i] = &DeniedError{w.agents[i].Entity, err}
		}
	}
	return errors.Join(append([]error{denied}, errs...)...)
}
