package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh"
)

// Discover lists the workers that answer, of one entity if entity is not empty.
// If the server's permissions do not let the user ask or receive answers, it
// returns an error that wraps [nats.ErrPermissionViolation] instead of an empty
// list: none means that none has answered.
func Discover(ctx context.Context, node *mesh.Node, entity string, wait time.Duration) ([]mesh.Instance, error) {
	before := node.Conn().LastError()
	found, err := node.Discover(ctx, entity, wait)
	if err != nil || len(found) > 0 {
		return found, err
	}
	if refused := node.Conn().LastError(); refused != before && errors.Is(refused, nats.ErrPermissionViolation) {
		return nil, outcome.Hinted(fmt.Errorf("agents cannot be discovered: %w", refused), "That needs permission to publish to $SRV.INFO and $SRV.STATS, and an inbox for the answers (--inbox-prefix).")
	}
	return found, nil
}

// WantSignatures reports whether a worker of an entity may refuse unsigned
// tasks: it says so in its metadata, or is too old to say.
func WantSignatures(found []mesh.Instance, entity string) bool {
	for _, i := range found {
		if mode := i.Info.Metadata[mesh.MetaSignatures]; i.Entity == entity && (mode == "" || mode == sign.Required.String()) {
			return true
		}
	}
	return false
}

// Ask asks an entity with one of the aee.* intents. If the server does not
// permit the request, it fails at once.
func Ask(ctx context.Context, node *mesh.Node, entity, intent string, out any) error {
	before := node.Conn().LastError()
	ctx, cancel := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel(nil)
	wait.Go(func() {
		for pause.For(ctx, 20*time.Millisecond) {
			if err := RefusedTo(node.Conn(), before, entity); err != nil {
				cancel(err)
				return
			}
		}
	})
	_, err := node.Query(ctx, entity, intent, struct{}{}, out)
	if refused := context.Cause(ctx); err != nil && MayNotAsk(refused) {
		return refused
	}
	return err
}

// MayNotAsk reports whether the server, not a worker, has refused a request.
func MayNotAsk(err error) bool {
	var e *envelope.Error
	return errors.As(err, &e) && e.Code == envelope.CodeDenied && !e.FromPeer()
}

// RefusedTo checks whether the connection has a new error that means that a
// request to entity was refused.
func RefusedTo(conn *nats.Conn, before error, entity string) error {
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
