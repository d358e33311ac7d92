package mesh

import (
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
)

// A delegated task is a task of its own, whose requires.handoff names the original task (package
// internal/delegated). The answer goes to the sender of that one.

// handedBy reads requires.handed_by, the agents that delegated the task before.
func (t *Task) handedBy() ([]string, error) { return delegated.ReadBy(t.required(requires.HandedBy)) }

// readHanded reads requires.handoff, without verifying signatures.
func (t *Task) readHanded() (h *delegated.Handed, forbidden bool, err error) {
	return delegated.Read(t.required(requires.Handoff), t.Envelope)
}

// checkHanded reads and verifies requires.handoff of a task that was stored or received at a time,
// see [delegated.Check].
func (n *Node) checkHanded(t *Task, at time.Time) (h *delegated.Handed, forbidden bool, err error) {
	return delegated.Check(t.required(requires.Handoff), t.Envelope, n.cfg.Verifier, at, n.cfg.MaxHandoffs)
}

// acceptDelegation records that the task was delegated to this agent. It fails if requires.handoff
// is not valid. On the live lane the answer, also a refusal, goes to the reply subject of
// the message. So acceptDelegation records the chain before it verifies it; the caller verifies the
// chain of the answer. On the durable lane an answer goes to the first agent's reply subject
// only with a verified chain: a run that has begun before keeps the one that was verified when it began.
func (t *Task) acceptDelegation() (err error) {
	h, forbidden, err := t.readHanded()
	t.mustAnswerItself = forbidden
	if h == nil {
		return err
	}
	if t.run == nil {
		t.handed = h
	} else if proven, known := t.run.proves(h); proven || known {
		if proven {
			t.handed = h
		}
		return nil
	}
	h, _, err = t.host.node.checkHanded(t, admission{t}.stored())
	if h == nil {
		return err
	}
	if t.run != nil {
		if _, bad := t.host.node.subjects.Reply(h.Links.First().From, h.Task); bad != nil {
			return envelope.Errorf(envelope.CodeRequires, "requires.handoff: the original task cannot be answered: %w", bad)
		}
	}
	t.handed = h
	if t.run == nil {
		t.seq = h.Stream
	}
	return err
}

// checkProvenance refuses a task whose requires.handed_by or state reference is malformed.
// Without the first, the task could go in a circle; without the second, the handler would
// lack the sender's state document.
func checkProvenance(t *Task) error {
	if _, err := t.handedBy(); err != nil {
		return err
	}
	_, _, err := t.stateRef()
	return err
}

// answer returns an envelope that answers the task. The answer to a delegated task
// names the original task.
func (t *Task) answer(kind envelope.Type, payload json.RawMessage) *envelope.Envelope {
	e := t.Envelope.Reply(kind, payload)
	t.handed.Address(e)
	return e
}

// originalTask returns the entity and the id of the original task. The answer goes to the
// reply subject of that task.
func (t *Task) originalTask() (entity, id string) {
	if h := t.handed; h != nil {
		return h.Links.First().From, h.Task
	}
	return t.host.Entity, t.Envelope.ID
}
