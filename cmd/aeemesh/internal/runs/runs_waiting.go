package runs

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// A waitingTask is a task whose run has no record yet.
type waitingTask struct {
	ID, Entity string
	Due        time.Time // zero: its time has come, it is in the queue or a worker moves it there
}

// waiting returns the task that name means: its id, the id of its run, or the beginning of that as
// lists print it. It looks among the scheduled tasks of an entity, "" for any, then among the
// delayed ones that are due, and then in the queue of the entity, if the session has a durable lane.
// If there is none, it fails with state.ErrNotFound; if it could not look everywhere, with the
// reason.
func waiting(ctx context.Context, s *session.Session, name, entity string) (waitingTask, error) {
	var found []waitingTask
	var runs []string
	add := func(w waitingTask) {
		run := state.RunID(w.Entity, w.ID)
		if w.ID == name || len(name) >= shortRun && strings.HasPrefix(run, strings.ToLower(name)) {
			found, runs = append(found, w), append(runs, run)
		}
	}
	d, err := s.Lane()
	if err != nil {
		return waitingTask{}, err
	}
	scheduled, err := d.Queue.Scheduled(ctx, entity)
	for _, w := range scheduled {
		add(waitingTask{w.ID, w.Entity, w.Due})
	}
	if len(found) == 0 && err == nil {
		var due []jetstream.Scheduled
		due, err = d.Queue.Due(ctx, entity)
		for _, w := range due {
			add(waitingTask{ID: w.ID, Entity: w.Entity})
		}
	}
	if len(found) == 0 && entity != "" && s.Node.Durable() != nil {
		queued, bad := s.Node.QueuedTasks(ctx, entity)
		for _, id := range queued {
			add(waitingTask{ID: id, Entity: entity})
		}
		err = errors.Join(err, bad)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return waitingTask{}, severalRuns(name, runs)
	case err != nil:
		return waitingTask{}, err
	}
	return waitingTask{}, noRun{name}
}

// answered returns the one task that has a reply and no run, whose run would have an id that begins
// with name, as lists print it: a task that was withdrawn before a worker began it.
func answered(ctx context.Context, s *session.Session, name, entity string) (task, agent string, ok bool) {
	d, err := s.Lane()
	if err != nil || len(name) < shortRun {
		return "", "", false
	}
	found, err := d.Replies.OfRun(ctx, entity, name)
	if err != nil || len(found) != 1 {
		return "", "", false
	}
	return found[0].TaskID, found[0].Entity, true
}

// ofRun reports whether a name may be the id of a run without a record, or its beginning: a UUID of
// version 5, as [state.RunID] makes it. Any other name is the id of a task.
func ofRun(name string) bool {
	const form = "xxxxxxxx-xxxx-5xxx-vxxx-xxxxxxxxxxxx"
	if len(name) > len(form) {
		return false
	}
	for i, c := range []byte(strings.ToLower(name)) {
		allowed := form[i : i+1]
		switch allowed {
		case "x":
			allowed = "0123456789abcdef"
		case "v":
			allowed = "89ab"
		}
		if strings.IndexByte(allowed, c) < 0 {
			return false
		}
	}
	return true
}
