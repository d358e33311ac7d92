package mesh

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/aeemesh/aeemesh/envelope"
)

// Defaults of [TreeLimits].
const DefaultMaxDepth = 16

// TreeLimits bound a tree of tasks: one that somebody sent, and all that came of
// it because agents called one another. A sender may set lower ones for his own
// tree (requires.tree), never higher ones.
type TreeLimits struct {
	// MaxDepth is how many hops a task may be away from the one that somebody
	// sent. Default 16.
	MaxDepth int
}

func (l TreeLimits) normal() (TreeLimits, error) {
	if l.MaxDepth == 0 {
		l.MaxDepth = DefaultMaxDepth
	}
	if l.MaxDepth < 0 {
		return l, errors.New("Tree.MaxDepth cannot be negative")
	}
	return l, nil
}

// tree is what requires.tree says: where in its tree a task is, and how far the
// tree may grow. A sender's own task has bounds only.
type tree struct {
	Root     string `json:"root,omitempty"`      // the id of the task that somebody sent
	Depth    int    `json:"depth,omitempty"`     // hops from there
	MaxDepth int    `json:"max_depth,omitempty"` // 0: the operator's
}

// treeOf reads requires.tree; nil where there is none.
func treeOf(e *envelope.Envelope) (*tree, error) {
	if !bytes.Contains(e.Requires, []byte(`"tree"`)) {
		return nil, nil
	}
	var requires struct {
		Tree *tree `json:"tree"`
	}
	err := json.Unmarshal(e.Requires, &requires)
	if t := requires.Tree; err != nil || t != nil && (t.Depth < 0 || t.MaxDepth < 0 || len(t.Root) > maxName) {
		return nil, envelope.Errorf(envelope.CodeRequires, "requires.tree is no description of a tree of tasks")
	}
	return requires.Tree, nil
}

// inTree reads what a task says of its tree, and refuses one that is beyond its
// bounds. What came with it can only lower them.
func (n *Node) inTree(t *Task) (err error) {
	if t.tree, err = treeOf(t.Envelope); err != nil || t.tree == nil {
		return err
	}
	if most := n.maxDepth(t.tree); t.tree.Depth > most {
		return tooDeep(t.tree.Depth, most)
	}
	return nil
}

func (n *Node) maxDepth(t *tree) int {
	if t.MaxDepth > 0 {
		return min(t.MaxDepth, n.cfg.Tree.MaxDepth)
	}
	return n.cfg.Tree.MaxDepth
}

func tooDeep(depth, most int) *envelope.Error {
	return envelope.Errorf(envelope.CodeTreeLimit, "the task would be %d hops away from the one that began its tree, and %d are allowed", depth, most)
}

// inherit writes into the members of requires what a task that t sends on has
// from it: human_approval, and its place in the tree, one hop further. It fails
// where there is no room for that.
func (t *Task) inherit(members map[string]json.RawMessage) error {
	n := t.host.node
	next := tree{Root: t.Envelope.ID}
	if t.tree != nil {
		next = *t.tree
		if next.Root == "" {
			next.Root = t.Envelope.ID
		}
	}
	next.Depth++
	next.MaxDepth = n.maxDepth(&next)
	if next.Depth > next.MaxDepth {
		return tooDeep(next.Depth, next.MaxDepth)
	}
	members["tree"] = mustJSON(next)
	if t.Requires.HumanApproval {
		members["human_approval"] = json.RawMessage("true")
	}
	return nil
}
