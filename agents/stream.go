package agents

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh"
)

func (l *loop) streaming(task *mesh.Task) bool { return l.stream && task.Streaming() }

// proseFilter streams the text that a model writes before it calls tools, and
// holds back a turn that is the JSON answer: a part of an object is of no use,
// and the whole object is the result.
type proseFilter struct {
	emit    func(string) error
	decided bool
	json    bool
	held    string // white space at the beginning of the turn
}

func (f *proseFilter) add(text string) error {
	if !f.decided {
		f.held += text
		begin := strings.TrimLeft(f.held, " \t\r\n")
		if begin == "" {
			return nil
		}
		f.decided, f.json = true, begin[0] == '{' || begin[0] == '[' || begin[0] == '`'
		text = f.held
	}
	if f.json {
		return nil
	}
	return f.emit(text)
}

// maxShownArguments bounds the arguments in a tool_call stream envelope.
const maxShownArguments = 4 << 10

type toolCallEvent struct {
	Call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"` // left out if they are too long
	} `json:"tool_call"`
}

type toolResultEvent struct {
	Result struct {
		Name  string `json:"name"`
		MS    int64  `json:"ms"`
		Error string `json:"error,omitempty"` // the kind of failure; the error's text goes to the model only
	} `json:"tool_result"`
}

// showCall streams to the sender that a tool call begins.
func (l *loop) showCall(task *mesh.Task, call model.ToolCall) error {
	if !l.streaming(task) {
		return nil
	}
	var e toolCallEvent
	e.Call.Name = call.Name
	if len(call.Arguments) <= maxShownArguments {
		e.Call.Arguments = call.Arguments
	}
	return emit(task, e)
}

// showResult streams to the sender that a tool call has ended, and how long it
// took.
func (l *loop) showResult(task *mesh.Task, call model.ToolCall, took time.Duration, failure *tool.Error) error {
	if !l.streaming(task) {
		return nil
	}
	var e toolResultEvent
	e.Result.Name, e.Result.MS = call.Name, took.Milliseconds()
	if failure != nil {
		e.Result.Error = failure.Kind.Error()
	}
	return emit(task, e)
}

func emit(task *mesh.Task, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return task.Emit(raw)
}
