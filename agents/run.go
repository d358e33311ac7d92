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

// phase names the next step of a run.
type phase string

const (
	phaseModel   phase = "model"   // generate a turn of the model
	phaseTools   phase = "tools"   // make the tool calls of that turn
	phaseAnswer  phase = "answer"  // make its last turn the result's payload
	phaseHandoff phase = "handoff" // delegate the task, by the rule that matched
	phaseAccount phase = "account" // add evidence and usage to the payload
	phaseDone    phase = "done"    // payload is the result
)

// run is the work on one task, and its progress.
type run struct {
	progress
	journal journal
	input   json.RawMessage // the input of the work: the task's payload, or what a team made of it
	merges  bool            // the input contains the outputs of a swarm's members; an earlier conversation does not
	relayed bool            // the payload is the answer of an agent to which a handoff rule delegated the task
	id      string
	tools   *offered

	sent     int         // estimated tokens of the conversation in the last request of a model that routes; 0: unknown
	calls    []*toolCall // the tool calls of the last turn, in phaseTools
	mu       sync.Mutex  // guards calls and progress while tools run
	commitMu sync.Mutex  // serialises commits of the calls
}

// progress is everything that determines the next step, except the tool calls.
// Save writes it into an Agent State document and load reads it back, so that
// another worker can resume the run between two steps. Slices and pointers in
// it are only appended to or replaced, so that a copy of progress does not
// change.
type progress struct {
	phase    phase
	messages []model.Message // the results of the last turn's calls are appended when all calls have ended
	turns    int             // turns of the model; the document's iteration
	usage    state.Usage
	payload  json.RawMessage

	cut       bool     // the last turn was cut off at its token limit
	repaired  bool     // the one repair turn has been asked for
	toolsUsed []string // names, without duplicates
	handoff   int      // the number of the matching rule, from 1, in phaseHandoff
	learned   int      // tokens of conversation that fit the model, as its refusals have shown; 0: unknown
	taskFirst bool     // the first user message is the task

	rewrite    bool               // the document's conversation must be written anew: it is not a prefix of messages
	memories   *[]aaif.MemoryItem // the memories that replace the document's snapshot; nil: the snapshot is unchanged
	memoriesAt time.Time          // the time from which their time to live counts
	trace      string             // the traceparent of the span in which the run began; "": unknown
}

// saved is the part of a run for which the specification has no member: the
// member loop of x-aeemesh. A change that an older release would misread needs
// a new format number.
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

// loopFormat is the format of saved that this release writes. It reads all
// older formats.
const loopFormat = 1

// write commits the run at the end of a step.
func (r *run) write(ctx context.Context, step state.Step, save func(*state.Checkpoint) error) error {
	if err := r.journal.Commit(ctx, step, save); err != nil {
		return err
	}
	r.rewrite = false
	for _, c := range r.calls { // no call is under way, so all lines are stored
		c.written = true
	}
	return nil
}

// stage leaves a step to be stored by the next write, if nothing would be lost
// in between. No call may be under way.
func (r *run) stage(step state.Step, save func(*progress, *state.Checkpoint) error) error {
	now := r.progress // a copy: the write may happen while this run continues
	return r.journal.Stage(step, func(cp *state.Checkpoint) error { return save(&now, cp) })
}

// save writes the run and its calls into a checkpoint.
func (r *run) save(cp *state.Checkpoint) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.progress.save(cp); err != nil {
		return err
	}
	r.saveCalls(cp)
	return nil
}

// save writes the progress into a checkpoint. The document's conversation is
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
	var before []aaif.Message // what a conversation that is written anew replaces
	if r.rewrite {
		keep, before = 0, cp.Doc.Conversation
	}
	cp.Truncate(keep)
	for i, m := range r.messages[keep:] {
		cp.Append(m, now, estimate(&m))
		if i == 1 && len(before) > 0 && before[0].Role == aaif.MessageSystem && before[0].Content != m.Content {
			before = before[1:] // the system prompt that was replaced
		}
		if len(before) > 0 && string(before[0].Role) == string(m.Role) && before[0].Content == m.Content {
			cp.Doc.Conversation[len(cp.Doc.Conversation)-1].Timestamp = before[0].Timestamp
			before = before[1:]
		}
	}
	cp.Doc.PendingToolCalls = nil
	return nil
}
