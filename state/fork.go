package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A ForkOf describes a fork.
type ForkOf struct {
	TaskID   string // of the new run; required, must differ from the parent's
	From     string // the sender of the new task; default: the parent's sender
	Revision uint64 // of the checkpoint that is forked, for the record
}

// Fork returns the first checkpoint of a new run that continues from c. It has the
// conversation, the memories and the effects of c, but not its owner, its pending
// commands and its end. If c waits for a person to state the outcome of a tool call, the
// fork does too; otherwise its status is running. Tasks that the parent sent to people
// are sent again.
//
// The task of the new run is the parent's with the new id, without a signature, and with
// its own correlation: the sender of the fork has to vouch for it. It is the root of a tree
// of its own, under the parent's bounds, and is answered to its own sender, even if the
// parent's task was a team's or was delegated. Effects keep the
// idempotency keys of the parent: an effect that both runs repeat is one effect for the
// tool.
func (c *Checkpoint) Fork(f ForkOf, now time.Time) (*Checkpoint, error) {
	d, err := c.fork(f, now)
	if err != nil {
		return nil, fmt.Errorf("fork run %s: %w", clip.Text(c.Doc.RunID, 80), err)
	}
	return d, nil
}

func (c *Checkpoint) fork(f ForkOf, now time.Time) (*Checkpoint, error) {
	switch {
	case c.Mesh.Entity == "" || len(c.Mesh.Task) == 0:
		return nil, errors.New("it has no task of this mesh")
	case f.TaskID == "" || f.TaskID == c.Mesh.TaskID:
		return nil, errors.New("the fork needs a task id of its own")
	}
	task, err := envelope.ParseStored(c.Mesh.Task)
	if err != nil {
		return nil, fmt.Errorf("its task: %w", err)
	}
	task.ID, task.Corr, task.TS, task.Sig = f.TaskID, f.TaskID, now.UTC().Format(envelope.TimeLayout), nil
	task.ReplyTo, task.Requires = "", requiresOfFork(task.Requires)
	if f.From != "" {
		task.From = f.From
	}
	raw, err := task.AppendJSON(nil)
	if err != nil {
		return nil, fmt.Errorf("the task of the fork: %w", err)
	}

	d := c.Clone()
	d.Doc.RunID = RunID(c.Mesh.Entity, f.TaskID)
	d.Doc.Error = nil
	if d.Doc.Status != aaif.RunAwaitingApproval || len(c.Unknown()) == 0 {
		d.Doc.Status, d.Doc.ApprovalRequest = aaif.RunRunning, nil
	}
	d.Doc.Provenance = nil
	m := &c.Mesh
	d.Mesh = Mesh{
		Format: d.Mesh.format(), Entity: m.Entity, TaskID: f.TaskID,
		Step:     Step{Kind: StepFork, Name: m.TaskID, Detail: fmt.Sprintf("from revision %d", f.Revision)},
		Task:     raw,
		Priority: m.Priority,
		CBOR:     m.CBOR,
		Notes:    d.Mesh.Notes,
		Effects:  d.Mesh.Effects,
		Loop:     m.Loop,
		Plan:     m.Plan,
		More:     m.More,
		Parent:   &Parent{Kind: "fork", Entity: m.Entity, Run: c.Doc.RunID, TaskID: m.TaskID, StateID: c.Doc.StateID, Revision: f.Revision},
	}
	return d, nil
}

// requiresOfFork returns requires without the members that hold for the parent's task only: the
// agents that delegated it, the state document that came with it, and its place in a tree. The
// tree's bounds stay.
func requiresOfFork(requires json.RawMessage) json.RawMessage {
	var members, tree map[string]json.RawMessage
	if json.Unmarshal(requires, &members) != nil || members == nil {
		return requires
	}
	if string(members["handoff"]) != "false" { // false: the entity that is addressed must answer itself
		delete(members, "handoff")
	}
	delete(members, "handed_by")
	delete(members, "context")
	if raw, ok := members["tree"]; ok && json.Unmarshal(raw, &tree) == nil {
		for _, name := range []string{"root", "key", "depth", "deadline", "teams", "waiting"} {
			delete(tree, name)
		}
		if members["tree"], _ = json.Marshal(tree); len(tree) == 0 {
			delete(members, "tree")
		}
	}
	if len(members) == 0 {
		return nil
	}
	out, _ := json.Marshal(members) // they were decoded above
	return out
}

// Strip returns a copy of c that may leave the platform: without the stack trace (AAIF,
// Security Considerations) and without the migration token, which is for one transfer
// only.
func (c *Checkpoint) Strip() *Checkpoint {
	d := c.Clone()
	if d.Doc.Error != nil {
		d.Doc.Error.StackTrace = ""
	}
	if d.Doc.Provenance != nil {
		d.Doc.Provenance.MigrationToken = ""
	}
	return d
}
