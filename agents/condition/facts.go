package condition

import (
	"cmp"
	stdjson "encoding/json"
	"maps"
)

// Facts are the data that is available to a condition. [Facts.Value] makes the
// value on which conditions are evaluated. Its members are
//
//   - those of the payload, if it is an object;
//   - input, task, output, tool, event and state, as far as they are known, and
//     confidence; for a team also task_input, outputs and variables. They
//     replace members of the payload with the same names. In a run, where State
//     is set, output and confidence are the runtime's even if it knows neither;
//   - within task, also the members of an object "task" in the payload whose
//     names are not used by the envelope.
//
// So $.action is the payload's, as in the draft's own examples, and the author of
// a payload cannot forge task.from. At the gate of a tool call, where Tool is
// set, the payload's members are only under input: the payload must not
// influence the gate. In a rule of a handoff its member tool is, too.
type Facts struct {
	Input  stdjson.RawMessage // the payload of the task or of the event; nil: {}
	Task   *Task              // the current task
	Output stdjson.RawMessage // the output of the previous step, or of the run so far
	Tool   *Tool              // the call that is about to be made
	Called *Tool              // the call that gave Output, if a call did
	Event  *Event             // the event that occurred
	State  *State             // the progress of the run

	Team    bool // task_input, outputs and variables are the team's, never the payload's
	Handoff bool // a rule of a handoff asks: tool is Called, never the payload's

	// TaskInput, Outputs and Variables are for conditions and mappings of a
	// team: the payload of the team's task, the members' outputs by alias, and
	// the run's variables. They are the members task_input, outputs and
	// variables.
	TaskInput stdjson.RawMessage
	Outputs   map[string]stdjson.RawMessage
	Variables stdjson.RawMessage

	exact bool // see Exact
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
	Writes    bool               // the call may change something outside of the run
	Arguments stdjson.RawMessage // nil: {}
}

// Event is an event that a trigger waits for. Its payload is the Input.
type Event struct {
	Type   string // as in the trigger: schedule, webhook, message, event, agent_handoff, file_change, manual
	Name   string // of an event
	Source string // the subject, path or entity of its origin
	At     string // RFC 3339, UTC
}

func (e *Event) members() map[string]any {
	return map[string]any{"type": e.Type, "name": e.Name, "source": e.Source, "at": e.At}
}

// State is the progress of a run.
type State struct {
	Run          string // the run's id
	Status       string
	Iteration    int // turns of the model so far
	InputTokens  int64
	OutputTokens int64
	CostUSD      float64
	// Confidence is the confidence that the agent's last output states, from 0 to
	// 1; in a team, the last output of a member. If it is known, it is also the
	// member confidence of the value itself.
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

// Exact makes the value of the facts for a [Query]: numbers that a double would change stay as
// they are written.
func (f Facts) Exact() (Value, error) {
	f.exact = true
	return f.Value()
}

// Value makes the value of the facts. Its error is that of [Parse], for the
// input, the output or the arguments.
func (f Facts) Value() (Value, error) {
	input, err := f.parse(f.Input)
	if err != nil {
		return Value{}, err
	}
	root := make(map[string]any)
	payload, _ := input.(map[string]any)
	if f.Tool == nil {
		maps.Copy(root, payload)
	}
	for _, name := range f.reserved() {
		delete(root, name)
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
		if root["output"], err = f.parse(f.Output); err != nil {
			return Value{}, err
		}
	}
	if t := cmp.Or(f.Tool, f.Called); t != nil {
		arguments, err := f.parse(t.Arguments)
		if err != nil {
			return Value{}, err
		}
		members := map[string]any{"name": t.Name, "protocol": t.Protocol, "arguments": arguments}
		if f.Tool != nil {
			members["writes"] = t.Writes
		}
		root["tool"] = members
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

// reserved are the members that are never the payload's.
func (f Facts) reserved() (names []string) {
	if f.State != nil {
		names = append(names, "output", "confidence")
	}
	if f.Handoff {
		names = append(names, "tool")
	}
	if f.Team {
		names = append(names, "task_input", "outputs", "variables")
	}
	return names
}

// team adds the facts of a team.
func (f Facts) team(root map[string]any) (err error) {
	if f.TaskInput != nil {
		if root["task_input"], err = f.parse(f.TaskInput); err != nil {
			return err
		}
	}
	if f.Outputs != nil {
		outputs := make(map[string]any, len(f.Outputs))
		for alias, raw := range f.Outputs {
			if outputs[alias], err = f.parse(raw); err != nil {
				return err
			}
		}
		root["outputs"] = outputs
	}
	if f.Variables != nil {
		root["variables"], err = f.parse(f.Variables)
	}
	return err
}

func (f Facts) parse(data stdjson.RawMessage) (any, error) {
	if len(data) == 0 {
		return map[string]any{}, nil
	}
	if f.exact {
		v, err := parse(data, exact)
		return v.data, err
	}
	v, err := parse(data)
	return v.data, err
}
