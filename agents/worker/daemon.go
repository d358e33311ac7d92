package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
)

// denied ends the worker if the server denies a subscription on which an agent receives tasks or is
// found: the agent would wait in vain. Other subscriptions do not count: inboxes, the optional one
// to new tasks of the queue, and those of an application on the same connection.
func (w *Worker) denied(d denial.Denial) {
	if d.Op != denial.Subscribe || !slices.ContainsFunc(w.agents, func(h *hosted) bool { return w.needs(h.Entity, d.Subject) }) {
		return
	}
	select {
	case w.refused <- d.Err:
	default:
	}
}

// needs reports whether an agent must subscribe to a subject.
func (w *Worker) needs(entity, to string) bool {
	if rest, found := strings.CutPrefix(to, micro.APIPrefix+"."); found {
		verb, service, named := strings.Cut(rest, ".")
		name, id, _ := strings.Cut(service, ".")
		return (verb == "PING" || verb == "INFO" || verb == "STATS") && (!named || name == subject.ServiceName(entity)) && !strings.Contains(id, ".")
	}
	m, err := subject.New(w.cfg.Node.Prefix)
	if err != nil {
		return false
	}
	live, ask, ctl, err := m.Lanes(entity)
	return err == nil && (to == live || to == ask || to == ctl)
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
