package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
)

// Discover lists the workers that answer, of one entity if entity is not empty. If the user lacks
// the permission to ask or to receive answers, it returns an error that wraps
// [nats.ErrPermissionViolation]. So an empty list means that no worker has answered.
func Discover(ctx context.Context, node *mesh.Node, entity string, wait time.Duration) ([]mesh.Instance, error) {
	since := denial.Now(node.Conn())
	found, err := node.Discover(ctx, entity, wait)
	if err != nil || len(found) > 0 {
		return found, err
	}
	inbox := inboxOf(node.Conn())
	refused, denied := since.Find(func(d denial.Denial) bool {
		return d.Op == denial.Publish && strings.HasPrefix(d.Subject, "$SRV.") || d.Op == denial.Subscribe && strings.HasPrefix(d.Subject, inbox)
	})
	if denied {
		return nil, outcome.Hinted(fmt.Errorf("agents cannot be discovered: %w", refused.Err), "That needs permission to publish to $SRV.INFO and $SRV.STATS, and an inbox for the answers (--inbox-prefix).")
	}
	return found, nil
}

// DiscoverIfAllowed is Discover, but if the user lacks the permission, it warns that it is not known
// how many workers answer.
func DiscoverIfAllowed(ctx context.Context, t *term.Terminal, node *mesh.Node, entity string, wait time.Duration) (found []mesh.Instance, known bool, err error) {
	found, err = Discover(ctx, node, entity, wait)
	if errors.Is(err, nats.ErrPermissionViolation) {
		t.Warn("how many workers answer is not known: %s", outcome.Text(err))
		return nil, false, nil
	}
	return found, true, err
}

// WantSignatures reports whether a worker of an entity may refuse unsigned
// tasks: it says so in its metadata, or is too old to say.
func WantSignatures(found []mesh.Instance, entity string) bool {
	return slices.ContainsFunc(found, func(i mesh.Instance) bool {
		mode := i.Info.Metadata[mesh.MetaSignatures]
		return i.Entity == entity && (mode == "" || mode == sign.Required.String())
	})
}

// Ask asks an entity with one of the aee.* intents. If the server does not
// permit the request, it fails at once.
func Ask(ctx context.Context, node *mesh.Node, entity, intent string, out any) error {
	ctx, stop := UntilRefused(ctx, node.Conn(), entity)
	defer stop()
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

// UntilRefused returns a context that ends when the server refuses a request to entity, or the
// inbox for its answer. The cause is then an error of which [MayNotAsk] is true.
func UntilRefused(ctx context.Context, conn *nats.Conn, entity string) (_ context.Context, stop func()) {
	inbox := inboxOf(conn)
	return denial.Until(ctx, conn, func(d denial.Denial) error { return refusal(d, entity, inbox) })
}

// Refused returns the error of [UntilRefused] if the server has refused a request to entity since
// the Since was made.
func Refused(since denial.Since, conn *nats.Conn, entity string) error {
	inbox := inboxOf(conn)
	d, _ := since.Find(func(d denial.Denial) bool { return refusal(d, entity, inbox) != nil })
	return refusal(d, entity, inbox)
}

func refusal(d denial.Denial, entity, inbox string) error {
	switch {
	case d.Op == denial.Publish && strings.HasSuffix("."+d.Subject, "."+entity):
		return envelope.Errorf(envelope.CodeDenied, "this NATS user may not publish to %s; \"aeemesh auth perms %s --sender\" prints what it needs", entity, entity)
	case d.Op == denial.Subscribe && strings.HasPrefix(d.Subject, inbox):
		return envelope.Errorf(envelope.CodeDenied, "this NATS user may not listen for answers on %s>; name an inbox prefix of its own with --inbox-prefix", inbox)
	}
	return nil
}

// inboxOf returns how the subjects of a connection's inboxes begin.
func inboxOf(conn *nats.Conn) string { return cmp.Or(conn.Opts.InboxPrefix, "_INBOX") + "." }
