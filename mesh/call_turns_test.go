package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// thinks is a handler that takes so many turns, then makes calls, and answers how
// many of them were done.
func thinks(turns int, bound int64, calls ...string) mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if bound > 0 {
			task.BoundTurns(bound)
		}
		for n := range turns {
			if err := task.Turn(ctx, n+1); err != nil {
				return nil, err
			}
		}
		done := 0
		for i, to := range calls {
			_, err := task.Call(ctx, mesh.Call{To: to, Key: fmt.Sprint("call/", i)})
			switch {
			case codeOf(err) == envelope.CodeTreeLimit:
			case err != nil:
				return nil, err
			default:
				done++
			}
		}
		return json.RawMessage(fmt.Sprintf(`{"done":%d}`, done)), nil
	})
}

// sent sends a task over one of the lanes, and returns what came back.
func (r *durableRig) sent(task *envelope.Envelope, durable bool) (*envelope.Envelope, error) {
	r.t.Helper()
	if !durable {
		return r.client().Send(ctxFor(r.t), task, mesh.SendOptions{})
	}
	_, reply, err := r.client().Perform(ctxFor(r.t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
	return reply, err
}

// total is what a counter says.
func (r *durableRig) total(owner, kind string, ids ...string) int64 {
	r.t.Helper()
	n, err := r.counting().Add(ctxFor(r.t), 0, owner, kind, ids...)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// The turns of all agents of a corr count together, on both lanes: also those that the first agent
// took before its first call. A sender may lower the bound, but not raise it.
func TestTreeHasSoManyTurns(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	cfg := mesh.Config{Counters: r.counting(), Tree: mesh.TreeLimits{MaxIterations: 6}}
	r.serve(r.lane(cfg), mesh.Agent{Entity: helper, Handler: thinks(2, 0)})
	r.serve(r.lane(cfg), mesh.Agent{Entity: lead, Handler: thinks(2, 0, helper, helper, helper)})
	r.hears(helper)
	for _, c := range []struct {
		requires string
		done     string
	}{{`{}`, `2`}, {`{"tree":{"max_iterations":5}}`, `1`}, {`{"tree":{"max_iterations":500}}`, `2`}} {
		for _, durable := range []bool{false, true} {
			reply, err := r.sent(requiring(newTask(lead, "lead.work", `{}`), c.requires), durable)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, fmt.Sprintf("done of %s, durable %v", c.requires, durable), member(t, reply.Payload, "done"), c.done)
		}
	}
	_, err := r.sent(requiring(newTask(lead, "lead.work", `{}`), `{"tree":{"max_iterations":1}}`), false)
	equal(t, "too little for the first one", codeOf(err), envelope.CodeTreeLimit)
}

// A task with only one operator asks no counter.
func TestTurnsOfATaskAloneAreNotCounted(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{Counters: r.counting(), Tree: mesh.TreeLimits{MaxIterations: 3}}), mesh.Agent{Entity: lead, Handler: thinks(50, 0)})
	for _, durable := range []bool{false, true} {
		task := newTask(lead, "lead.work", `{}`)
		if _, err := r.sent(task, durable); err != nil {
			t.Errorf("durable %v: %v", durable, err)
		}
		equal(t, "turns that were counted", r.total(mesh.TreeOwner(task), mesh.CountTurns, "all"), int64(0))
	}
}

// A team's own bound is for its part of the tree: what others use of the corr
// does not count, what comes of it does.
func TestATeamBoundsItsPartOfTheTree(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	cfg := mesh.Config{Counters: r.counting()}
	for _, durable := range []bool{false, true} {
		for i, c := range []struct {
			bound int64
			done  string
		}{{5, `2`}, {4, `1`}, {2, `0`}} {
			suffix := fmt.Sprintf("_%d_%v", i, durable)
			for entity, h := range map[string]mesh.Handler{
				helper + suffix:       thinks(2, 0),
				"agent.team" + suffix: thinks(1, c.bound, helper+suffix, helper+suffix),
				lead + suffix: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					var last *mesh.Answer
					for i := range 2 { // the second has as many turns as the first
						var err error
						if last, err = task.Call(ctx, mesh.Call{To: "agent.team" + suffix, Key: fmt.Sprint(i)}); err != nil {
							return nil, err
						}
					}
					return last.Envelope.Payload, nil
				}),
			} {
				r.serve(r.lane(cfg), mesh.Agent{Entity: entity, Handler: h})
				r.hears(entity)
			}
			reply, err := r.sent(newTask(lead+suffix, "lead.work", `{}`), durable)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, fmt.Sprintf("done under %d, durable %v", c.bound, durable), member(t, reply.Payload, "done"), c.done)
		}
	}
}

// A run that goes on, here in another attempt, has its turns counted once.
func TestTurnsOfARunThatGoesOnAreCountedOnce(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	attempts := 0
	r.serve(r.lane(mesh.Config{Counters: r.counting()}), mesh.Agent{Entity: lead, Retry: mesh.RetryPolicy{Max: 3, Base: 1}, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		for n := range 4 {
			if err := task.Turn(ctx, n+1); err != nil {
				return nil, err
			}
		}
		if attempts++; attempts < 3 {
			return nil, envelope.Errorf(envelope.CodeUnavailable, "not now")
		}
		if err := task.Run().Commit(ctx, state.Step{Kind: state.StepHandler}, nil); err != nil {
			return nil, err
		}
		return json.RawMessage(`{}`), task.Turn(ctx, 5)
	})})
	task := requiring(newTask(lead, "lead.work", `{}`), `{"tree":{"max_iterations":5}}`)
	if _, err := r.sent(task, true); err != nil {
		t.Fatal(err)
	}
	equal(t, "turns", r.total(mesh.TreeOwner(task), mesh.CountTurns, "all"), int64(5))
	equal(t, "in the checkpoint", r.record(task).Mesh.Turns, 5)
}

// A program in the middle that knows nothing of trees, or lies about its own, frees
// no task from the bounds of the next one's operator: its corr is counted by the
// server, over both lanes.
func TestWhoDropsOrRaisesTheBoundsOfATreeFreesNobody(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	counters := r.counting()
	for i, c := range []struct {
		limits  mesh.TreeLimits
		spend   string // what the corr has used before
		n       int64
		allowed int // of three hops
		code    envelope.Code
	}{
		{mesh.TreeLimits{MaxIterations: 5}, "", 0, 2, envelope.CodeTreeLimit},
		{mesh.TreeLimits{Tokens: 100}, mesh.CountTokens, 99, 3, ""},
		{mesh.TreeLimits{Tokens: 100}, mesh.CountTokens, 100, 0, envelope.CodeBudget},
		{mesh.TreeLimits{USD: 2_000_000_000}, mesh.CountUSD, 2_000_000_000, 0, envelope.CodeBudget},
	} {
		for tree, drops := range map[string]bool{"": true, `,"tree":{"depth":1,"max_iterations":1000000,"max_tasks":1000000,"tokens":1000000000,"usd":1000,"deadline":"2999-01-01T00:00:00Z"}`: false} {
			for _, durable := range []bool{false, true} {
				suffix := fmt.Sprintf("_%d_%v_%v", i, drops, durable)
				what := fmt.Sprintf("%+v, drops %v, durable %v", c.limits, drops, durable)
				leaf := helper + suffix
				r.serve(r.lane(mesh.Config{Counters: counters, Tree: c.limits}), mesh.Agent{Entity: leaf, Handler: thinks(2, 0)})
				r.hears(leaf)
				var codes []envelope.Code
				foreign, done := r.client(), make(chan struct{})
				middle := "agent.foreign" + suffix
				sub, err := r.nc.Subscribe(middle, func(m *nats.Msg) {
					defer close(done)
					got := parse(t, m.Data)
					for range 3 {
						hop := newTask(leaf, "leaf.work", `{}`)
						hop.From, hop.Corr, hop.ReplyTo = middle, got.Corr, got.ID
						hop.Requires = json.RawMessage(`{"timeout_ms":10000` + tree + `}`)
						var err error
						if durable {
							_, _, err = foreign.Perform(ctxFor(t), hop, mesh.SubmitOptions{}, mesh.ResultOptions{})
						} else {
							_, err = foreign.Send(ctxFor(t), hop, mesh.SendOptions{})
						}
						codes = append(codes, codeOf(err))
					}
					answer := envelope.New(envelope.TypeResult, middle, got.From, got.Intent, json.RawMessage(`{}`))
					answer.Corr, answer.ReplyTo = got.Corr, got.ID
					raw, _ := answer.AppendJSON(nil)
					if err := m.Respond(raw); err != nil {
						t.Error(err)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				r.serve(r.lane(mesh.Config{Counters: counters}), mesh.Agent{Entity: lead + suffix, Handler: calling(mesh.Call{To: middle, Key: "there"}, nil)})
				task := newTask(lead+suffix, "lead.work", `{}`)
				if c.spend != "" {
					if _, err := counters.Add(ctxFor(t), c.n, leaf, c.spend, task.Corr); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := r.sent(task, durable); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				within(t, "the foreign program", done)
				if err := sub.Unsubscribe(); err != nil {
					t.Fatal(err)
				}
				for n, code := range codes {
					want := envelope.Code("")
					if n >= c.allowed {
						want = c.code
					}
					equal(t, fmt.Sprintf("%s: hop %d", what, n), code, want)
				}
			}
		}
	}
}
