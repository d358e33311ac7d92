package tooltest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/agents/tool"
)

// Behaviour is what a tool is to do when called.
type Behaviour string

// The behaviours that the suite asks for.
const (
	Echo Behaviour = "echo" // return the arguments as the result
	Fail Behaviour = "fail" // fail, with FailText as the words for the model
	Hang Behaviour = "hang" // wait until the call is cancelled
)

// FailText is what a failing tool says.
const FailText = "the disk is full"

// Definition is what a tool under test says of itself.
func Definition() tool.Definition {
	return tool.Definition{
		Name:        "subject",
		Description: "The tool under test.",
		Parameters:  json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		Output:      json.RawMessage(`{"type":"object"}`),
	}
}

// Fake is a tool that behaves as told and records its calls. Fields must not be
// changed once it is in use.
type Fake struct {
	Def       tool.Definition // what Definition returns
	Behaviour Behaviour       // empty means Echo
	Result    json.RawMessage // if set, what a call returns

	mu    sync.Mutex
	calls []json.RawMessage
}

// Calls returns copies of the arguments of all calls so far.
func (f *Fake) Calls() []json.RawMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]json.RawMessage, len(f.calls))
	for i, c := range f.calls {
		out[i] = slices.Clone(c)
	}
	return out
}

// Definition returns f.Def.
func (f *Fake) Definition() tool.Definition { return f.Def }

// Call behaves.
func (f *Fake) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	f.mu.Lock()
	f.calls = append(f.calls, slices.Clone(args))
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch {
	case f.Behaviour == Hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case f.Behaviour == Fail:
		return nil, errors.New(FailText)
	case f.Result != nil:
		return slices.Clone(f.Result), nil
	}
	return slices.Clone(args), nil
}
