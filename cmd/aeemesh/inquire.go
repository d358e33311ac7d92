package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// wantsSignatures reports whether a worker of an entity may refuse unsigned
// tasks: it says so in its metadata, or is too old to say.
func wantsSignatures(found []mesh.Instance, entity string) bool {
	for _, i := range found {
		if mode := i.Info.Metadata[mesh.MetaSignatures]; i.Entity == entity && (mode == "" || mode == sign.Required.String()) {
			return true
		}
	}
	return false
}

// inquirer returns the node for asking an entity about its health. A key that
// was chosen automatically may not be known to the workers yet: they would
// refuse the signed request and raise an alert each time. So the request is
// unsigned if they accept that.
func inquirer(s *session.Session, found []mesh.Instance, entity string) *mesh.Node {
	if s.App.Sign.Kid != session.SignAuto || wantsSignatures(found, entity) {
		return s.Node
	}
	s.Once.Do(func() {
		node, err := mesh.New(s.Conn, mesh.Config{Prefix: s.App.Conn.Prefix, Entity: s.Node.Entity(), Logger: s.App.Log, Version: s.App.Version, Verifier: s.Verifier})
		if err != nil { // it has the same settings as the session's own node
			node = s.Node
		}
		s.Unsigned = node
	})
	return s.Unsigned
}

// inquire asks an entity with one of the aee.* intents. If the server does not
// permit the request, it fails at once.
func inquire(ctx context.Context, node *mesh.Node, entity, intent string, out any) error {
	before := node.Conn().LastError()
	ctx, cancel := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel(nil)
	wait.Go(func() {
		for pause.For(ctx, 20*time.Millisecond) {
			if err := refusedTo(node.Conn(), before, entity); err != nil {
				cancel(err)
				return
			}
		}
	})
	_, err := node.Query(ctx, entity, intent, struct{}{}, out)
	if refused := context.Cause(ctx); err != nil && mayNotAsk(refused) {
		return refused
	}
	return err
}

// mayNotAsk reports whether the server, not a worker, has refused a request.
func mayNotAsk(err error) bool {
	var e *envelope.Error
	return errors.As(err, &e) && e.Code == envelope.CodeDenied && !e.FromPeer()
}

// toldStatus returns the worst status in the stats of an entity's workers; ""
// if one of them has none.
func toldStatus(found []mesh.Instance, entity string) (worst string) {
	ranks := []string{"healthy", "degraded", "unhealthy"}
	for _, i := range found {
		if i.Entity != entity {
			continue
		}
		var own struct {
			Status string `json:"status"`
		}
		if at := endpointOf(i, "task"); at == nil || json.Unmarshal(at.Data, &own) != nil || !slices.Contains(ranks, own.Status) {
			return ""
		}
		if slices.Index(ranks, own.Status) > slices.Index(ranks, worst) {
			worst = own.Status
		}
	}
	return worst
}

// laneStats returns the durable lane of the first worker of an entity whose
// stats have one.
func laneStats(found []mesh.Instance, entity string) (lane laneHealth, ok bool) {
	for _, i := range found {
		if at := endpointOf(i, "work"); i.Entity == entity && at != nil && json.Unmarshal(at.Data, &lane) == nil && lane.State != "" {
			return lane, true
		}
	}
	return laneHealth{}, false
}

func endpointOf(i mesh.Instance, name string) *micro.EndpointStats {
	if i.Stats == nil {
		return nil
	}
	for _, e := range i.Stats.Endpoints {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// knowsKey checks, before a durable task is stored, whether a running worker
// knows the key that was chosen automatically: if not, the task would become a
// dead letter. If no worker answers soon, the task is stored.
func knowsKey(s *session.Session, ctx context.Context, task *envelope.Envelope) error {
	if s.App.Sign.Kid != session.SignAuto || task.Sig != nil {
		return nil
	}
	signer, err := s.App.Signer(task.From)
	if err != nil || signer == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	var refused *envelope.Error
	_, err = s.Node.Query(ctx, task.To, intents.StatusPing, struct{}{}, nil)
	if !errors.As(err, &refused) || !refused.FromPeer() || refused.Code != envelope.CodeKeyUnknown && refused.Code != envelope.CodeKeyInvalid && refused.Code != envelope.CodeFromDenied {
		return nil
	}
	return outcome.Hinted(&outcome.SaidError{Text: string(refused.Code) + ": nothing is stored: a worker of " + task.To + " would not take the task: " + refused.Message, Cause: refused}, "%s", outcome.HintForCode(refused))
}
