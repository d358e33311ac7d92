package orchestrate

import (
	"context"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Memories returns the memories of a checkpoint that may be loaded into the run
// of a task, and the owner of that run (AAIF, Memory Configuration). The
// checkpoint is the run's own, or the one that came with the task; run is the
// run's id, "" if it has none.
func Memories(task *mesh.Task, cp *state.Checkpoint, run string) ([]aaif.MemoryItem, state.Whose) {
	is := state.Whose{User: task.User(), Session: task.Envelope.Corr, Run: cp.Doc.RunID}
	was := is
	if p := cp.Mesh.Parent; cp.Mesh.Step.Kind == state.StepHandoff && cp.Doc.RunID != run { // the checkpoint came with the task
		was, is.Run = state.Whose{User: is.User, Session: is.Session}, run
	} else if p != nil && p.Run != is.Run { // the owner of the other run is not known
		was = state.Whose{Run: p.Run}
	}
	return cp.Memories(was, is), is
}

// passing returns those of a task's memories that may be passed to another agent: those that the
// function want selects and that may leave this run (AAIF, Memory Configuration).
func passing(task *mesh.Task, all []aaif.MemoryItem, want func(aaif.MemoryItem) bool) []aaif.MemoryItem {
	from := state.Checkpoint{Doc: aaif.State{MemorySnapshot: all}}
	whose := state.Whose{User: task.User(), Session: task.Envelope.Corr}
	return slices.DeleteFunc(from.Memories(whose, whose), func(m aaif.MemoryItem) bool { return !want(m) })
}

// passedState returns a state document with the memories that the team's document
// passes to a member (subagents[].pass_memory_keys); nil if there are none.
func (w *work) passedState(ctx context.Context, p *Participant) (*state.Checkpoint, error) {
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

// memories returns the run's memories: those in its own state document, or those that came with its
// task.
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
