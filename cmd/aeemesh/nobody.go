package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// patienceBeforeAsking is how long no answer is nothing unusual.
const patienceBeforeAsking = 3 * time.Second

// How often it is looked whether the workers are still there that may have a task,
// and after how many looks without them they are taken for gone: one that is cut off
// for a moment comes back, and answers.
const (
	firstLook = 100 * time.Millisecond // after which a task is one that takes time
	goneLook  = 3 * time.Second
	goneAfter = 3
)

// wonder looks after somebody who waits for an answer. It tells when no worker
// of the entity announces itself: NATS says at once that nobody listens, but
// whoever watches the subject counts as a listener. It ends the wait when all
// workers are gone that were there when the task was sent, so that none can answer;
// when nothing listens any more where the task went; and when the server refused what was sent, or the inbox for the answer, of which
// NATS tells the connection but not the request.
func (a *app) wonder(ctx context.Context, node *mesh.Node, entity string) (_ context.Context, stop func()) {
	before := node.Conn().LastError()
	ctx, cancel := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		var had []mesh.Instance // the workers of which one may have the task
		missing := 0            // looks without any of them
		for since, next := time.Now(), time.Now().Add(firstLook); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
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
			case had == nil && len(found) == 0 && time.Since(since) < patienceBeforeAsking:
				next = since.Add(patienceBeforeAsking)
			case had == nil && len(found) == 0 && deserted(ctx, node, entity):
				if missing++; missing >= goneAfter {
					cancel(allGone(entity))
					return
				}
			case had == nil && len(found) == 0:
				a.term.warn("no worker announces itself as %s now: the one that took the task is gone, or it is a program that does not announce itself; still waiting", entity)
				next = time.Now().Add(24 * time.Hour) // it is said once
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
	return envelope.Errorf(envelope.CodeUnavailable, "all workers of %s are gone that may have had the task; it may have begun", entity)
}

// deserted reports that nothing listens to an entity, not even a program that does not
// announce itself: the server says so.
func deserted(ctx context.Context, node *mesh.Node, entity string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := node.Ping(ctx, entity)
	return errors.Is(err, &envelope.Error{Code: envelope.CodeNoResponders})
}

func isOneOf(i mesh.Instance, all []mesh.Instance) bool {
	return slices.ContainsFunc(all, func(j mesh.Instance) bool { return i.Info.ID == j.Info.ID })
}

// refusedTo reads the connection's last error, if it is a new one, as the
// refusal of a request to entity.
func refusedTo(conn *nats.Conn, before error, entity string) error {
	err := conn.LastError()
	if err == before || !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	inbox := conn.Opts.InboxPrefix
	if inbox == "" {
		inbox = "_INBOX"
	}
	switch text := strings.ToLower(err.Error()); {
	case strings.Contains(text, "publish") && strings.Contains(text, strings.ToLower(entity)+`"`):
		return envelope.Errorf(envelope.CodeDenied, "this NATS user may not publish to %s; \"aeemesh auth perms %s --sender\" prints what it needs", entity, entity)
	case strings.Contains(text, "subscription") && strings.Contains(text, `"`+strings.ToLower(inbox)+"."):
		return envelope.Errorf(envelope.CodeDenied, "this NATS user may not listen for answers on %s.>; name an inbox prefix of its own with --inbox-prefix", inbox)
	}
	return nil
}
