package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream/counter"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// counting are the mesh's counters for a node.
func (r *durableRig) counting() mesh.Counters { return counter.New(r.js(r.nc), r.m) }

// wide calls the same agent n times at once and tells how often it was refused.
func wide(n int, refused chan<- int) mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		var mu sync.Mutex
		var all sync.WaitGroup
		over := 0
		for i := range n {
			all.Go(func() {
				_, err := task.Call(ctx, mesh.Call{To: helper, Key: fmt.Sprint("swarm/", i)})
				mu.Lock()
				defer mu.Unlock()
				if codeOf(err) == envelope.CodeTreeLimit {
					over++
				} else if err != nil {
					over += 1000
				}
			})
		}
		all.Wait()
		refused <- over
		return json.RawMessage(`{}`), nil
	})
}

// The tasks of a corr are counted for the whole mesh, on both lanes; a sender may
// set a lower bound, and no higher one.
func TestTreeHasSoManyTasks(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	cfg := mesh.Config{Counters: r.counting(), Tree: mesh.TreeLimits{MaxTasks: 20}}
	refused := make(chan int, 1)
	r.serve(r.lane(cfg), mesh.Agent{Entity: helper, Handler: echo, Concurrency: 8})
	r.serve(r.lane(cfg), mesh.Agent{Entity: lead, Handler: wide(30, refused)})
	r.hears(helper)
	client := r.client()
	for _, c := range []struct {
		requires string
		live     bool
		over     int
	}{{`{}`, true, 10}, {`{}`, false, 10}, {`{"tree":{"max_tasks":5}}`, true, 25}, {`{"tree":{"max_tasks":500}}`, false, 10}} {
		task := requiring(newTask(lead, "lead.work", `{}`), c.requires)
		var err error
		if c.live {
			_, err = client.Send(ctxFor(t), task, mesh.SendOptions{})
		} else {
			_, _, err = client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "refused of "+c.requires, within(t, "the calls", refused), c.over)
	}
}

// The receiver counts hops of a sender that writes no requires.tree.
func TestTreeOfForeignersIsCountedOnArrival(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{Counters: r.counting(), Tree: mesh.TreeLimits{MaxTasks: 3}}), mesh.Agent{Entity: helper, Handler: echo})
	client := r.client()
	var codes []envelope.Code
	for i := range 5 {
		hop := newTask(helper, "helper.work", `{}`)
		hop.Corr, hop.ReplyTo = "a-foreign-tree", "the-parents-id"
		var err error
		if i%2 == 0 {
			_, err = client.Send(ctxFor(t), hop, mesh.SendOptions{})
		} else {
			_, _, err = client.Perform(ctxFor(t), hop, mesh.SubmitOptions{}, mesh.ResultOptions{})
		}
		codes = append(codes, codeOf(err))
	}
	equal(t, "codes", codes, []envelope.Code{"", "", "", envelope.CodeTreeLimit, envelope.CodeTreeLimit})
	if _, err := client.Send(ctxFor(t), newTask(helper, "helper.work", `{}`), mesh.SendOptions{}); err != nil {
		t.Errorf("a task of no tree: %v", err)
	}
}

// What the models of a tree may use is in requires.tree, and held against the
// counters of its corr where a task comes and where it is sent on.
func TestTreeBudgetStopsHops(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	counters := r.counting()
	cfg := mesh.Config{Counters: counters, Tree: mesh.TreeLimits{Tokens: 1000}}
	spend := make(chan int64, 8)
	r.serve(r.lane(cfg), mesh.Agent{Entity: helper, Handler: echo})
	r.serve(r.lane(cfg), mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if n := <-spend; n > 0 {
			if _, err := counters.Add(ctx, n, lead, mesh.CountTokens, task.Envelope.Corr); err != nil {
				return nil, err
			}
		}
		tokens, usd := task.TreeBudget()
		a, err := task.Call(ctx, mesh.Call{To: helper, Key: "1", Live: true})
		if err != nil {
			return nil, err
		}
		return json.RawMessage(fmt.Sprintf(`{"tokens":%d,"usd":%s,"id":%q}`, tokens, usd, a.TaskID)), nil
	})})
	client := r.client()
	hops := r.listen(helper)
	for _, c := range []struct {
		requires string
		spent    int64
		code     envelope.Code
		tree     string
	}{
		{`{"tree":{"tokens":70,"usd":0.5}}`, 69, "", `"tokens":70,"usd":0.5`},
		{`{"tree":{"tokens":70}}`, 70, envelope.CodeBudget, ""},
		{`{"tree":{"tokens":5000}}`, 1000, envelope.CodeBudget, ""}, // the operator's
		{`{}`, 999, "", `"tokens":1000`},
	} {
		spend <- c.spent
		_, err := client.Send(ctxFor(t), requiring(newTask(lead, "lead.work", `{}`), c.requires), mesh.SendOptions{})
		equal(t, "code of "+c.requires, codeOf(err), c.code)
		if c.code == "" {
			hop := parse(t, within(t, "the hop", hops).Data)
			if tree := member(t, hop.Requires, "tree"); !strings.Contains(tree, c.tree) {
				t.Errorf("the hop has %s, want %s in it", tree, c.tree)
			}
		}
	}
	empty(t, "no hop is sent without a budget", hops)
	// The receiver refuses a sender that sends on nevertheless.
	hop := requiring(newTask(helper, "helper.work", `{}`), `{"tree":{"depth":1,"tokens":5}}`)
	if _, err := counters.Add(ctxFor(t), 5, helper, mesh.CountTokens, hop.Corr); err != nil {
		t.Fatal(err)
	}
	_, err := client.Send(ctxFor(t), hop, mesh.SendOptions{})
	equal(t, "code on arrival", codeOf(err), envelope.CodeBudget)
}

// A call that was sent before the tree's budget was used up is waited for, also by the next
// owner of the run: what the called agent has used is spent either way.
func TestACallThatUsesUpTheBudgetIsFoundAgain(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t).shortLeases()
	counters := r.counting()
	cfg := mesh.Config{Counters: counters, Tree: mesh.TreeLimits{Tokens: 1000}}
	g := newGate(t)
	r.serve(r.lane(cfg), mesh.Agent{Entity: helper, Handler: g})
	r.hears(helper)
	first := r.lane(cfg)
	r.serve(first, mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one"}, nil)})
	client := r.client()
	task := newTask(lead, "lead.work", `{"n":1}`)
	r.submit(client, task)
	hop := within(t, "the hop", g.entered)
	for _, c := range hop.Counters() {
		if _, err := counters.Add(ctxFor(t), 1200, c.Owner, mesh.CountTokens, c.ID); err != nil {
			t.Fatal(err)
		}
	}
	first.Conn().Close() // as a crash, for the mesh
	r.serve(r.lane(cfg), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one"}, nil)})
	eventually(t, "the run has a second owner", func() bool { return r.record(task).Mesh.Epoch == 2 })
	g.open()
	reply, err := r.result(client, task)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "result", canonical(t, reply.Payload), `{"n":1}`)
}

// The timeout of a call counts from when it was sent, whichever owner of the run waits for it.
func TestTheTimeoutOfACallOutlivesItsSender(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t).shortLeases()
	gone := r.lane(mesh.Config{})
	r.serve(gone, mesh.Agent{Entity: helper, Handler: echo})
	r.hears(helper)
	gone.Conn().Close() // the agent has a durable lane, and no worker
	const timeout = time.Hour
	calls := calling(mesh.Call{To: helper, Key: "one", Timeout: timeout}, nil)
	first := r.lane(mesh.Config{})
	r.serve(first, mesh.Agent{Entity: lead, Handler: calls})
	client := r.client()
	task := newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	eventually(t, "the call is sent", func() bool {
		c := r.begun(task)
		return c != nil && len(c.Mesh.Calls) == 1 && !c.Mesh.Calls[0].Live
	})
	first.Conn().Close() // as a crash, for the mesh
	r.rewrite(task, func(c *state.Checkpoint) { c.Mesh.Calls[0].At = c.Mesh.Calls[0].At.Add(-timeout) })
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calls})
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeTimeout {
		t.Errorf("%v, want E_TIMEOUT, as the call was sent %s ago", err, timeout)
	}
}

// The deadline of a tree holds for a hop that claims more time.
func TestTreeHasADeadline(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	deadlines := make(chan time.Time, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		deadlines <- task.Deadline
		return json.RawMessage(`{}`), nil
	})})
	client := r.client()
	at := func(d time.Duration) string { return state.Time(time.Now().Add(d)) }
	for _, durable := range []bool{false, true} {
		send := func(deadline string) error {
			hop := requiring(newTask(helper, "helper.work", `{}`), `{"timeout_ms":600000,"tree":{"depth":1,"deadline":"`+deadline+`"}}`)
			var err error
			if durable {
				_, _, err = client.Perform(ctxFor(t), hop, mesh.SubmitOptions{}, mesh.ResultOptions{})
			} else {
				_, err = client.Send(ctxFor(t), hop, mesh.SendOptions{})
			}
			return err
		}
		if err := send(at(time.Minute)); err != nil {
			t.Errorf("durable %v: %v", durable, err)
		} else if left := time.Until(within(t, "the hop", deadlines)); left > 70*time.Second || left < 30*time.Second {
			t.Errorf("durable %v: the hop has %v of the minute", durable, left)
		}
		equal(t, "too late", codeOf(send(at(-time.Minute))), envelope.CodeTimeout)
	}
}

// An agent that calls an agent that waits for it waits in vain on the durable lane, but not for
// ever.
func TestCallOfABusyAncestorEnds(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newDurableRig(t)
	ended := make(chan error, 10_000)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		back := mesh.Call{To: lead, Key: "back"}
		if string(task.Envelope.Payload) == `{"soon":true}` {
			back.Timeout = time.Second
		}
		return calling(back, func(_ *mesh.Answer, err error) { ended <- err }).Handle(ctx, task)
	})})
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "there"}, nil)})
	r.hears(helper, lead)
	client := r.client()
	perform := func(payload string, timeout time.Duration) error {
		t.Helper()
		task := requiring(newTask(lead, "lead.work", payload), fmt.Sprintf(`{"timeout_ms":%d}`, timeout.Milliseconds()))
		_, _, err := client.Perform(ctxFor(t), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
		if codeOf(err) != envelope.CodeTimeout {
			t.Fatal(err)
		}
		return err
	}
	// The sender's own time ends the calls. On a busy machine it may end before they begin.
	eventually(t, "the calls end", func() bool {
		_ = perform(`{}`, 1500*time.Millisecond)
		return len(ended) > 0
	})
	if err := <-ended; err == nil {
		t.Error("a task was done by an agent without a free place")
	}
	// The sender, who has more time than the call, is told why. Where the store takes longer
	// to answer than a quarter of a second, the reason is not known.
	eventually(t, "the sender is told the reason", func() bool {
		return strings.Contains(perform(`{"soon":true}`, patience/2).Error(), "agent.lead had not begun the task")
	})
}

// A run has made a call, and made another one that uses up the tree's budget, when its worker is
// killed. The next owner makes both again: it gets the answers, because nothing is sent. Neither
// is counted again.
func TestACallThatWasSentNeedsNoBudget(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for name, keep := range map[string]bool{"a reply alone": false, "a document": true} { // what the answered call has left
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t).shortLeases()
			counters := r.counting()
			cfg := mesh.Config{Counters: counters, Tree: mesh.TreeLimits{Tokens: 1000}}
			spent, g := make(chan *mesh.Task, 1), make(chan struct{})
			r.serve(r.lane(cfg, func(d *mesh.Durable) { d.KeepTasks = keep }), mesh.Agent{Entity: helper, Handler: echo})
			r.serve(r.lane(cfg), mesh.Agent{Entity: "agent.spender", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				for _, c := range task.Counters() {
					if _, err := counters.Add(ctx, 1000, c.Owner, mesh.CountTokens, c.ID); err != nil {
						return nil, err
					}
				}
				spent <- task
				<-g
				return task.Envelope.Payload, nil
			})})
			r.hears(helper, "agent.spender")
			agent := mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				one, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Payload: json.RawMessage(`{"n":1}`)})
				if err != nil {
					return nil, err
				}
				// The record that names this call names the other one no more.
				if _, err := task.Call(ctx, mesh.Call{To: "agent.spender", Key: "two"}); err != nil {
					return nil, err
				}
				return one.Envelope.Payload, nil
			})}
			first, client, task := r.lane(cfg), r.client(), newTask(lead, "lead.work", `{}`)
			r.serve(first, agent)
			r.submit(client, task)
			hop := within(t, "the budget is used up", spent)
			first.Conn().Close()
			r.serve(r.lane(cfg), agent)
			eventually(t, "the run has a second owner", func() bool { return r.record(task).Mesh.Epoch == 2 })
			close(g)
			reply, err := r.result(client, task)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "result", canonical(t, reply.Payload), `{"n":1}`)
			tree := hop.Counters()[0]
			total, err := counters.Add(ctxFor(t), 0, tree.Owner, mesh.CountTasks, tree.ID)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "tasks of the tree", total, int64(2))
		})
	}
}

// A call that was open when an attempt failed stays in the run's record. The next attempt sends another
// task under the same key, and that is counted, and needs the tree's budget.
func TestACallOfTheNextAttemptIsCounted(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	counters := r.counting()
	cfg := mesh.Config{Counters: counters, Tree: mesh.TreeLimits{MaxTasks: 20}}
	hops := make(chan *mesh.Task, 2)
	r.serve(r.lane(cfg), mesh.Agent{Entity: helper, Concurrency: 2, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if hops <- task; string(task.Envelope.Payload) == `{"attempt":1}` {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return json.RawMessage(`{}`), nil
	})})
	r.hears(helper)
	var calls sync.WaitGroup
	defer calls.Wait()
	attempt, first := 0, make(chan *mesh.Task, 1)
	r.serve(r.lane(cfg), mesh.Agent{Entity: lead, Retry: mesh.RetryPolicy{Max: 1, Base: 1}, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		attempt++
		call := func(ctx context.Context) error {
			_, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Payload: json.RawMessage(fmt.Sprintf(`{"attempt":%d}`, attempt))})
			return err
		}
		if attempt > 1 {
			return json.RawMessage(`{}`), call(ctx)
		}
		open := context.WithoutCancel(ctx)
		calls.Go(func() { _ = call(open) })
		first <- <-hops
		return nil, envelope.Errorf(envelope.CodeUnavailable, "not now")
	})})
	client, task := r.client(), newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	hop := within(t, "the first attempt", first)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	tree := hop.Counters()[0]
	total, err := counters.Add(ctxFor(t), 0, tree.Owner, mesh.CountTasks, tree.ID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "tasks of the tree", total, int64(2))
	equal(t, "calls that reached the helper", len(hops), 1)
}
