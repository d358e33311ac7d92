package state

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/go-json-experiment/json/jsontext"
)

// Platform is what the documents of this mesh name as their
// provenance.source_platform.
const Platform = "aeemesh"

// A Checkpoint is one Agent State document: how far one run had come at one
// moment, and all that is needed to go on from there.
//
// Doc holds the fields that the specification defines, each where it puts it,
// so that another platform can read the document. Its Extensions are the x-
// members of others, which survive. Mesh is what this mesh needs besides; it
// is the extension member x-aeemesh in the document, and absent where
// Mesh.Entity is empty: that is how a document of another platform looks.
//
// Raw JSON in a Checkpoint is not written to in place once it is there; it is
// replaced. A Checkpoint is for one goroutine at a time, [Codec.Encode]
// included; clones are independent of one another.
type Checkpoint struct {
	Doc  aaif.State
	Mesh Mesh

	texts *texts // what Encode wrote of it the last time, shared by clones

	memoryAt time.Time // when the memories had the time to live that they say; zero: at checkpoint_at
}

// New is the first checkpoint of the run of a task: status running, nothing
// done. The agent's id is the one of its document, or [AgentID] of the entity
// where agentID is empty.
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

// ID says under which name a store keeps the run.
func (c *Checkpoint) ID() ID { return ID{Entity: c.Mesh.Entity, Run: c.Doc.RunID} }

// Terminal reports whether the run has ended, so that nothing may follow.
func (c *Checkpoint) Terminal() bool { return Terminal(c.Doc.Status) }

// Terminal reports whether a run with this status has ended.
func Terminal(s aaif.RunStatus) bool { return s == aaif.RunCompleted || s == aaif.RunFailed }

// Parked reports whether a run with this status waits for somebody, and no
// worker is to go on with it until it is resumed.
func Parked(s aaif.RunStatus) bool {
	return s == aaif.RunPaused || s == aaif.RunAwaitingApproval || s == aaif.RunMigrating
}

// Clone is a copy that shares nothing that either may change. Raw JSON is
// shared, since it is replaced and never written to.
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

// At is when the checkpoint was captured, zero where the document does not
// say so in a form that RFC 3339 knows.
func (c *Checkpoint) At() time.Time { return readTime(c.Doc.CheckpointAt) }

// timeLayout is how the documents of this mesh write a time: RFC 3339, UTC,
// microseconds.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// Time writes a time the way the documents of this mesh do.
func Time(t time.Time) string { return t.UTC().Format(timeLayout) }

func readTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// Variables are the document's variables by name, each as raw JSON.
func (c *Checkpoint) Variables() map[string]jsontext.Value {
	vars := map[string]jsontext.Value{}
	eachMember(jsontext.Value(c.Doc.Variables), func(name string, value jsontext.Value) {
		vars[name] = value
	})
	return vars
}

// SetVariable sets one of the document's variables; nil takes it away.
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

// eachMember calls f with each member of a JSON object, in order. It stops at
// what is no JSON.
func eachMember(object jsontext.Value, f func(name string, value jsontext.Value)) {
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
