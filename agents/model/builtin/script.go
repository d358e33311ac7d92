package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
)

const (
	maxTurns = 256
	maxCalls = 64
	maxDelay = 10 * time.Minute
)

// turn is one entry of the script, as the package documentation describes it.
type turn struct {
	Say     *string         `json:"say"`
	Call    []call          `json:"call"`
	JSON    json.RawMessage `json:"json"`
	Error   *failure        `json:"error"`
	DelayMS int64           `json:"delay_ms"`
	PaceMS  int64           `json:"pace_ms"`
	Usage   *model.Usage    `json:"usage"`
}

type call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type failure struct {
	Kind         model.Kind `json:"kind"`
	Message      string     `json:"message"`
	RetryAfterMS int64      `json:"retry_after_ms"`
}

// ScriptError is an error in a script, or in the turn that the conversation has reached. Its text
// contains only words and names of the script, and nothing of the task or a tool, so it may be sent
// to peers.
type ScriptError struct{ problem error }

// Error names the turn and the problem.
func (e *ScriptError) Error() string { return e.problem.Error() }

// Unwrap returns the problem.
func (e *ScriptError) Unwrap() error { return e.problem }

// badScript is the error of a request whose script cannot be played.
func badScript(format string, args ...any) error {
	return model.Errorf(model.ErrBadRequest, "%w", &ScriptError{fmt.Errorf(format, args...)})
}

// Check reports the first mistake in a script, given as the whole model.params.extended, with its
// turn. It cannot check whether references have a value when the script is played.
func Check(extended json.RawMessage) error {
	_, err := parse(extended)
	return err
}

// Calls returns the names of the tools that a script calls, by turn; nil for a
// script that [Check] refuses.
func Calls(extended json.RawMessage) [][]string {
	turns, err := parse(extended)
	if err != nil {
		return nil
	}
	names := make([][]string, len(turns))
	for i, t := range turns {
		for _, c := range t.Call {
			names[i] = append(names[i], c.Name)
		}
	}
	return names
}

// play returns the answer of the turn that the conversation has reached.
func play(ctx context.Context, req *model.Request) (answer, error) {
	turns, err := parse(req.Params.Extended)
	if err != nil {
		return answer{}, badScript("%w", err)
	}
	n := 0
	for _, m := range req.Messages {
		if m.Role == model.RoleAssistant {
			n++
		}
	}
	if n >= len(turns) {
		return answer{}, badScript("script: it ends after turn %d, and the conversation asks for one more", len(turns))
	}
	a, err := turns[n].answer(ctx, n, newScope(req.Messages))
	if err != nil {
		if ctx.Err() != nil {
			return answer{}, ctx.Err()
		}
		return answer{}, badScript("script turn %d: %w", n+1, err)
	}
	return a, nil
}

func parse(extended json.RawMessage) ([]turn, error) {
	var ext struct {
		Script []json.RawMessage `json:"script"`
	}
	if len(extended) == 0 {
		return nil, errors.New("script: params.extended has no script")
	}
	if err := json.Unmarshal(extended, &ext); err != nil {
		return nil, errors.New("script: params.extended must be an object whose script is a list of turns")
	}
	switch n := len(ext.Script); {
	case n == 0:
		return nil, errors.New("script: params.extended has no script, or one without turns")
	case n > maxTurns:
		return nil, fmt.Errorf("script: %d turns exceed the bound of %d", n, maxTurns)
	}
	turns := make([]turn, len(ext.Script))
	for i, raw := range ext.Script {
		if err := turns[i].read(raw); err != nil {
			return nil, fmt.Errorf("script turn %d: %w", i+1, err)
		}
	}
	return turns, nil
}

func (t *turn) read(raw json.RawMessage) error {
	if raw[0] != '{' {
		return errors.New("a turn is an object with say, call, json or error")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(t); err != nil && err != io.EOF {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) { // the standard text names Go types
			return fmt.Errorf("%s: a JSON %s does not fit", typ.Field, typ.Value)
		}
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	does := 0
	for _, set := range []bool{t.Call != nil, t.JSON != nil, t.Error != nil} {
		if set {
			does++
		}
	}
	switch {
	case does == 0 && t.Say == nil:
		return errors.New("one of say, call, json or error is needed")
	case does > 1:
		return errors.New("call, json and error exclude one another")
	case t.JSON != nil && t.Say != nil:
		return errors.New("json and say exclude one another")
	case t.Call != nil && len(t.Call) == 0:
		return errors.New("call: the list is empty")
	case len(t.Call) > maxCalls:
		return fmt.Errorf("call: %d calls exceed the bound of %d", len(t.Call), maxCalls)
	case t.DelayMS < 0 || t.DelayMS > maxDelay.Milliseconds():
		return fmt.Errorf("delay_ms: want 0 to %d", maxDelay.Milliseconds())
	case t.PaceMS < 0 || t.PaceMS > maxDelay.Milliseconds():
		return fmt.Errorf("pace_ms: want 0 to %d", maxDelay.Milliseconds())
	case t.Usage != nil && (t.Usage.InputTokens < 0 || t.Usage.OutputTokens < 0):
		return errors.New("usage: must not be negative")
	case t.Error != nil && !slices.Contains(model.Kinds(), t.Error.Kind):
		var kinds []string
		for _, k := range model.Kinds() {
			kinds = append(kinds, string(k))
		}
		return fmt.Errorf("error.kind: %q is none of %s", string(t.Error.Kind), strings.Join(kinds, ", "))
	case t.Error != nil && (t.Error.RetryAfterMS < 0 || t.Error.RetryAfterMS > 1<<40):
		return errors.New("error.retry_after_ms: out of range")
	}
	for i, c := range t.Call {
		if c.Name == "" {
			return fmt.Errorf("call[%d].name: must not be empty", i)
		}
		if len(c.Arguments) > 0 && c.Arguments[0] != '{' {
			return fmt.Errorf("call[%d].arguments: must be an object", i)
		}
	}
	return t.checkReferences()
}

// checkReferences reports references that are malformed.
func (t *turn) checkReferences() error {
	_, err := t.answer(context.Background(), 0, nil)
	return err
}

// answer expands the turn, the n-th from 0. With a nil scope it only checks the
// references' form.
func (t *turn) answer(ctx context.Context, n int, s *scope) (answer, error) {
	a := answer{
		delay: time.Duration(t.DelayMS) * time.Millisecond,
		pace:  time.Duration(t.PaceMS) * time.Millisecond,
		usage: t.Usage,
	}
	e := &expander{ctx: ctx, scope: s}
	if t.Say != nil {
		text, err := e.text(*t.Say)
		if err != nil {
			return answer{}, fmt.Errorf("say: %w", err)
		}
		a.text = text
	}
	if t.JSON != nil {
		value, err := e.value(t.JSON)
		if err != nil {
			return answer{}, fmt.Errorf("json: %w", err)
		}
		a.text = string(value)
	}
	for i, c := range t.Call {
		args := json.RawMessage("{}")
		if len(c.Arguments) > 0 {
			var err error
			if args, err = e.value(c.Arguments); err != nil {
				return answer{}, fmt.Errorf("call[%d].arguments: %w", i, err)
			}
		}
		a.calls = append(a.calls, model.ToolCall{ID: fmt.Sprintf("call_%d_%d", n+1, i+1), Name: c.Name, Arguments: args})
	}
	if t.Error != nil {
		a.fail = &model.Error{Kind: t.Error.Kind, Message: t.Error.Message, RetryAfter: time.Duration(t.Error.RetryAfterMS) * time.Millisecond}
		if a.fail.Message == "" {
			a.fail.Message = fmt.Sprintf("script turn %d says so", n+1)
		}
	}
	return a, nil
}
