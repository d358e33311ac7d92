package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// A signature binds an envelope to its recipient and, by requires.lane, to a lane, and
// not to a replica or a process. So what came signed is claimed in the mesh's replay
// window before it begins, on both lanes: who captured it has it done once, and gets no
// answer of a second time.

// asksSeen reports whether the mesh's replay window is asked about an envelope.
func (n *Node) asksSeen(env *envelope.Envelope, signed bool) bool {
	return n.cfg.Seen != nil && n.cfg.ReplayWindow > 0 && (signed || n.cfg.SeenUnsigned) && env.Type == envelope.TypeTask
}

// seenKey names an envelope in the mesh's replay window: by from and id
// together, so that nobody can spoil another's ids, and in a length that any
// store takes.
func seenKey(env *envelope.Envelope) string {
	sum := sha256.Sum256([]byte(env.From + "\x00" + env.ID))
	return hex.EncodeToString(sum[:])
}

// Who has an id in the replay window: a live arrival, one that an asynchronous agent's
// worker puts into the work queue, or a message of the queue by its sequence, which is
// one task however often it is delivered.
const (
	seenLive  = "live."
	seenLater = "later."
	seenWork  = "work."
)

// freshInMesh claims a live task in the mesh's replay window. Where the window cannot
// be asked, the task is refused if the operator insists on signatures or on the window:
// a replay must not get through because a store is down.
func (n *Node) freshInMesh(h *host, env *envelope.Envelope) *envelope.Error {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	by := seenLive + nuid.Next()
	if h.Async && h.joined() != nil {
		by = seenLater + nuid.Next()
	}
	switch holder, err := n.cfg.Seen.Claim(ctx, h.Entity, seenKey(env), by); {
	case err != nil && n.insistsOnSeen():
		return envelope.Errorf(envelope.CodeUnavailable, "the mesh's replay window cannot be asked for now: %w", err).WithBackoff(time.Second)
	case err != nil:
		h.log.Warn("the mesh's replay window cannot be asked; this process remembers ids for itself", "err", err)
	case holder != by:
		return envelope.Errorf(envelope.CodeReplay, "an envelope with this id came within the last %v", n.cfg.ReplayWindow)
	}
	return nil
}

func (n *Node) insistsOnSeen() bool {
	return n.cfg.SeenUnsigned || n.cfg.Verifier.Mode == sign.Required
}

// errLater says that a message is to be looked at again later.
var errLater = errors.New("later")

// firstInMesh claims a new durable task that came signed in the mesh's replay window.
// A task that another message of the queue brought is for the run's record to judge;
// where there is none, the other message may be about to make it: errLater.
func (l *lane) firstInMesh(ctx context.Context, r *Run) error {
	n, env := l.host.node, r.task.Envelope
	if r.task.KeyID == "" || !n.asksSeen(env, true) || intents.IsCommand(env.Intent) {
		return nil
	}
	by := seenWork + strconv.FormatUint(r.hold.Seq, 10)
	holder, err := n.cfg.Seen.Claim(ctx, l.host.Entity, seenKey(env), by)
	switch {
	case err != nil && n.insistsOnSeen():
		return errors.Join(errLater, err)
	case err != nil:
		l.host.log.Warn("the mesh's replay window cannot be asked", "id", env.ID, "err", err)
		return nil
	case holder == by, strings.HasPrefix(holder, seenLater) && !r.task.isHanded():
		return nil
	case strings.HasPrefix(holder, seenWork):
		switch _, err := l.cfg.States.Get(ctx, r.id); {
		case err == nil:
			return nil
		case !errors.Is(err, state.ErrNotFound):
			return errors.Join(errLater, err)
		case r.hold.Delivered <= seenTries:
			return errLater
		}
		// A sender that is not told whether its task is stored sends it again: the first
		// one may wait for a place.
		seq, _ := strconv.ParseUint(strings.TrimPrefix(holder, seenWork), 10, 64)
		if there, err := l.messageQueued(ctx, l.clock.now(), seq); err != nil || there != run.No {
			return errors.Join(errLater, err)
		}
	}
	return envelope.Errorf(envelope.CodeReplay, "an envelope with this id came within the last %v", n.cfg.ReplayWindow)
}

// seenTries is how often a message is given back whose task another message brought
// that has not made its run's record, before the queue is asked for that one.
const seenTries = 3
