package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/state"
)

// phase is what a run does next.
type phase string

const (
	phaseModel   phase = "model"   // ask the model for a turn
	phaseTools   phase = "tools"   // call the tools that it asked for
	phaseAnswer  phase = "answer"  // make its last turn the result's payload
	phaseHandoff phase = "handoff" // hand the task on, by the rule that holds
	phaseAccount phase = "account" // have it account for the answer
	phaseDone    phase = "done"    // Payload is the result
)

// run is the work on one task, and how far it has come.
type run struct {
	progress
	journal journal
	input   json.RawMessage // what the work is about: the task's payload, unless a team has made something of it
	id      string
	tools   *offered

	sent     int         // tokens of conversation that a model of several got last, 0 where nobody says
	calls    []*toolCall // that the last turn asks for, in phaseTools
	mu       sync.Mutex  // over calls and progress, while tools run
	commitMu sync.Mutex  // one commit of the calls at a time
}

// progress is all that the next step goes by, but for the calls. Save writes it
// into an Agent State document and load reads it from one, so nothing is lost
// when another worker goes on between two steps. What it refers to is only added
// to or replaced, so that a copy stays as it is.
type progress struct {
	phase    phase
	messages []model.Message // what the tools of the last turn say is not among them before all have said it
	turns    int             // of the model: the document's iteration
	usage    state.Usage
	payload  json.RawMessage

	cut       bool     // the last turn was cut at its token limit
	repaired  bool     // the one repair turn has been asked for
	toolsUsed []string // by name
	handoff   int      // the rule, from 1, in phaseHandoff
	learned   int      // how many tokens of conversation fit the model; 0: nobody knows
	taskFirst bool     // the first message of a user is the task

	rewrite    bool               // the document's conversation is not the beginning of messages
	memories   *[]aaif.MemoryItem // what stays of the document's snapshot; nil: all of it
	memoriesAt time.Time          // when they had the time to live that they say
	trace      string             // the traceparent under which the run began; "": not known
}

// saved is the part of a run that the specification has no place for: the
// member loop of x-aeemesh. A change that an older release would misread needs
// another format.
type saved struct {
	Format    int             `json:"format"`
	Phase     phase           `json:"phase"`
	Cut       bool            `json:"cut,omitempty"`
	Repaired  bool            `json:"repaired,omitempty"`
	ToolsUsed []string        `json:"tools_used,omitempty"`
	Window    int             `json:"window,omitempty"`
	Handoff   int             `json:"handoff,omitempty"`
	TaskFirst bool            `json:"task_first,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	Trace     string          `json:"trace,omitempty"`
}

// loopFormat is the format of saved that this release writes. It reads every
// older one.
const loopFormat = 1

// write commits the run at the end of a step.
func (r *run) write(ctx context.Context, step state.Step, save func(*state.Checkpoint) error) error {
	if err := r.journal.Commit(ctx, step, save); err != nil {
		return err
	}
	r.rewrite = false
	for _, c := range r.calls { // none is under way
		c.written = true
	}
	return nil
}

// stage leaves the end of a step to the next write: there is nothing to lose
// between the two. No call is under way.
func (r *run) stage(step state.Step, save func(*progress, *state.Checkpoint) error) error {
	now := r.progress // whoever writes it does so while this one goes on
	return r.journal.Stage(step, func(cp *state.Checkpoint) error { return save(&now, cp) })
}

// save writes the run into a checkpoint, and its calls.
func (r *run) save(cp *state.Checkpoint) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.progress.save(cp); err != nil {
		return err
	}
	r.saveCalls(cp)
	return nil
}

// save writes a run into a checkpoint. The conversation is the document's,
// complete and in order.
func (r *progress) save(cp *state.Checkpoint) error {
	own := saved{
		Format: loopFormat, Phase: r.phase, Cut: r.cut, Repaired: r.repaired, ToolsUsed: r.toolsUsed,
		Window: r.learned, Handoff: r.handoff, TaskFirst: r.taskFirst, Payload: r.payload, Trace: r.trace,
	}
	raw, err := json.Marshal(own)
	if err != nil {
		return fmt.Errorf("encode the run: %w", err)
	}
	cp.Mesh.Loop = raw
	cp.Doc.Iteration = aaif.Int(int64(r.turns))
	cp.Mesh.Usage = r.usage
	if r.memories != nil {
		cp.Remember(*r.memories, r.memoriesAt)
	}
	cp.Doc.ApprovalRequest = nil

	now := time.Now()
	keep := min(len(cp.Doc.Conversation), len(r.messages))
	if r.rewrite {
		keep = 0
	}
	cp.Truncate(keep)
	for _, m := range r.messages[keep:] {
		cp.Append(m, now, estimate(&m))
	}
	cp.Doc.PendingToolCalls = nil
	return nil
}
