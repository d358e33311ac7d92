package soak

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh"
)

// loopDocument is an agent with the offline model: three turns that call tools, one of
// them two at once, then the answer.
//
//go:embed loop.yaml
var loopDocument []byte

// runKey is the context key of the run that a tool call belongs to.
type runKey struct{}

// loopAgent returns an agent with a model. Its tools have effects: one tool is safe to
// repeat, the other is not; lost says what happens to its call when the worker is lost.
func loopAgent(entity string, lost agents.LostCall, cfg workerConfig, g *gates, owner func(string), log *slog.Logger) (*agents.Agent, error) {
	doc, err := aaif.Parse(loopDocument, aaif.Options{Name: "loop.yaml", Kind: aaif.KindAgent})
	if err != nil {
		return nil, err
	}
	effect := func(once bool) func(context.Context, struct{}) (json.RawMessage, error) {
		return func(ctx context.Context, _ struct{}) (json.RawMessage, error) {
			run, ok := ctx.Value(runKey{}).(*mesh.Run)
			if !ok {
				return nil, fmt.Errorf("the call belongs to no run")
			}
			key := tool.KeyFrom(ctx)
			step, err := stepOf(key)
			if err != nil {
				return nil, err
			}
			g.at(ctx, pointBeforeEffect, run.ID())
			receipt, err := cause(ctx, cfg.Effects, call{Key: key, Run: run.ID(), Epoch: run.Epoch(), Step: step, Once: once, From: cfg.System})
			if err != nil {
				return nil, err
			}
			g.at(ctx, pointAfterEffect, run.ID())
			return fmt.Appendf(nil, `{"step":%d,"receipt":%d}`, step, receipt), nil
		}
	}
	reg := &tool.Registry{}
	if err := reg.Add(
		tool.RepeatSafe(tool.Func(tool.Definition{Name: "effect", Description: "Has an effect."}, effect(false))),
		tool.Func(tool.Definition{Name: "effect_once", Description: "Has an effect that must not be repeated."}, effect(true)),
	); err != nil {
		return nil, err
	}
	a, err := agents.New(doc, agents.Options{As: entity, Tools: reg, Concurrency: cfg.Places, Queue: 4 * cfg.Places, Logger: log,
		LostCalls: map[string]agents.LostCall{"effect_once": lost}})
	if err != nil {
		return nil, err
	}
	inner := a.Handler
	a.Handler = owned{mesh.HandlerFunc(func(ctx context.Context, t *mesh.Task) (json.RawMessage, error) {
		return inner.Handle(context.WithValue(ctx, runKey{}, t.Run()), t)
	}), owner}
	return a, nil
}

// stepOf returns the step of a tool call, ten times the turn plus the call's number. The
// key is <run>.<turn>.<n>.
func stepOf(key string) (int, error) {
	f := strings.Split(key, ".")
	if len(f) < 3 {
		return 0, fmt.Errorf("key %q is no effect's", key)
	}
	turn, err := strconv.Atoi(f[len(f)-2])
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(f[len(f)-1])
	return 10*turn + n, err
}
