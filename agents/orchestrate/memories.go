package orchestrate

import (
	"context"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Memories are those of a checkpoint that may be loaded into the run of a task, and
// whose that run is (AAIF, Memory Configuration). The checkpoint is the run's own,
// or what came along with the task; run is the run's id, "" where it has none.
func Memories(task *mesh.Task, cp *state.Checkpoint, run string) ([]aaif.MemoryItem, state.Whose) {
	is := state.Whose{User: task.User(), Session: task.Envelope.Corr, Run: cp.Doc.RunID}
	was := is
	if p := cp.Mesh.Parent; cp.Mesh.Step.Kind == state.StepHandoff && cp.Doc.RunID != run { // it came along
		was, is.Run = state.Whose{User: is.User, Session: is.Session}, run
	} else if p != nil && p.Run != is.Run { // nobody says whose the other run was
		was = state.Whose{Run: p.Run}
	}
	return cp.Memories(was, is), is
}

// passing are those of a task's memories that another agent may have: that want
// names, and only what may leave this run (AAIF, Memory Configuration).
func passing(task *mesh.Task, all []aaif.MemoryItem, want func(aaif.MemoryItem) bool) []aaif.MemoryItem {
	from := state.Checkpoint{Doc: aaif.State{MemorySnapshot: all}}
	who := state.Whose{User: task.User(), Session: task.Envelope.Corr}
	return slices.DeleteFunc(from.Memories(who, who), func(m aaif.MemoryItem) bool { return !want(m) })
}

// along is the document of the memories that the document of the team has a member
// know (subagents[].pass_memory_keys), nil where there are none of these.
func (w *work) along(ctx context.Context, p *Participant) (*state.Checkpoint, error) {
	if len(p.PassMemoryKeys) == 0 {
		return nil, nil
	}
	all, err := w.memories(ctx)
	if err != nil {
		return nil, err
	}
	items := passing(w.task, all, func(m aaif.MemoryItem) bool { return slices.Contains(p.PassMemoryKeys, m.Key) })
	if len(items) == 0 {
		return nil, nil
	}
	c := state.New(w.task.Envelope.To, w.task.Envelope.ID, "")
	c.Doc.MemorySnapshot = items
	return c, nil
}

// memories are those that the run has: in its document, or as they came along
// with its task.
func (w *work) memories(ctx context.Context) ([]aaif.MemoryItem, error) {
	if w.run != nil {
		cp := w.run.View()
		if own, _ := Memories(w.task, cp, cp.Doc.RunID); len(own) > 0 {
			return own, nil
		}
	}
	w.handedMu.Lock()
	defer w.handedMu.Unlock()
	if w.handed == nil {
		c, err := w.task.HandedState(ctx)
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = &state.Checkpoint{}
		}
		w.handed = c
	}
	items, _ := Memories(w.task, w.handed, "")
	return items, nil
}
