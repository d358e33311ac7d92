package agents

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// toolCall is one of the calls that the last turn of a model requests: the
// request, its line in the run's ledger, and its result for the model.
//
// The entry's status is pending before the call is made, in_flight from the commit
// before the call begins, and final from the commit of the receipt.
// The receipt itself is the tool's message in the conversation. lost.go decides about a
// call that has no receipt because its worker died.
type toolCall struct {
	model.ToolCall
	effect   state.Effect
	receipt  *model.Message // nil while the outcome is not known
	written  bool           // the journal has stored the current line
	callback string         // callback_url of a call that another platform began
	wait     *state.Wait    // the answer that the call waits for, possibly for days; the call is made again when the run wakes
}

// newCalls makes the calls of a turn that was just generated.
func (r *run) newCalls(task *mesh.Task, wanted []model.ToolCall) []*toolCall {
	if r.id == "" {
		r.id = state.RunID(task.Envelope.To, task.Envelope.ID)
	}
	calls := make([]*toolCall, len(wanted))
	for i, w := range wanted {
		calls[i] = &toolCall{ToolCall: w, effect: state.Effect{
			ID: w.ID, Tool: w.Name, Key: state.EffectKey(r.id, r.turns, i+1), ArgsHash: state.ArgsHash(w.Arguments), Status: state.EffectPending,
		}}
	}
	return calls
}

// open returns the calls whose outcome is not known.
func (r *run) open() []*toolCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	var open []*toolCall
	for _, c := range r.calls {
		if c.receipt == nil {
			open = append(open, c)
		}
	}
	return open
}

// callable returns the open calls that do not wait for an answer.
func (r *run) callable() []*toolCall {
	return slices.DeleteFunc(r.open(), func(c *toolCall) bool { return c.wait != nil })
}

// suspend records that a call waits for an answer. The call counts as not made:
// a worker that resumes the run makes it again, under the same key.
func (r *run) suspend(c *toolCall, w state.Wait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.effect.Status, c.written, c.wait = state.EffectPending, false, &w
}

// begin marks calls as begun. This must be committed before the calls are made.
func (r *run) begin(calls []*toolCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().UTC()
	for _, c := range calls {
		c.effect.Status, c.effect.At, c.written = state.EffectInFlight, now, false
		if c.effect.Tries++; c.effect.Tries == 1 { // further tries are counted in the ledger line only
			r.usage.ToolCalls++
		}
		if !slices.Contains(r.toolsUsed, c.Name) {
			r.toolsUsed = append(r.toolsUsed, c.Name)
		}
	}
}

// beginAgain marks a call that has waited for its rate limit as begun now. This must be committed
// before the call is made: the commit fails if another worker has got the run meanwhile. It returns
// false if the call has its receipt already, because its time is over.
func (r *run) beginAgain(c *toolCall) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.receipt != nil {
		return false
	}
	c.effect.At, c.written = time.Now().UTC(), false
	return true
}

// recordReceipt gives a call its receipt, which must be committed.
func (r *run) recordReceipt(c *toolCall, status state.EffectStatus, told model.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.effect.Status, c.effect.DoneAt, c.written = status, time.Now().UTC(), false
	c.receipt = &told
}

// commitCalls stores the state of the calls. Goroutines that wait for the
// commit lock share one write: if about is not nil and another goroutine's
// write included it, commitCalls does nothing.
func (r *run) commitCalls(ctx context.Context, about *toolCall) error {
	r.commitMu.Lock()
	defer r.commitMu.Unlock()
	step, fresh := r.unwritten(about)
	if len(fresh) == 0 {
		return ctx.Err()
	}
	if err := r.journal.Commit(ctx, step, r.save); err != nil {
		return err
	}
	r.rewrite = false
	r.mu.Lock()
	defer r.mu.Unlock()
	for c, status := range fresh {
		if c.effect.Status == status {
			c.written = true
		}
	}
	return nil
}

// unwritten returns the calls whose lines are not stored yet, and the step that
// their commit ends; nil if about is not among them.
func (r *run) unwritten(about *toolCall) (state.Step, map[*toolCall]state.EffectStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if about != nil && about.written {
		return state.Step{}, nil
	}
	fresh := make(map[*toolCall]state.EffectStatus)
	var begun, ended, refused []*toolCall
	for _, c := range r.calls {
		if c.written {
			continue
		}
		fresh[c] = c.effect.Status
		switch {
		case c.receipt == nil:
			begun = append(begun, c)
		case c.effect.At.IsZero():
			refused = append(refused, c)
		default:
			ended = append(ended, c)
		}
	}
	switch {
	case len(ended) > 0:
		return stepOf(state.StepReceipt, ended), fresh
	case len(begun) > 0:
		return stepOf(state.StepIntent, begun), fresh
	}
	return stepOf(state.StepReceipt, refused), fresh
}

// stepOf describes a step by its calls: the time of the longest one, and the
// status of the last one that failed.
func stepOf(kind state.StepKind, calls []*toolCall) state.Step {
	step := state.Step{Kind: kind}
	var names []string
	for _, c := range calls {
		names = append(names, c.Name)
		if c.receipt == nil {
			continue
		}
		if !c.effect.At.IsZero() {
			step.MS = max(step.MS, c.effect.DoneAt.Sub(c.effect.At).Milliseconds())
		}
		if c.effect.Status != state.EffectDone {
			step.Detail = strings.ReplaceAll(string(c.effect.Status), "_", " ")
		}
	}
	step.Name = strings.Join(names, ", ")
	return step
}

// saveCalls writes the calls into a checkpoint: their lines into the ledger,
// calls without an outcome into pending_tool_calls, and results into the
// conversation, in the order in which the model requested them.
func (r *run) saveCalls(cp *state.Checkpoint) {
	for _, c := range r.calls {
		line := c.effect
		line.Epoch = cp.Mesh.Epoch
		if old := cp.Effect(line.Key); old == nil {
			cp.Mesh.Effects = append(cp.Mesh.Effects, line)
		} else {
			if old.Status == line.Status && old.Tries == line.Tries {
				line.Epoch = old.Epoch
			}
			*old = line
		}
		if c.receipt != nil {
			cp.Append(*c.receipt, line.DoneAt, estimate(c.receipt))
			continue
		}
		p := aaif.PendingToolCall{ID: c.ID, ToolName: c.Name, Arguments: argumentsObject(c.Arguments), Status: aaif.ToolCallPending, CallbackURL: c.callback}
		if line.Status != state.EffectPending {
			p.Status = aaif.ToolCallInFlight
			if !line.At.IsZero() { // a call of another platform may lack the time
				p.SubmittedAt = state.Time(line.At)
			}
		}
		cp.Doc.PendingToolCalls = append(cp.Doc.PendingToolCalls, p)
	}
}

// argumentsObject returns a call's arguments as the JSON object that the
// document needs. If the model wrote something else, that is never sent to a
// tool; the model's message in x-aeemesh keeps it unchanged.
func argumentsObject(args json.RawMessage) json.RawMessage {
	if trimmed := strings.TrimSpace(string(args)); strings.HasPrefix(trimmed, "{") {
		return args
	}
	return json.RawMessage(`{}`)
}
