package requires

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
// Commands need no lane: a run keeps the ids of the commands that it has obeyed, and obeys none
// twice. A command that names a corr also applies to runs that began after it was sent, so within
// the skew bound a copy of it can reach such a run (docs/threat-model.md, "Replay").

const laneLive, laneDurable = "live", "durable"

// Bind sets requires.mesh and requires.lane of a task; see BindTask of package mesh.
func Bind(task *envelope.Envelope, prefix string, durable bool) error {
	if task.Type != envelope.TypeTask {
		return nil
	}
	bound := map[string]string{}
	switch named, err := namedMesh(Member(task, Mesh)); {
	case err != nil:
		return err
	case named != "" && named != prefix:
		return otherMesh(named, prefix)
	case named == "" && prefix != "":
		bound[Mesh] = prefix
	}
	switch named, err := namedLane(Member(task, Lane)); {
	case err != nil:
		return err
	case named == laneLive && durable:
		return otherLane(named)
	case named == "" && durable && !intents.IsCommand(task.Intent):
		bound[Lane] = laneDurable
	}
	if len(bound) == 0 {
		return nil
	}
	var members map[string]json.RawMessage
	if task.Requires != nil {
		if err := json.Unmarshal(task.Requires, &members); err != nil {
			return envelope.Errorf(envelope.CodeRequires, "requires must be an object").WithCause(err)
		}
	}
	if members == nil { // requires is absent, or null
		members = map[string]json.RawMessage{}
	}
	for name, value := range bound {
		members[name] = wire.MustJSON(value)
	}
	task.Requires = wire.MustJSON(members)
	return nil
}

// Sign signs an envelope. A task is bound to this mesh and one lane first. With a nil signer it
// does nothing.
func Sign(e *envelope.Envelope, s *sign.Signer, prefix string, durable bool) error {
	if s == nil {
		return nil
	}
	if err := Bind(e, prefix, durable); err != nil {
		return err
	}
	return s.Sign(e)
}

// ForMesh refuses a task whose requires.mesh names another mesh than the one with this
// prefix. If prefix is not empty, it also refuses a signed task that names no mesh. An
// unsigned task need not name one.
func ForMesh(raw json.RawMessage, prefix string, signed bool) *envelope.Error {
	named, err := namedMesh(raw)
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

// ForLane refuses a task whose requires.lane names the other lane, and on the durable lane
// a signed task that names none. With moved, the durable lane accepts such tasks, because
// live tasks may have been moved to it: the replay window tells whether they were.
func ForLane(raw json.RawMessage, durable, signed, moved bool) *envelope.Error {
	named, err := namedLane(raw)
	switch {
	case err != nil:
		return err
	case !durable && named == laneDurable:
		return otherLane(named)
	case !durable, named == laneDurable, moved:
		return nil
	case named != "":
		return otherLane(named)
	case signed:
		return envelope.Errorf(envelope.CodeRequires, "a signed task must name the durable lane here: set requires.lane to %q before it is signed", laneDurable)
	}
	return nil
}

// BoundDurable returns an error if a task that is already signed does not name the
// durable lane: workers would refuse it.
func BoundDurable(task *envelope.Envelope) error {
	named, err := namedLane(Member(task, Lane))
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
