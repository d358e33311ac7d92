package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/near"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// lookAround bounds the looking for agents that somebody may have meant.
const lookAround = time.Second

// meant asks "did you mean …?" with the agents that answer, or have had durable
// tasks, and whose names are near; "" where none is, or none can be looked for.
func (s *session) meant(ctx context.Context, entity string) string {
	ctx, cancel := context.WithTimeout(ctx, lookAround)
	defer cancel()
	var names []string
	if found, err := s.node.Discover(ctx, "", lookAround/2); err == nil {
		for _, i := range found {
			names = append(names, i.Entity)
		}
	}
	if d := s.node.Durable(); d != nil {
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

// unanswered is sendFailed for a task to an entity: where nobody serves that, it
// asks whether another one was meant.
func (s *session) unanswered(ctx context.Context, entity string, err error) error {
	failed := sendFailed(ctx, err)
	var e *envelope.Error
	if !errors.As(err, &e) || e.Code != envelope.CodeNoResponders || e.FromPeer() || ctx.Err() != nil {
		return failed
	}
	if meant := s.meant(ctx, entity); meant != "" {
		return hinted(failed, "%s %s", meant, hintForCode(e))
	}
	return failed
}

// unserved says why nobody will do durable tasks of an entity for now; "" where
// somebody does, or nobody may look. The hint may be empty.
func (s *session) unserved(ctx context.Context, entity string) (why, hint string) {
	looking, cancel := context.WithTimeout(ctx, lookAround)
	defer cancel()
	served, err := s.node.Durable().Queue.Served(looking, entity)
	if err != nil || served {
		return "", ""
	}
	if found, err := s.node.Discover(looking, entity, lookAround/2); err == nil && len(found) > 0 {
		return fmt.Sprintf("the workers of %s take live tasks only: the task waits for one that takes durable ones", entity),
			"Their log says why. \"aeemesh doctor\" looks; \"aeemesh worker --durable on\" insists."
	}
	return fmt.Sprintf("no worker has ever taken durable tasks of %s: the task waits until one does", entity), s.meant(ctx, entity)
}

// wonderDurable looks after somebody who waits for a durable task: it says at once
// that nobody serves the entity, and after a while that no worker of it answers.
// What has begun to come ends it: the caller calls stop, which may be called again.
func (s *session) wonderDurable(ctx context.Context, entity string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		if why, hint := s.unserved(ctx, entity); why != "" && ctx.Err() == nil {
			s.app.term.warn("%s", why)
			s.app.term.hint(hint)
			return
		}
		timer := time.NewTimer(patienceBeforeAsking)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		found, err := s.node.Discover(ctx, entity, time.Second)
		if err != nil || len(found) > 0 || ctx.Err() != nil || mesh.PublishesTo(entity) {
			return
		}
		s.app.term.warn("no worker of %s answers now: the task waits for one; still waiting", entity)
	})
	return func() {
		cancel()
		wait.Wait()
	}
}
