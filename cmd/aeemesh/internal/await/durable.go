package await

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// lookGap is how long the search for workers goes on without a further answer.
const lookGap = 300 * time.Millisecond

// survey sends a request of NATS micro to the workers of an entity. It reads every answer of one of
// this mesh into answer and calls each, until each returns true or none comes for gap. It reports
// whether it could ask: a worker has answered, or the server says that there is none.
func survey(ctx context.Context, s *session.Session, verb micro.Verb, entity string, gap time.Duration, answer any, each func() (enough bool)) (asked bool) {
	to, err := micro.ControlSubject(verb, subject.ServiceName(entity), "")
	if err != nil {
		return false
	}
	sub, err := s.Conn.SubscribeSync(jetstream.ReplyInbox(s.Conn))
	if err != nil {
		return false
	}
	defer sub.Unsubscribe()
	if err := s.Conn.PublishRequest(to, sub.Subject, nil); err != nil {
		return false
	}
	for {
		turn, cancel := context.WithTimeout(ctx, gap)
		msg, err := sub.NextMsgWithContext(turn)
		cancel()
		if errors.Is(err, nats.ErrNoResponders) || err == nil && len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
			return true
		}
		if err != nil {
			return asked
		}
		asked = true
		var who micro.ServiceIdentity
		if json.Unmarshal(msg.Data, &who) == nil && who.Metadata[mesh.MetaEntity] == entity && who.Metadata[mesh.MetaPrefix] == s.Node.Subjects().Prefix() &&
			json.Unmarshal(msg.Data, answer) == nil && each() {
			return true
		}
	}
}

// findTakers asks the workers of an entity whether they take durable tasks, until
// one does. It returns nil if it cannot ask.
func findTakers(ctx context.Context, s *session.Session, entity string) *workers.Takers {
	t := &workers.Takers{}
	var info micro.Info
	if !survey(ctx, s, micro.InfoVerb, entity, lookGap, &info, func() bool {
		t.Add(info)
		info = micro.Info{}
		return t.Durable > 0
	}) {
		return nil
	}
	return t
}

// Untaken returns why no worker takes an entity's durable tasks now, and a hint; "" if one does,
// or if it cannot ask.
func Untaken(ctx context.Context, s *session.Session, entity string) (why, hint string) {
	const start = "\"aeemesh worker FILE\" starts one; what is stored waits for it."
	t := findTakers(ctx, s, entity)
	switch {
	case t == nil || t.Durable > 0:
		return "", ""
	case t.Workers > 0:
		return entity + ": " + t.Lacking(),
			"\"aeemesh agents list\" shows what they wait for, \"aeemesh doctor\" what is missing; what is stored waits meanwhile."
	case neverServed(ctx, s, entity):
		return "no worker has ever taken durable tasks of " + entity, cmp.Or(meantEntity(ctx, s, entity), start)
	}
	return "no worker of " + entity + " answers", start
}

// neverServed reports whether no worker has made the consumers of an entity's
// durable tasks yet.
func neverServed(ctx context.Context, s *session.Session, entity string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookAround)
	defer cancel()
	served, err := s.Node.Durable().Queue.Served(ctx, entity)
	return err == nil && !served
}

// StillUntaken is Untaken for a wait that has timed out.
func StillUntaken(ctx context.Context, s *session.Session, entity string) (why, hint string) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return Untaken(ctx, s, entity)
}

// WarnUntaken warns a command that waits for a durable task if no worker takes it: soon if no
// worker ever has, else when the wait is longer than usual. It first waits until the server would
// have refused a task of a sender without permission: the refusal of its own request would hide
// that of the task. The caller calls stop when a result begins to arrive; stop may be called
// again.
func WarnUntaken(ctx context.Context, s *session.Session, entity string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		if !pause.For(ctx, askAfter/10) || !neverServed(ctx, s, entity) && !pause.For(ctx, askAfter) {
			return
		}
		if why, hint := Untaken(ctx, s, entity); why != "" && ctx.Err() == nil {
			s.App.Term.Warn("%s", why)
			s.App.Term.Hint(hint)
		}
	})
	return func() { cancel(); wait.Wait() }
}
