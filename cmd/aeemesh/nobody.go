package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh"
)

// askAfter is how long to wait for an answer before checking
// whether the entity has a worker.
const askAfter = 3 * time.Second

// How often to check whether the workers that may have the task are still
// running, and after how many failed checks they count as gone: a worker that
// is disconnected for a moment comes back and answers.
const (
	firstLook = 100 * time.Millisecond // the first check: a task that takes longer is not a quick one
	goneLook  = 3 * time.Second
	goneAfter = 3
)

// watchWait watches over a command that waits for an answer. It prints a warning
// if no worker of the entity announces itself: NATS reports a subject without
// subscribers at once, but a program that only watches the subject counts as a
// subscriber. It ends the wait in three cases: all workers that ran when the
// task was sent are gone, so that none can answer; the subject has no
// subscriber any more; or the server has refused the request or the inbox for
// the answer, which NATS reports to the connection and not to the request.
func watchWait(a *session.App, ctx context.Context, node *mesh.Node, entity string) (_ context.Context, stop func()) {
	before := node.Conn().LastError()
	ctx, cancel := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		var had []mesh.Instance // the workers that may have the task
		missing := 0            // checks in a row that found none of them
		for since, next := time.Now(), time.Now().Add(firstLook); pause.For(ctx, 100*time.Millisecond); {
			if err := refusedTo(node.Conn(), before, entity); err != nil {
				cancel(err)
				return
			}
			if time.Now().Before(next) {
				continue
			}
			next = time.Now().Add(goneLook)
			found, err := node.Workers(ctx, entity, time.Second)
			switch {
			case err != nil || ctx.Err() != nil || !node.Conn().IsConnected():
			case had == nil && len(found) == 0 && time.Since(since) < askAfter:
				next = since.Add(askAfter)
			case had == nil && len(found) == 0 && noSubscriber(ctx, node, entity):
				if missing++; missing >= goneAfter {
					cancel(allGone(entity))
					return
				}
			case had == nil && len(found) == 0:
				a.Term.Warn("no worker announces itself as %s now: the worker that took the task is unreachable, or it is a program that does not announce itself; still waiting", entity)
				next = time.Now().Add(24 * time.Hour) // the warning is printed once
			case had == nil:
				had = found
			case slices.ContainsFunc(found, func(i mesh.Instance) bool { return isOneOf(i, had) }):
				missing = 0
			default:
				if missing++; missing >= goneAfter {
					cancel(allGone(entity))
					return
				}
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		wait.Wait()
	}
}

func allGone(entity string) error {
	return envelope.Errorf(envelope.CodeUnavailable, "all workers of %s that may have had the task are unreachable; it may have begun", entity)
}

// noSubscriber reports whether the entity's subject has no subscriber at all, as
// the server says, not even a program that does not announce itself.
func noSubscriber(ctx context.Context, node *mesh.Node, entity string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := node.Ping(ctx, entity)
	return errors.Is(err, &envelope.Error{Code: envelope.CodeNoResponders})
}

func isOneOf(i mesh.Instance, all []mesh.Instance) bool {
	return slices.ContainsFunc(all, func(j mesh.Instance) bool { return i.Info.ID == j.Info.ID })
}

// refusedTo checks whether the connection has a new error that means that a
// request to entity was refused.
func refusedTo(conn *nats.Conn, before error, entity string) error {
	err := conn.LastError()
	if err == before || !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	inbox := cmp.Or(conn.Opts.InboxPrefix, "_INBOX")
	switch text := strings.ToLower(err.Error()); {
	case strings.Contains(text, "publish") && strings.Contains(text, strings.ToLower(entity)+`"`):
		return envelope.Errorf(envelope.CodeDenied, "this NATS user may not publish to %s; \"aeemesh auth perms %s --sender\" prints what it needs", entity, entity)
	case strings.Contains(text, "subscription") && strings.Contains(text, `"`+strings.ToLower(inbox)+"."):
		return envelope.Errorf(envelope.CodeDenied, "this NATS user may not listen for answers on %s.>; name an inbox prefix of its own with --inbox-prefix", inbox)
	}
	return nil
}
