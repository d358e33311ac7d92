package tooltest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/aeemesh/aeemesh/agents/tool"
)

// Behaviour is the behaviour of a tool when called.
type Behaviour string

// The behaviours that the suite needs.
const (
	Echo Behaviour = "echo" // return the arguments as the result
	Fail Behaviour = "fail" // fail, with FailText as the message
	Hang Behaviour = "hang" // wait until the call is cancelled
)

// FailText is the message of a failing tool.
const FailText = "the disk is full"

// Definition is the definition of a tool under test.
func Definition() tool.Definition {
	return tool.Definition{
		Name:        "subject",
		Description: "The tool under test.",
		Parameters:  json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		Output:      json.RawMessage(`{"type":"object"}`),
	}
}

// Fake is a tool with the given behaviour that records its calls. Fields must
// not be changed once it is in use.
type Fake struct {
	Def       tool.Definition // what Definition returns
	Behaviour Behaviour       // empty: Echo
	Result    json.RawMessage // if set, the result of every call

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

// Call behaves as Behaviour says.
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
