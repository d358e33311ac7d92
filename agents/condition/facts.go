package condition

import (
	"cmp"
	stdjson "encoding/json"
	"maps"
)

// Facts are what is known where a condition is asked. [Facts.Value] makes the one
// value of them that all conditions are held against:
//
//   - the members of the payload, where it is an object;
//   - over them, whatever the payload calls so, those of input, task, output,
//     tool, event and state that are known here, and confidence; of a team also
//     task_input, outputs and variables;
//   - task also keeps what an object "task" in the payload has beside.
//
// So $.action is the payload's, as the draft's own examples have it, and
// task.from can be forged by nobody who writes a payload. At a gate of a tool
// call, where Tool is set, the payload's members are not there at all, but under
// input: what an agent was sent must not talk it past its gate.
type Facts struct {
	Input  stdjson.RawMessage // the payload of the task or of the event; nil is {}
	Task   *Task              // the task that is worked on
	Output stdjson.RawMessage // what the step before, or the run so far, has given
	Tool   *Tool              // the call that is about to be made
	Called *Tool              // the call that was made, where Output is what it gave
	Event  *Event             // what came to pass
	State  *State             // how far the run is

	// Of a team, for its conditions and mappings: the payload of the task that
	// the team works on, what its members gave, by alias, and the run's
	// variables. They are the members task_input, outputs and variables.
	TaskInput stdjson.RawMessage
	Outputs   map[string]stdjson.RawMessage
	Variables stdjson.RawMessage
}

// Task is the envelope of a task, without its payload, as a condition sees it.
type Task struct {
	ID       string
	Intent   string
	From     string
	To       string
	Corr     string
	Priority string // low, normal, high or urgent
	Attempt  int    // from 1
}

func (t *Task) members() map[string]any {
	return map[string]any{"id": t.ID, "intent": t.Intent, "from": t.From, "to": t.To, "corr": t.Corr, "priority": t.Priority, "attempt": float64(t.Attempt)}
}

// Tool is a tool call before it is made.
type Tool struct {
	Name      string
	Protocol  string             // function, mcp, http or openapi
	Writes    bool               // it may change something outside of the run
	Arguments stdjson.RawMessage // nil is {}
}

// Event is what a trigger waits for. Its payload is the Input.
type Event struct {
	Type   string // as the trigger's: schedule, webhook, message, event, agent_handoff, file_change, manual
	Name   string // of an event
	Source string // the subject, path or entity that it came from
	At     string // RFC 3339, UTC
}

func (e *Event) members() map[string]any {
	return map[string]any{"type": e.Type, "name": e.Name, "source": e.Source, "at": e.At}
}

// State is how far a run is.
type State struct {
	Run          string // its id
	Status       string
	Iteration    int // turns of the model so far
	InputTokens  int64
	OutputTokens int64
	CostUSD      float64
	// Confidence is what the agent last said of its own, from 0 to 1. Where it is
	// known it is also the member confidence of the value itself.
	Confidence *float64
}

func (s *State) members() map[string]any {
	m := map[string]any{
		"run": s.Run, "status": s.Status, "iteration": float64(s.Iteration),
		"input_tokens": float64(s.InputTokens), "output_tokens": float64(s.OutputTokens), "cost_usd": s.CostUSD,
	}
	if s.Confidence != nil {
		m["confidence"] = *s.Confidence
	}
	return m
}

// Value puts the facts together. Its error is that of [Parse], about the input,
// the output or the arguments.
func (f Facts) Value() (Value, error) {
	input, err := parseOr(f.Input)
	if err != nil {
		return Value{}, err
	}
	root := make(map[string]any)
	payload, _ := input.(map[string]any)
	if f.Tool == nil {
		maps.Copy(root, payload)
	}
	root["input"] = input
	if f.Task != nil {
		task := f.Task.members()
		if own, ok := root["task"].(map[string]any); ok {
			merged := maps.Clone(own)
			maps.Copy(merged, task)
			task = merged
		}
		root["task"] = task
	}
	if f.Output != nil {
		if root["output"], err = parseOr(f.Output); err != nil {
			return Value{}, err
		}
	}
	if t := cmp.Or(f.Tool, f.Called); t != nil {
		arguments, err := parseOr(t.Arguments)
		if err != nil {
			return Value{}, err
		}
		root["tool"] = map[string]any{"name": t.Name, "protocol": t.Protocol, "writes": t.Writes, "arguments": arguments}
	}
	if f.Event != nil {
		root["event"] = f.Event.members()
	}
	if f.State != nil {
		root["state"] = f.State.members()
		if f.State.Confidence != nil {
			root["confidence"] = *f.State.Confidence
		}
	}
	if err := f.team(root); err != nil {
		return Value{}, err
	}
	return Value{root}, nil
}

// team puts in what is known of a team.
func (f Facts) team(root map[string]any) (err error) {
	if f.TaskInput != nil {
		if root["task_input"], err = parseOr(f.TaskInput); err != nil {
			return err
		}
	}
	if f.Outputs != nil {
		outputs := make(map[string]any, len(f.Outputs))
		for alias, raw := range f.Outputs {
			if outputs[alias], err = parseOr(raw); err != nil {
				return err
			}
		}
		root["outputs"] = outputs
	}
	if f.Variables != nil {
		root["variables"], err = parseOr(f.Variables)
	}
	return err
}

func parseOr(data stdjson.RawMessage) (any, error) {
	if len(data) == 0 {
		return map[string]any{}, nil
	}
	v, err := Parse(data)
	return v.data, err
}
