package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// patienceBeforeAsking is how long no answer is nothing unusual.
const patienceBeforeAsking = 3 * time.Second

// wonder looks after somebody who waits for an answer. It tells when no worker
// of the entity announces itself: NATS says at once that nobody listens, but
// whoever watches the subject counts as a listener. And it ends the wait when
// the server refused what was sent, or the inbox for the answer, of which NATS
// tells the connection but not the request.
func (a *app) wonder(ctx context.Context, node *mesh.Node, entity string) (_ context.Context, stop func()) {
	before := node.Conn().LastError()
	ctx, cancel := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for since, asked := time.Now(), false; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := refusedTo(node.Conn(), before, entity); err != nil {
				cancel(err)
				return
			}
			if asked || time.Since(since) < patienceBeforeAsking {
				continue
			}
			asked = true
			found, err := node.Discover(ctx, entity, time.Second)
			if err == nil && len(found) == 0 && ctx.Err() == nil {
				a.term.warn("no worker announces itself as %s, though somebody listens there; still waiting", entity)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		wait.Wait()
	}
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
		return envelope.Errorf(envelope.CodeDenied, "this NATS user may not publish to %s; \"aeemesh auth perms %s --client PREFIX\" prints what it needs", entity, entity)
	case strings.Contains(text, "subscription") && strings.Contains(text, `"`+strings.ToLower(inbox)+"."):
		return envelope.Errorf(envelope.CodeDenied, "this NATS user may not listen for answers on %s.>; name an inbox prefix of its own with --inbox-prefix", inbox)
	}
	return nil
}
