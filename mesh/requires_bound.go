package mesh

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
)

// A signature says who sent a task and to which entity. It says neither in which mesh
// nor on which lane. The same keys may be known in several meshes: of two prefixes on
// one server, of two servers. And a task that was done on the live lane could be put
// into the work queue, and drawn once the replay window has forgotten it. So two members
// of requires, which the signature covers, say it:
//
//   - requires.mesh, the subject prefix of the mesh;
//   - requires.lane, "durable" for what goes to the work queue.
//
// Commands need no lane: a second time they change nothing.

const laneLive, laneDurable = "live", "durable"

// BindTask writes into requires which mesh a task is for, by its subject prefix, and that
// it is for the durable lane where it is. It is for those who sign a task themselves,
// before they do: a [Node] does it for what it signs. What is no task needs nothing, nor
// does a live task where there is no prefix. It fails where the task names another mesh,
// or the live lane where it is to be durable.
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
		members[name] = mustJSON(value)
	}
	task.Requires = mustJSON(members)
	return nil
}

// sign signs an envelope with a key of the node's or of an agent's, a task for this
// mesh and one lane only; nil does nothing.
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

// forMesh refuses a task that names another mesh than the one with this prefix, and
// where there is a prefix a signed one that names none. What is not signed proves
// nothing, and need not say it.
func (t *Task) forMesh(prefix string, signed bool) *envelope.Error {
	_ = t.readRequires() // its fault is answered elsewhere, and hides no member
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

// namedMesh reads requires.mesh; "" where it is absent.
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

// forLane refuses a task that names another lane, and on the durable lane a signed one
// that names none. An asynchronous agent's may come through the queue without, for its
// worker puts there what comes live, but for what was handed over.
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
	case !durable, named == laneDurable, t.host.Async && !t.isHanded():
		return nil
	case named != "":
		return otherLane(named)
	case signed:
		return envelope.Errorf(envelope.CodeRequires, "a signed task must name the durable lane here: set requires.lane to %q before it is signed", laneDurable)
	}
	return nil
}

// bindsDurable fails where a task that was signed before it is submitted does not name
// the durable lane: no worker would take it.
func bindsDurable(task *envelope.Envelope) error {
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
	return envelope.Errorf(envelope.CodeRequires, "requires.lane: the task is for the %s lane, and this is the other one", named)
}

// namedLane reads requires.lane; "" where it is absent.
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
