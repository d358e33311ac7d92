package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/nats-io/nuid"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/sched"
)

// A signature binds an envelope to its recipient and, by requires.lane, to a lane, but
// not to one worker. Therefore every signed task, except questions about a worker, is recorded in
// the mesh's replay window before it begins, on both lanes: an attacker who captured a task and sends it again
// cannot have it done twice, and gets no result.

// asksSeen reports whether the mesh's replay window is asked about an envelope.
func (n *Node) asksSeen(env *envelope.Envelope, signed bool) bool {
	return n.cfg.Seen != nil && n.cfg.ReplayWindow > 0 && (signed || n.cfg.SeenUnsigned) && env.Type == envelope.TypeTask && !asksAboutWorker(env.Intent)
}

// asksAboutWorker reports whether the answer to an intent is only what the worker says of itself:
// whether it serves, its health, what it can do. A task that is sent again changes nothing then, and
// only the process's own replay window is asked: an operator needs these answers most while
// JetStream, and with it the mesh's window, is away. The sender of the repetition learns what
// discovery says ($SRV.INFO, $SRV.STATS), and the details of health.
func asksAboutWorker(intent string) bool {
	switch intent {
	case intents.StatusPing, intents.StatusHealth, intents.SpecQuery, intents.CapabilityList:
		return true
	}
	return false
}

// seenKey returns the key of an envelope in the mesh's replay window. It contains from and
// id, so that a sender cannot block the ids of another one, and is a hash, so that its
// length fits every store.
func seenKey(env *envelope.Envelope) string {
	sum := sha256.Sum256([]byte(env.From + "\x00" + env.ID))
	return hex.EncodeToString(sum[:])
}

// Prefixes of the holder of an id in the replay window: a live message; a live message
// that an asynchronous agent moves to the work queue; a message of the work queue, with
// its sequence, so that a redelivery of the message is the same holder.
const (
	seenLive  = "live."
	seenLater = "later."
	seenWork  = "work."
)

// freshInMesh records a live task in the mesh's replay window. If the window cannot be
// reached, the task is refused where the operator requires signatures or the window for
// unsigned tasks: a replay must not be accepted because a store is down.
func (n *Node) freshInMesh(h *host, env *envelope.Envelope) *envelope.Error {
	ctx, cancel := context.WithTimeout(context.Background(), sched.LookTimeout)
	defer cancel()
	by := seenLive + nuid.Next()
	if h.Async && h.joined() != nil {
		by = seenLater + nuid.Next()
	}
	switch holder, err := n.cfg.Seen.Claim(ctx, h.Entity, seenKey(env), by); {
	case errors.Is(err, jetstream.ErrExists): // by was never claimed before, so another holder has the id
		return n.replayed()
	case err != nil && n.insistsOnSeen():
		return envelope.Errorf(envelope.CodeUnavailable, "the mesh's replay window cannot be asked for now: %w", err).WithBackoff(time.Second).NotBegun(env)
	case err != nil:
		h.log.Warn("the mesh's replay window cannot be asked; only this process's own replay window is used", "err", err)
	case holder != by:
		return n.replayed()
	}
	return nil
}

func (n *Node) replayed() *envelope.Error {
	return envelope.Errorf(envelope.CodeReplay, "an envelope with this id came within the last %v", n.cfg.ReplayWindow)
}

func (n *Node) insistsOnSeen() bool {
	return n.cfg.SeenUnsigned || n.cfg.Verifier.Mode == sign.Required
}
