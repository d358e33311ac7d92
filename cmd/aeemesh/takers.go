package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
)

// takers counts the workers of an entity that answer.
type takers struct {
	workers int
	durable int // workers of those that take durable tasks
}

func (t *takers) add(info micro.Info) {
	t.workers++
	if takesDurable(info) {
		t.durable++
	}
}

// takersOf counts the workers of each entity.
func takersOf(found []mesh.Instance) map[string]*takers {
	out := map[string]*takers{}
	for _, i := range found {
		if out[i.Entity] == nil {
			out[i.Entity] = &takers{}
		}
		out[i.Entity].add(i.Info)
	}
	return out
}

// takesDurable reports whether a worker takes durable tasks. A worker of a
// release before [mesh.MetaDurable] has an endpoint for them if it does.
func takesDurable(info micro.Info) bool {
	if says, ok := info.Metadata[mesh.MetaDurable]; ok {
		return says == mesh.DurableOn
	}
	return slices.ContainsFunc(info.Endpoints, func(e micro.EndpointInfo) bool { return e.Name == "work" })
}

// lacking says why durable tasks wait, as the text after "and"; "" if a worker
// takes them.
func (t *takers) lacking() string {
	switch {
	case t == nil || t.workers == 0:
		return "no worker that answers"
	case t.durable == 0 && t.workers == 1:
		return "its only worker takes no durable tasks"
	case t.durable == 0:
		return fmt.Sprintf("none of its %d workers takes durable tasks", t.workers)
	}
	return ""
}

// lookGap is how long without an answer until the search for workers ends.
const lookGap = 300 * time.Millisecond

// findTakers asks the workers of an entity whether they take durable tasks, until
// one does. It returns nil if it cannot ask.
func findTakers(s *session.Session, ctx context.Context, entity string) *takers {
	to, err := micro.ControlSubject(micro.InfoVerb, subject.ServiceName(entity), "")
	if err != nil {
		return nil
	}
	sub, err := s.Conn.SubscribeSync(s.Conn.NewRespInbox())
	if err != nil {
		return nil
	}
	defer sub.Unsubscribe()
	if err := s.Conn.PublishRequest(to, sub.Subject, nil); err != nil {
		return nil
	}
	var t *takers
	for {
		turn, cancel := context.WithTimeout(ctx, lookGap)
		msg, err := sub.NextMsgWithContext(turn)
		cancel()
		if errors.Is(err, nats.ErrNoResponders) || err == nil && len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
			return &takers{}
		}
		if err != nil {
			return t
		}
		if t == nil {
			t = &takers{}
		}
		var info micro.Info
		switch {
		case json.Unmarshal(msg.Data, &info) != nil, info.Metadata[mesh.MetaEntity] != entity, info.Metadata[mesh.MetaPrefix] != s.Node.Subjects().Prefix():
		default:
			if t.add(info); t.durable > 0 {
				return t
			}
		}
	}
}

// untaken says why no worker takes an entity's durable tasks now, with a hint;
// "" if one does, or if it cannot ask.
func untaken(s *session.Session, ctx context.Context, entity string) (why, hint string) {
	const start = "\"aeemesh worker FILE\" starts one; what is stored waits for it."
	t := findTakers(s, ctx, entity)
	switch {
	case t == nil || t.durable > 0:
		return "", ""
	case t.workers > 0:
		return entity + ": " + t.lacking(),
			"\"aeemesh agents list\" shows what they wait for, \"aeemesh doctor\" what is missing; what is stored waits meanwhile."
	case neverServed(s, ctx, entity):
		return "no worker has ever taken durable tasks of " + entity, cmp.Or(meantEntity(s, ctx, entity), start)
	}
	return "no worker of " + entity + " answers", start
}

// neverServed reports whether no worker has made the consumers of an entity's
// durable tasks yet.
func neverServed(s *session.Session, ctx context.Context, entity string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookAround)
	defer cancel()
	served, err := s.Node.Durable().Queue.Served(ctx, entity)
	return err == nil && !served
}

// stillUntaken is untaken for a wait that has timed out.
func stillUntaken(s *session.Session, ctx context.Context, entity string) (why, hint string) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return untaken(s, ctx, entity)
}

// mindTakers warns a command that waits for a durable task if no worker takes
// it: soon if no worker ever has, else when the wait is longer than usual.
// It asks nothing before the server has refused a task of a sender without
// permission: the refusal of the question would hide that of the task. The
// caller calls stop when a result begins to arrive; stop may be called again.
func mindTakers(s *session.Session, ctx context.Context, entity string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		if !pause.For(ctx, askAfter/10) || !neverServed(s, ctx, entity) && !pause.For(ctx, askAfter) {
			return
		}
		if why, hint := untaken(s, ctx, entity); why != "" && ctx.Err() == nil {
			s.App.Term.Warn("%s", why)
			s.App.Term.Hint(hint)
		}
	})
	return func() { cancel(); wait.Wait() }
}
