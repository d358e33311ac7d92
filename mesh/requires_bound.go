package mesh

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// The signed fields from and to do not name the mesh and the lane of a task. Several
// meshes may trust the same keys: meshes with different prefixes on one server, or on
// different servers. And an attacker could put a task that was done on the live lane into
// the work queue, and a worker would draw it once the replay window has forgotten it. So
// two members of requires, which the signature covers, name mesh and lane:
//
//   - requires.mesh, the subject prefix of the mesh;
//   - requires.lane, "durable" for a task that goes to the work queue.
//
// Commands need no lane: a command that is applied twice changes nothing the second time.

const laneLive, laneDurable = "live", "durable"

// BindTask sets requires.mesh to the prefix, unless that is empty, and with durable sets
// requires.lane. Call it before you sign a task yourself; a [Node] calls it for the tasks
// that it signs. It does nothing for envelopes that are not tasks. It fails if the task
// names another mesh, or if it names the live lane and durable is set.
func BindTask(task *envelope.Envelope, prefix string, durable bool) error {
	if task.Type != envelope.TypeTask {
		return nil
	}
	t := &Task{Envelope: task}
	bound := map[string]string{}
	switch named, err := namedMesh(t.required(requireMesh)); {
	case err != nil:
		return err
	case named != "" && named != prefix:
		return otherMesh(named, prefix)
	case named == "" && prefix != "":
		bound[requireMesh] = prefix
	}
	switch named, err := namedLane(t.required(requireLane)); {
	case err != nil:
		return err
	case named == laneLive && durable:
		return otherLane(named)
	case named == "" && durable && !intents.IsCommand(task.Intent):
		bound[requireLane] = laneDurable
	}
	if len(bound) == 0 {
		return nil
	}
	members := map[string]json.RawMessage{}
	if task.Requires != nil {
		if err := json.Unmarshal(task.Requires, &members); err != nil {
			return envelope.Errorf(envelope.CodeRequires, "requires must be an object").WithCause(err)
		}
	}
	for name, value := range bound {
		members[name] = wire.MustJSON(value)
	}
	task.Requires = wire.MustJSON(members)
	return nil
}

// sign signs an envelope with a key of the node or of an agent. A task is bound to this
// mesh and one lane first. With a nil signer it does nothing.
func (n *Node) sign(e *envelope.Envelope, s *sign.Signer, durable bool) error {
	if s == nil {
		return nil
	}
	if err := BindTask(e, n.cfg.Prefix, durable); err != nil {
		return err
	}
	return s.Sign(e)
}

// forHere refuses a task that is for another mesh or for the other lane.
func (t *Task) forHere(prefix string, durable, signed bool) *envelope.Error {
	if err := t.forMesh(prefix, signed); err != nil {
		return err
	}
	return t.forLane(durable, signed)
}

// forMesh refuses a task that names another mesh than the one with this prefix. If prefix
// is not empty, it also refuses a signed task that names no mesh. An unsigned task need
// not name one.
func (t *Task) forMesh(prefix string, signed bool) *envelope.Error {
	_ = t.readRequires() // prepare answers its error, which hides no member
	named, err := namedMesh(t.required(requireMesh))
	switch {
	case err != nil:
		return err
	case named == "" && signed && prefix != "":
		return envelope.Errorf(envelope.CodeRequires, "a signed task must name its mesh here: set requires.mesh to %q before it is signed", prefix)
	case named != "" && named != prefix:
		return otherMesh(named, prefix)
	}
	return nil
}

func otherMesh(named, prefix string) *envelope.Error {
	if prefix == "" {
		return envelope.Errorf(envelope.CodeRequires, "requires.mesh: the task is for mesh %q, and this one has no prefix", clip.Text(named, 128))
	}
	return envelope.Errorf(envelope.CodeRequires, "requires.mesh: the task is for mesh %q, and this is %q", clip.Text(named, 128), prefix)
}

// namedMesh reads requires.mesh; "" if it is absent.
func namedMesh(raw json.RawMessage) (string, *envelope.Error) {
	if raw == nil {
		return "", nil
	}
	var named string
	if json.Unmarshal(raw, &named) != nil || named == "" {
		return "", envelope.Errorf(envelope.CodeRequires, "requires.mesh must be a text: the subject prefix of the mesh that the task is for")
	}
	return named, nil
}

// forLane refuses a task that names the other lane, and on the durable lane a signed task
// that names none. The durable lane of an asynchronous agent accepts tasks without that
// check, because its worker moves live tasks to the queue. Delegated tasks are never
// moved, so they are checked there, too.
func (t *Task) forLane(durable, signed bool) *envelope.Error {
	if intents.IsCommand(t.Envelope.Intent) {
		return nil
	}
	_ = t.readRequires()
	named, err := namedLane(t.required(requireLane))
	switch {
	case err != nil:
		return err
	case !durable && named == laneDurable:
		return otherLane(named)
	case !durable, named == laneDurable, t.host.Async && !t.claimsDelegated():
		return nil
	case named != "":
		return otherLane(named)
	case signed:
		return envelope.Errorf(envelope.CodeRequires, "a signed task must name the durable lane here: set requires.lane to %q before it is signed", laneDurable)
	}
	return nil
}

// checkBoundDurable returns an error if a task that is already signed does not name the
// durable lane: workers would refuse it.
func checkBoundDurable(task *envelope.Envelope) error {
	named, err := namedLane((&Task{Envelope: task}).required(requireLane))
	switch {
	case err != nil:
		return err
	case named == laneDurable, intents.IsCommand(task.Intent):
		return nil
	}
	return envelope.Errorf(envelope.CodeRequires, "the task is signed already, and not for the durable lane: set requires.lane to %q before it is signed", laneDurable)
}

func otherLane(named string) *envelope.Error {
	return envelope.Errorf(envelope.CodeRequires, "requires.lane: the task is for the %s lane only", named)
}

// namedLane reads requires.lane; "" if it is absent.
func namedLane(raw json.RawMessage) (string, *envelope.Error) {
	if raw == nil {
		return "", nil
	}
	var named string
	if json.Unmarshal(raw, &named) != nil || named != laneLive && named != laneDurable {
		return "", envelope.Errorf(envelope.CodeRequires, "requires.lane must be %q or %q", laneLive, laneDurable)
	}
	return named, nil
}
