package run

import (
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/state"
)

// A Verdict says what a message of the work queue means for its run.
type Verdict int

// The verdicts. The worker that has the message may claim the run for Mine and Moving
// only; the others say what becomes of the message.
const (
	Mine     Verdict = iota // claim the run, and let its handler work on it
	Ended                   // the run has ended, now or before: publish its reply, ack
	Parked                  // the run waits for an event: ack
	Moving                  // the run is to be moved, or another platform has it: claim it, and go on with the move
	Foreign                 // another message carries the run: ack this one
	Later                   // another message may carry the run, or will: nak this one
	Older                   // a later delivery of the message has claimed the run: neither ack nor nak
	Reused                  // the task has the id of another task: refuse it
	AskQueue                // no verdict yet: fill in Message.OtherMessage, and call Judge again
	AskRetry                // no verdict yet: fill in Message.Retried, and call Judge again
)

// A Fact is what a worker knows of something outside of the run's record.
type Fact int

// The facts.
const (
	Unknown Fact = iota // not asked yet
	No
	Maybe // the server does not tell
	Yes
)

// A Message is a delivery of the work queue, as far as a claim depends on it.
type Message struct {
	Worker      string    // the instance that has it
	Seq         uint64    // its sequence in the stream
	Redelivered uint64    // how often it was delivered before
	Taken       time.Time // when the worker got it, by the server's clock
	Same        bool      // its task is the record's

	// Retry identifies the retry of a dead letter that the message belongs to, in
	// Mesh.Commands; "" if it says of none. Retried says whether an operator has ordered
	// it: the message's header is not signed.
	Retry   string
	Retried Fact

	// OtherMessage says whether the queue still has the run's other message, whose sequence is
	// in the record (Mesh.Work).
	OtherMessage Fact
}

// ClockSlack is the greatest difference that is expected between the times by which two
// workers know the server's clock.
const ClockSlack = 50 * time.Millisecond

// Judge says what a message means for a run with the record c, which was stored at
// written. Facts cost a request; Judge asks for one (AskQueue, AskRetry) only where the
// verdict depends on it, and is then called again.
func Judge(c *state.Checkpoint, written time.Time, m Message) Verdict {
	k, own := &c.Mesh, Mine // the verdict on the run's own message
	switch {
	case c.Doc.Status == aaif.RunMigrating:
		own = judgeMoving(k.Migration)
	case state.Parked(c.Doc.Status):
		own = Parked
	}
	switch {
	case k.Task == nil && !c.Terminal():
		return Mine // no worker has begun the task; commands may be noted
	case !m.Same:
		return Reused
	case c.Terminal():
		if k.Dead == "" || m.Retry == "" || slices.Contains(k.Commands, m.Retry) {
			return Ended
		}
		switch m.Retried {
		case Unknown:
			return AskRetry
		case Yes:
			return Mine
		}
		return Ended
	case own == Parked:
		return Parked
	case k.Work != 0 && k.Work != m.Seq:
		switch m.OtherMessage {
		case Unknown:
			return AskQueue
		case Maybe:
			return Later
		case Yes:
			return Foreign
		}
	case k.Owner != "" && k.Owner != m.Worker && (written.After(m.Taken.Add(ClockSlack)) || m.Redelivered < k.Redelivered):
		// The lease on this delivery expired, and the server delivered the message again, to the
		// owner. This delivery was delayed in a connection, or by a suspended worker, and was
		// received after the other one: only the delivery count shows that.
		return Older
	}
	return own
}

func judgeMoving(m *state.Migration) Verdict {
	switch {
	case m == nil, m.To == intents.MigrateFile:
		return Parked
	case m.Phase == state.PhaseStaged:
		return Later // the receiver queues the run when it has accepted it, or deletes it
	case m.Phase == state.PhaseCaptured, m.Phase == state.PhaseAsked && !Remote(m.To):
		return Mine // the worker that moved it died before anything was decided
	}
	return Moving
}

// Owns reports whether a worker that claimed the run with an epoch still owns it.
func Owns(c *state.Checkpoint, worker string, epoch uint64) bool {
	return c.Mesh.Epoch == epoch && c.Mesh.Owner == worker && !c.Terminal()
}

// owned reports whether a worker owns the run, or died as its owner.
func owned(c *state.Checkpoint) bool {
	return !state.Parked(c.Doc.Status) && c.Mesh.Owner != ""
}

// midCall reports whether a tool call is under way: if the run stopped now, the outcome
// of the call would be unknown.
func midCall(c *state.Checkpoint) bool {
	return slices.ContainsFunc(c.Mesh.Effects, func(e state.Effect) bool { return e.Status == state.EffectInFlight })
}
