package await

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/near"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
)

// askAfter is how long to wait for an answer before checking
// whether the entity has a worker.
const askAfter = 3 * time.Second

// When to check whether the workers that may have the task are still running, and after how
// many failed checks they count as gone: a worker that is disconnected for a moment comes
// back and answers.
const (
	firstLook = 100 * time.Millisecond // the first check: a task that takes longer is not a quick one
	goneLook  = 3 * time.Second        // from one check to the next
	goneAfter = 3
)

// Watch watches over a command that sends a live task with opts, which it extends, and waits for
// the answer. It prints a warning if no worker of the entity announces itself: NATS reports a
// subject without subscribers at once, but a program that only watches the subject counts as a
// subscriber. It ends the wait in three cases: all workers that ran when the
// task was sent are gone, so that none can answer; the subject has no
// subscriber any more; or the server has refused the request or the inbox for
// the answer, which NATS reports to the connection and not to the request.
//
// The workers are those of one attempt: a task that is sent again is watched anew. When a worker
// has named itself as the task's holder, the node watches it, also after a delegation, and the
// workers of the entity do not matter any more.
func Watch(ctx context.Context, a *session.App, node *mesh.Node, entity string, opts *mesh.SendOptions) (_ context.Context, stop func()) {
	return watch(ctx, a, node, entity, opts, goneLook)
}

// watch is Watch with the time from one check to the next.
func watch(ctx context.Context, a *session.App, node *mesh.Node, entity string, opts *mesh.SendOptions, look time.Duration) (_ context.Context, stop func()) {
	ctx, end := workers.UntilRefused(ctx, node.Conn(), entity)
	ctx, cancel := context.WithCancelCause(ctx)
	leave := func() {} // ends the watch of the last attempt
	begin := func(after time.Duration) {
		leave()
		during, over := context.WithCancel(ctx)
		var wait sync.WaitGroup
		wait.Go(func() {
			if pause.For(during, after) && untilGone(during, a, node, entity, look) {
				cancel(allGone(entity))
			}
		})
		leave = func() { over(); wait.Wait() }
	}
	retry := opts.OnRetry
	opts.OnRetry = func(attempt int, wait time.Duration, why *envelope.Error) {
		begin(wait)
		if retry != nil {
			retry(attempt, wait, why)
		}
	}
	opts.OnHolder = func() { leave() }
	begin(0)
	return ctx, func() {
		leave()
		cancel(nil)
		end()
	}
}

// untilGone returns true when no worker can have the task any more that is sent to the entity now,
// and false when ctx ends.
func untilGone(ctx context.Context, a *session.App, node *mesh.Node, entity string, look time.Duration) bool {
	var had []mesh.Instance // the workers that may have the task
	missing := 0            // checks in a row that found none of them
	for since, next := time.Now(), firstLook; missing < goneAfter; {
		if !pause.For(ctx, next) {
			return false
		}
		next = look
		found, err := node.Workers(ctx, entity, min(look, time.Second))
		switch {
		case err != nil || ctx.Err() != nil || !node.Conn().IsConnected():
		case had == nil && len(found) == 0 && time.Since(since) < look:
			next = time.Until(since.Add(look))
		case had == nil && len(found) == 0 && noSubscriber(ctx, node, entity):
			missing++
		case had == nil && len(found) == 0:
			a.Term.Warn("no worker announces itself as %s now: the worker that took the task is unreachable, or it is a program that does not announce itself; still waiting", entity)
			next = 24 * time.Hour // the warning is printed once
		case had == nil:
			had = found
		case slices.ContainsFunc(found, func(i mesh.Instance) bool { return isOneOf(i, had) }):
			missing = 0
		default:
			missing++
		}
	}
	return ctx.Err() == nil
}

func allGone(entity string) error {
	return envelope.Errorf(envelope.CodeUnavailable, "all workers of %s that may have had the task are unreachable; it may have begun", entity)
}

// LiveTaskGone reports whether no worker of an entity can have a live task any more that was under
// way at a time: no worker answers that ran then, and if none answers at all, nothing else is
// subscribed to the entity's subject. It returns false if it cannot ask.
func LiveTaskGone(ctx context.Context, s *session.Session, entity string, at time.Time) bool {
	found, ran := false, false
	var worker struct {
		Started time.Time `json:"started"`
	}
	asked := survey(ctx, s, micro.StatsVerb, entity, 3*time.Second, &worker, func() bool {
		found, ran = true, !worker.Started.After(at)
		return ran
	})
	return asked && !ran && (found || noSubscriber(ctx, s.Node, entity))
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

// lookAround bounds the search for agents with similar names.
const lookAround = time.Second

// meantEntity returns "did you mean …?" with the similar names of agents that answer
// or have had durable tasks; "" if there are none, or if they cannot be listed.
func meantEntity(ctx context.Context, s *session.Session, entity string) string {
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

// Unanswered describes the failure of a task to an entity, as [outcome.SendFailed] does.
// If no worker serves the entity, it suggests similar names. If the connection
// was lost during the wait, it says so: NATS does not keep live answers for a
// client that is not connected.
func Unanswered(ctx context.Context, s *session.Session, entity string, err error) error {
	failed := outcome.SendFailed(ctx, err)
	var e *envelope.Error
	if errors.As(err, &e) && e.Code == envelope.CodeTimeout && !e.FromPeer() && (s.Conn.Stats().Reconnects > 0 || !s.Conn.IsConnected()) {
		return outcome.Hinted(failed, "The connection was lost meanwhile: an answer that came then is lost, and the task may be done. --durable keeps answers; \"aeemesh tree CORR\" shows the state of the task.")
	}
	return unserved(ctx, s, entity, failed, err)
}

// Unasked describes why an agent did not answer a question about itself, as [outcome.AskFailed]
// does. If no worker serves the entity, it suggests similar names.
func Unasked(ctx context.Context, s *session.Session, entity string, err error) error {
	return unserved(ctx, s, entity, outcome.AskFailed(ctx, err), err)
}

// unserved adds to failed, the description of err, what helps if no worker serves the entity.
func unserved(ctx context.Context, s *session.Session, entity string, failed, err error) error {
	var e *envelope.Error
	if !errors.As(err, &e) || e.Code != envelope.CodeNoResponders || e.FromPeer() || ctx.Err() != nil {
		return failed
	}
	switch subject.EntityType(entity) {
	case subject.TypeHuman:
		return outcome.Hinted(failed, "\"aeemesh send %s TEXT --type task\" puts it into the inbox of this person; \"aeemesh result\" reads the answer.", entity)
	case subject.TypeBus:
		return outcome.Hinted(failed, "\"aeemesh send %s\" publishes an event there.", entity)
	}
	if meant := meantEntity(ctx, s, entity); meant != "" {
		return outcome.Hinted(failed, "%s %s", meant, outcome.HintForCode(e))
	}
	return failed
}
