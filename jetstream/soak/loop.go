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

// loopDocument is an agent of the offline model: three turns that call tools,
// one of them two at once, then the answer.
//
//go:embed loop.yaml
var loopDocument []byte

// runKey is where the context of a tool's call holds the run.
type runKey struct{}

// loopAgent is a model's agent. Its tools have effects: one is safe to repeat, the
// other is not, and lost says what becomes of it when its worker is lost.
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

// stepOf is the place of a call among those of a run of the loop's document: the
// key is <run>.<turn>.<n>, and the turns have one, two and one calls.
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
