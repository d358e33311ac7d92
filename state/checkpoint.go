package state

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/go-json-experiment/json/jsontext"
)

// Platform is the provenance.source_platform of this mesh's documents.
const Platform = "aeemesh"

// A Checkpoint is one Agent State document: the progress of one run at one moment, and
// everything that is needed to resume from there.
//
// Doc holds the specification's fields as the specification defines them, so that another
// platform can read the document. Its Extensions are other platforms' x- members; they
// are preserved. Mesh is what this mesh needs in addition. In the document it is the
// extension member x-aeemesh; a document of another platform has none, and then
// Mesh.Entity is empty.
//
// Raw JSON in a Checkpoint is never modified in place, only replaced. A Checkpoint may be
// used by one goroutine at a time, also for [Codec.Encode]; clones are independent of
// each other.
type Checkpoint struct {
	Doc  aaif.State
	Mesh Mesh

	under string // reply_to of the task, of a run that ended without a document

	texts *texts // what the last Encode wrote of it; clones share it

	memoryAt time.Time // the time at which ttl_remaining_seconds of the memories is exact; zero: checkpoint_at
}

// New returns the first checkpoint of a task's run: its status is running, and no step is
// done. agentID is the id in the agent's document; if it is empty, the id is [AgentID] of
// the entity.
func New(entity, taskID, agentID string) *Checkpoint {
	if agentID == "" {
		agentID = AgentID(entity)
	}
	return &Checkpoint{
		Doc: aaif.State{
			Standard: standard,
			Version:  version,
			AgentID:  agentID,
			RunID:    RunID(entity, taskID),
			Status:   aaif.RunRunning,
		},
		Mesh: Mesh{Format: 1, Entity: entity, TaskID: taskID},
	}
}

// ID returns the name of the run in a store.
func (c *Checkpoint) ID() ID { return ID{Entity: c.Mesh.Entity, Run: c.Doc.RunID} }

// Terminal reports whether the run has ended. No checkpoint may follow then.
func (c *Checkpoint) Terminal() bool { return Terminal(c.Doc.Status) }

// Terminal reports whether a run with this status has ended.
func Terminal(s aaif.RunStatus) bool { return s == aaif.RunCompleted || s == aaif.RunFailed }

// Parked reports whether a run with this status waits for an event from outside: no
// worker may continue it before it is resumed.
func Parked(s aaif.RunStatus) bool {
	return s == aaif.RunPaused || s == aaif.RunAwaitingApproval || s == aaif.RunMigrating
}

// Clone returns a copy that shares no mutable data with c. Raw JSON is shared, because it
// is replaced and never modified.
func (c *Checkpoint) Clone() *Checkpoint {
	if c == nil {
		return nil
	}
	d := *c
	doc := &d.Doc
	if p := doc.PipelinePosition; p != nil {
		q := *p
		q.CompletedSteps = slices.Clone(p.CompletedSteps)
		q.RemainingSteps = slices.Clone(p.RemainingSteps)
		doc.PipelinePosition = &q
	}
	doc.Conversation = slices.Clone(doc.Conversation)
	doc.MemorySnapshot = slices.Clone(doc.MemorySnapshot)
	doc.PendingToolCalls = slices.Clone(doc.PendingToolCalls)
	doc.SubagentStates = slices.Clone(doc.SubagentStates)
	doc.ApprovalRequest = clone(doc.ApprovalRequest)
	doc.Error = clone(doc.Error)
	doc.Provenance = clone(doc.Provenance)

	m := &d.Mesh
	m.Notes = slices.Clone(m.Notes)
	for i, n := range m.Notes {
		m.Notes[i].Calls = slices.Clone(n.Calls)
	}
	m.Effects = slices.Clone(m.Effects)
	m.Calls = slices.Clone(m.Calls)
	m.Commands = slices.Clone(m.Commands)
	m.Steering = slices.Clone(m.Steering)
	m.Noted = slices.Clone(m.Noted)
	m.Waits = slices.Clone(m.Waits)
	m.Parent = clone(m.Parent)
	m.Migration, m.Handed = clone(m.Migration), clone(m.Handed)
	return &d
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// At returns when the checkpoint was captured, zero if the document has no valid RFC 3339
// time.
func (c *Checkpoint) At() time.Time { return readTime(c.Doc.CheckpointAt) }

// timeLayout is the time format of this mesh's documents: RFC 3339, UTC, microseconds.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// Time formats a time as this mesh's documents do.
func Time(t time.Time) string { return t.UTC().Format(timeLayout) }

func readTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// Variables returns the document's variables by name, each as raw JSON.
func (c *Checkpoint) Variables() map[string]jsontext.Value {
	vars := map[string]jsontext.Value{}
	EachMember(jsontext.Value(c.Doc.Variables), func(name string, value jsontext.Value) {
		vars[name] = value
	})
	return vars
}

// SetVariable sets one of the document's variables; nil removes it.
func (c *Checkpoint) SetVariable(name string, value jsontext.Value) {
	vars := c.Variables()
	if vars[name] = value; value == nil {
		delete(vars, name)
	}
	if len(vars) == 0 {
		c.Doc.Variables = nil
		return
	}
	w := writer{b: []byte{'{'}}
	for _, name := range slices.SortedFunc(maps.Keys(vars), compareNames) {
		w.anyName(name)
		w.b = append(w.b, vars[name]...)
	}
	c.Doc.Variables = append(w.b, '}')
}

// EachMember calls f with each member of a JSON object, in order. It stops at invalid
// JSON.
func EachMember(object jsontext.Value, f func(name string, value jsontext.Value)) {
	if object.Kind() != '{' {
		return
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(object))
	if _, err := dec.ReadToken(); err != nil {
		return
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return
		}
		n := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return
		}
		f(n, value.Clone())
	}
}
