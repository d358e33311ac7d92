package mesh

import (
	"encoding/json"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/delegated"
	"github.com/aeemesh/aeemesh/mesh/internal/requires"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// readRequires reads field requires of the task, once, into Requires and the members
// that the mesh reads itself. It returns only an error in the fields of Requires; errors
// in other members are found where those are read.
func (t *Task) readRequires() error {
	if !t.read {
		t.Requires, t.members, t.illegible = t.Envelope.ReadRequires()
		for i := range t.members {
			t.members[i].Value = requires.Canonical(t.members[i].Value)
		}
		t.read = true
	}
	return t.illegible
}

// required returns a member of requires, nil if it is absent or null.
func (t *Task) required(name string) json.RawMessage {
	if t.read {
		return t.members.Get(name)
	}
	return requires.Member(t.Envelope, name) // t is not a task that a worker received
}

// notBefore returns when the task is to begin at the earliest, by the server's clock; zero
// if requires.not_before is absent or invalid.
func (t *Task) notBefore() time.Time {
	at, _ := requires.ReadNotBefore(t.required(requires.NotBefore))
	return at
}

// forHere refuses a task that is for another mesh or for the other lane. The durable lane
// of an asynchronous agent also accepts signed tasks that name no lane, because its worker
// moves live tasks to the queue; see deliveries.notMoved. Delegated tasks are never moved, so
// they must name it.
func (t *Task) forHere(prefix string, durable, signed bool) *envelope.Error {
	if err := t.forMesh(prefix, signed); err != nil {
		return err
	}
	if intents.IsCommand(t.Envelope.Intent) {
		return nil
	}
	return requires.ForLane(t.required(requires.Lane), durable, signed, t.host.Async && !delegated.Claimed(t.required(requires.Handoff)))
}

// forMesh refuses a task that is for another mesh.
func (t *Task) forMesh(prefix string, signed bool) *envelope.Error {
	_ = t.readRequires() // prepare refuses the task if this fails; the members were decoded all the same
	return requires.ForMesh(t.required(requires.Mesh), prefix, signed)
}

// sign signs an envelope with a key of the node or of an agent. A task is bound to this
// mesh and one lane first. With a nil signer it does nothing.
func (n *Node) sign(e *envelope.Envelope, s *sign.Signer, durable bool) error {
	return requires.Sign(e, s, n.cfg.Prefix, durable)
}

// BindTask sets requires.mesh to the prefix, unless that is empty, and with durable sets
// requires.lane. Call it before you sign a task yourself; a [Node] calls it for the tasks
// that it signs. It changes only tasks. It fails if the task names another mesh, or if it
// names the live lane and durable is set. It fails for every envelope that a Node would not
// send: one whose requires hold what looks like a credential, and an event, or a task to a
// person or a channel, whose intent is under "aee.".
func BindTask(task *envelope.Envelope, prefix string, durable bool) error {
	if err := requires.WithoutSecrets(task); err != nil {
		return err
	}
	if err := wire.CheckIntent(task); err != nil {
		return err
	}
	return requires.Bind(task, prefix, durable)
}
