package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/near"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
)

// lookAround bounds the search for agents with similar names.
const lookAround = time.Second

// meantEntity returns "did you mean …?" with the similar names of agents that answer
// or have had durable tasks; "" if there are none, or if they cannot be listed.
func meantEntity(s *session.Session, ctx context.Context, entity string) string {
	ctx, cancel := context.WithTimeout(ctx, lookAround)
	defer cancel()
	var names []string
	if found, err := s.Node.Discover(ctx, "", lookAround/2); err == nil {
		for _, i := range found {
			names = append(names, i.Entity)
		}
	}
	if d := s.Node.Durable(); d != nil {
		if served, err := d.Queue.Backlog(ctx); err == nil {
			for _, b := range served {
				if b.Priorities[0].Consumer {
					names = append(names, b.Entity)
				}
			}
		}
	}
	if near := near.Names(entity, names, 3); len(near) > 0 {
		return "Did you mean " + strings.Join(near, ", ") + "?"
	}
	return ""
}

// unanswered describes the failure of a task to an entity, as sendFailed does.
// If no worker serves the entity, it suggests similar names. If the connection
// was lost during the wait, it says so: NATS does not keep live answers for a
// client that is not connected.
func unanswered(s *session.Session, ctx context.Context, entity string, err error) error {
	failed := outcome.SendFailed(ctx, err)
	var e *envelope.Error
	if errors.As(err, &e) && e.Code == envelope.CodeTimeout && !e.FromPeer() && (s.Conn.Stats().Reconnects > 0 || !s.Conn.IsConnected()) {
		return outcome.Hinted(failed, "The connection was lost meanwhile: an answer that came then is lost, and the task may be done. --durable keeps answers; \"aeemesh tree CORR\" shows the state of the task.")
	}
	if !errors.As(err, &e) || e.Code != envelope.CodeNoResponders || e.FromPeer() || ctx.Err() != nil {
		return failed
	}
	if meant := meantEntity(s, ctx, entity); meant != "" {
		return outcome.Hinted(failed, "%s %s", meant, outcome.HintForCode(e))
	}
	return failed
}
