package mesh

import (
	"encoding/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// A signature says who sent a task and to which entity. It does not say in which mesh,
// and the same keys may be known in several: of two prefixes on one server, of two
// servers. requires.mesh, which the signature covers, says it: the subject prefix. So
// the bytes of one mesh are no task in another one.

// BindTask writes into requires that a task is for the mesh with a subject prefix. It
// is for those who sign a task themselves, before they do: a [Node] does it for what it
// signs. What is no task, and a mesh without a prefix, need nothing. It fails where the
// task names another mesh.
func BindTask(task *envelope.Envelope, prefix string) error {
	if task.Type != envelope.TypeTask || prefix == "" {
		return nil
	}
	named, err := namedMesh((&Task{Envelope: task}).required(requireMesh))
	switch {
	case err != nil:
		return err
	case named == prefix:
		return nil
	case named != "":
		return otherMesh(named, prefix)
	}
	members := map[string]json.RawMessage{}
	if task.Requires != nil {
		if err := json.Unmarshal(task.Requires, &members); err != nil {
			return envelope.Errorf(envelope.CodeRequires, "requires must be an object").WithCause(err)
		}
	}
	members[requireMesh] = mustJSON(prefix)
	task.Requires = mustJSON(members)
	return nil
}

// sign signs an envelope with a key of the node's or of an agent's, a task for this
// mesh only; nil does nothing.
func (n *Node) sign(e *envelope.Envelope, s *sign.Signer) error {
	if s == nil {
		return nil
	}
	if err := BindTask(e, n.cfg.Prefix); err != nil {
		return err
	}
	return s.Sign(e)
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
		return envelope.Errorf(envelope.CodeRequires, "requires.mesh: the task is for mesh %q, and this one has no prefix", clip(named))
	}
	return envelope.Errorf(envelope.CodeRequires, "requires.mesh: the task is for mesh %q, and this is %q", clip(named), prefix)
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
