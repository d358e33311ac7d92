package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// DefaultParallelTools is how many tools run at once for one task.
const DefaultParallelTools = 4

// maxCalls is how many tools a model may call in one turn.
const maxCalls = 64

// toolset is what a model may call.
type toolset struct {
	defs     []model.ToolDef
	tools    map[string]*tool.Guarded
	parallel int
}

// newToolset resolves the document's function tools among those that the
// operator registered. Tools of other protocols are left out, and the notices
// say so.
func newToolset(def *aaif.Definition, opts Options) (*toolset, error) {
	s := &toolset{tools: make(map[string]*tool.Guarded), parallel: opts.ParallelTools}
	if s.parallel <= 0 {
		s.parallel = DefaultParallelTools
	}
	registry := opts.Tools
	if registry == nil {
		registry = new(tool.Registry)
	}
	var bad []error
	for i := range def.Agent.Tools {
		t := &def.Agent.Tools[i]
		if t.EffectiveProtocol() != aaif.ProtocolFunction {
			continue
		}
		if err := s.add(t, registry); err != nil {
			bad = append(bad, fmt.Errorf("/agent/tools/%d: %w", i, err))
		}
	}
	return s, errors.Join(bad...)
}

func (s *toolset) add(t *aaif.Tool, registry *tool.Registry) error {
	if s.tools[t.Name] != nil {
		return fmt.Errorf("there are two tools named %s", t.Name)
	}
	function, err := registry.Lookup(t.Name)
	if err != nil {
		there := "none is registered"
		if names := registry.Names(); len(names) > 0 {
			there = "registered are " + strings.Join(names, ", ")
		}
		return fmt.Errorf("no function is named %s: %s", t.Name, there)
	}
	guarded, err := tool.Guard(function, tool.Options{
		Definition: tool.Definition{Name: t.Name, Description: t.Description, Parameters: t.ParametersSchema, Output: t.OutputSchema},
		Timeout:    t.TimeoutSeconds.Seconds(), // 0: the guard's default
		Compile:    compileStrangers,
	})
	if err != nil {
		return err
	}
	s.tools[t.Name] = guarded
	d := guarded.Definition()
	s.defs = append(s.defs, model.ToolDef{Name: d.Name, Description: d.Description, Parameters: d.Parameters})
	return nil
}

// compileStrangers compiles a schema that may come from anybody's document.
func compileStrangers(schema json.RawMessage) (tool.Validator, error) { return intents.Compile(schema) }

// toolCalls calls the tools that the model's last turn asks for, a bounded
// number at once, and adds what they say to the conversation, in the order in
// which they were asked for. A tool that fails is no failure of the run: the
// model is told.
func (l *loop) toolCalls(ctx context.Context, task *mesh.Task, r *run) error {
	calls := r.Messages[len(r.Messages)-1].ToolCalls
	results := make([]model.Message, len(calls))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	places := make(chan struct{}, l.tools.parallel)
	for i, call := range calls {
		if i >= maxCalls {
			results[i] = model.ToolFailure(call, fmt.Sprintf("not called: at most %d calls in one turn", maxCalls))
			continue
		}
		places <- struct{}{}
		if err := l.showCall(task, call); err != nil {
			cancel(err)
		}
		if ctx.Err() != nil {
			<-places
			break
		}
		wg.Go(func() {
			defer func() { <-places }()
			var err error
			if results[i], err = l.toolCall(ctx, task, call); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, call := range calls {
		if l.tools.tools[call.Name] != nil && !slices.Contains(r.ToolsUsed, call.Name) {
			r.ToolsUsed = append(r.ToolsUsed, call.Name)
		}
	}
	r.Messages = append(r.Messages, results...)
	r.Phase = phaseModel
	return nil
}

// toolCall calls one tool. The error is not the tool's: the run cannot go on.
func (l *loop) toolCall(ctx context.Context, task *mesh.Task, call model.ToolCall) (model.Message, error) {
	begun := time.Now()
	result, err := l.tools.call(ctx, call)
	if err == nil {
		return model.ToolResult(call, result), l.showResult(task, call, time.Since(begun), nil)
	}
	var failure *tool.Error
	if !errors.As(err, &failure) {
		return model.Message{}, err // ctx is done
	}
	l.log.Debug("tool call failed", "id", task.Envelope.ID, "corr", task.Envelope.Corr, "tool", call.Name, "err", err, "cause", failure.Err)
	return model.ToolFailure(call, failure.Kind.Error()+": "+failure.Message), l.showResult(task, call, time.Since(begun), failure)
}

func (s *toolset) call(ctx context.Context, call model.ToolCall) (json.RawMessage, error) {
	t := s.tools[call.Name]
	if t == nil {
		names := make([]string, len(s.defs))
		for i, d := range s.defs {
			names[i] = d.Name
		}
		return nil, &tool.Error{Kind: tool.ErrNotFound, Tool: call.Name, Message: "there is no such tool; there are: " + strings.Join(names, ", ")}
	}
	return t.Call(ctx, call.Arguments)
}
