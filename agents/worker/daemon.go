package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh"
)

// watch handles the errors of a connection before its own handler does, until
// the returned function is called.
func (w *Worker) watch(conn *nats.Conn) (end func()) {
	next := conn.ErrorHandler()
	conn.SetErrorHandler(func(conn *nats.Conn, sub *nats.Subscription, err error) {
		w.violated(sub, err)
		if next != nil {
			next(conn, sub, err)
		}
	})
	return func() { conn.SetErrorHandler(next) }
}

// violated ends the worker if the server has refused a subscription on which an
// agent receives tasks: the agent would wait for them in vain.
func (w *Worker) violated(sub *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	if sub != nil {
		err = fmt.Errorf("%s: %w", sub.Subject, err)
	}
	if text := err.Error(); strings.Contains(text, "Subscription") && w.mustHear(text) {
		select {
		case w.refused <- err:
		default:
		}
	}
}

// mustHear reports whether a violation is about a subject on which an agent
// receives tasks, and not about an inbox.
func (w *Worker) mustHear(violation string) bool {
	violation = strings.ToLower(violation)
	if strings.Contains(violation, `"$srv.`) {
		return true
	}
	return slices.ContainsFunc(w.agents, func(h *hosted) bool { return strings.Contains(violation, strings.ToLower(h.Entity)+`"`) })
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
