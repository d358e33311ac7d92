package await

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// WarnRetry returns a function for [mesh.SubmitOptions], which warns of the first retry.
func WarnRetry(t *term.Terminal) func(wait time.Duration, why error) {
	retried := false
	return func(_ time.Duration, why error) {
		if !retried {
			t.Warn("%s; trying again", outcome.Text(why))
		}
		retried = true
	}
}

// SubmitFailed says that a durable task is not stored, or that this is not known.
func SubmitFailed(task *envelope.Envelope, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrUncertain):
		return outcome.Hinted(err, "Perhaps it is stored: \"aeemesh result %s %s\" tells once the mesh answers again. An envelope of your own (\"aeemesh envelope new\", \"send --envelope FILE\") can be sent again and again: it is stored once.", task.ID, task.To)
	case errors.Is(err, jetstream.ErrAccountFull):
		return outcome.Hinted(err, "Nothing is stored. No limit of a stream helps: \"aeemesh doctor\" shows what holds the storage (delayed tasks are in AEE_SCHEDULE). Whoever runs the server can raise the account's max_file, or the server's max_file_store.")
	case errors.Is(err, jetstream.ErrFull) && strings.Contains(err.Error(), jetstream.StreamSchedule):
		return outcome.Hinted(err, "Nothing is stored. Tasks leave AEE_SCHEDULE when they are due: \"aeemesh queues\" shows for whom they wait.")
	case errors.Is(err, jetstream.ErrFull):
		return outcome.Hinted(err, "Nothing is stored. Workers make room as they work: \"aeemesh queues\" shows for whom there is none. \"aeemesh apply --limit AEE_WORK=max_bytes:1GiB\" takes more.")
	case errors.Is(err, jetstream.ErrUnavailable) && !jetstream.Off(err):
		stream := jetstream.StreamWork
		if strings.Contains(err.Error(), "schedule a task to ") {
			stream = jetstream.StreamSchedule
		}
		return outcome.Hinted(err, "Nothing is stored. In a cluster %s may be choosing a leader: it takes the task in some seconds, if more than half of its servers run. Where it is missing, \"aeemesh apply\" makes it. \"aeemesh doctor\" says which.", stream)
	}
	return session.LaneError(err)
}

// ResultFailed describes why there is no result of a durable task that is stored. reply is the
// error envelope of its agent, or nil.
func ResultFailed(ctx context.Context, s *session.Session, id, entity string, reply *envelope.Envelope, err error) error {
	var failed *envelope.Error
	switch {
	case errors.Is(err, mesh.ErrNoResult):
		return outcome.Hinted(outcome.NotFound("task %s has no result yet", id), "\"aeemesh result %s %s --follow\" waits for it; \"aeemesh runs show %s -e %s\" shows how far it is.", id, entity, id, entity)
	case Over(err):
		if why, hint := StillUntaken(ctx, s, entity); why != "" {
			return outcome.Hinted(outcome.Stopped(err, "stopped waiting; the task waits: %s", why), "%s", hint)
		}
		return outcome.Hinted(outcome.Stopped(err, "stopped waiting; the task goes on"), Again, id, entity, id, entity)
	case errors.As(err, &failed) && reply != nil:
		return outcome.WithReply(outcome.Remote(failed), reply)
	}
	return session.LaneError(err)
}

// Over reports whether err is the end of --timeout, or an interrupt.
func Over(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Again is the hint for a wait that is over before the task is: twice its id and its entity.
const Again = "\"aeemesh result %s %s --follow\" waits again; \"aeemesh runs cancel %s -e %s\" ends it."
