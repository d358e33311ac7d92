package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

const (
	lead   = "agent.lead"
	helper = "agent.helper"
)

// calling is a handler that makes one call and answers with what it got.
func calling(call mesh.Call, seen func(*mesh.Answer, error)) mesh.Handler {
	return mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		c := call
		if c.Payload == nil {
			c.Payload = task.Envelope.Payload
		}
		a, err := task.Call(ctx, c)
		if seen != nil {
			seen(a, err)
		}
		if err != nil {
			return nil, err
		}
		return a.Envelope.Payload, nil
	})
}

func TestCallOverTheLiveLaneInheritsWhatItsTaskSays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hops := r.listen(helper)
	var answer *mesh.Answer
	var begun string
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{
		To: helper, Key: "one", Requires: map[string]json.RawMessage{"format": json.RawMessage(`"text"`), "tree": json.RawMessage(`{"depth":-9}`)},
		Begun: func(id string, durable bool) { begun = id },
	}, func(a *mesh.Answer, err error) { answer = a })})
	task := requiring(newTask(lead, "lead.work", `{"text":"hello"}`), `{"timeout_ms":600000}`)
	task.Priority = envelope.PriorityHigh
	task.Trace = json.RawMessage(`{"trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331"}`)
	reply, err := r.node(mesh.Config{Entity: ada}).Send(ctxFor(t), task, mesh.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "result", canonical(t, reply.Payload), `{"text":"hello"}`)
	hop := parse(t, within(t, "the hop", hops).Data)
	equal(t, "inherited", []any{hop.From, hop.To, hop.Intent, hop.Corr, hop.ReplyTo, hop.Priority, string(hop.Trace)},
		[]any{lead, helper, "agent.helper.run", task.Corr, task.ID, envelope.PriorityHigh, string(task.Trace)})
	var tree map[string]any
	if err := json.Unmarshal([]byte(member(t, hop.Requires, "tree")), &tree); err != nil || tree["key"] == "" {
		t.Errorf("tree %v, %v: it has no key", tree, err)
	}
	delete(tree, "key") // which cannot be guessed
	equal(t, "tree", canonical(t, mustJSON(tree)), `{"depth":1,"max_depth":16,"max_iterations":10000,"max_tasks":10000,"root":"`+task.ID+`","waiting":[{"entity":"agent.lead","task":"`+task.ID+`"}]}`)
	equal(t, "format", member(t, hop.Requires, "format"), `"text"`)
	requires, err := hop.Requirements()
	if err != nil || requires.Timeout <= 9*time.Minute || requires.Timeout >= 10*time.Minute {
		t.Errorf("the hop has %v of ten minutes, %v", requires.Timeout, err)
	}
	if answer.TaskID != hop.ID || begun != hop.ID || answer.Durable || answer.Entity != helper || answer.Envelope.ReplyTo != hop.ID || answer.Ended.Before(answer.Began) {
		t.Errorf("answer %+v to %s, begun %s", answer, hop.ID, begun)
	}
}

// A call of a goroutine of the handler, where a panic would end the process.
func TestACallWhoseRequiresAreNoJSONIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo})
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		done := make(chan error)
		go func() {
			_, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Requires: map[string]json.RawMessage{"format": json.RawMessage("text")}})
			done <- err
		}()
		err := <-done
		if err == nil || !strings.Contains(err.Error(), "the requires of a call to agent.helper: ") {
			t.Error(err)
		}
		return json.RawMessage(`{}`), nil
	})})
	equal(t, "type", r.request(newTask(reviewer, "code.review", `{}`)).Type, envelope.TypeResult)
}

func TestCallOverTheDurableLane(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	answers := make(chan *mesh.Answer, 1)
	var want string
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo})
	r.hears(helper)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		want = task.CallID("one")
		a, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Payload: json.RawMessage(`{"n":1}`)})
		answers <- a
		if err != nil {
			return nil, err
		}
		again, err := task.Call(ctx, mesh.Call{To: helper, Key: "one", Payload: json.RawMessage(`{"n":1}`)})
		if err == nil && again.Envelope.ID != a.Envelope.ID {
			t.Errorf("the same key had another answer, %s", again.Envelope.ID)
		}
		return a.Envelope.Payload, err
	})})
	client := r.client()
	task := newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	reply, err := r.result(client, task)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "result", canonical(t, reply.Payload), `{"n":1}`)
	a := within(t, "the answer", answers)
	if !a.Durable || a.TaskID != want || a.TaskID[:10] != task.ID[:10] || a.TaskID == task.ID {
		t.Errorf("answer %+v, want the id %s", a, want)
	}
	hop, err := r.record(&envelope.Envelope{To: helper, ID: want}).ReadTask()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "hop", []string{hop.From, hop.ReplyTo, hop.Corr}, []string{lead, task.ID, task.Corr})
}

// A worker that takes a run over finds the call that the one before it sent.
func TestCallIsFoundAgainAfterACrash(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := newDurableRig(t).shortLeases()
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: g})
	r.hears(helper)
	first := r.lane(mesh.Config{})
	r.serve(first, mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one"}, nil)})
	client := r.client()
	task := newTask(lead, "lead.work", `{"n":1}`)
	r.submit(client, task)
	hop := within(t, "the hop", g.entered).Envelope
	first.Conn().Close() // as a crash, for the mesh
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one"}, nil)})
	eventually(t, "the run has a second owner", func() bool { return r.record(task).Mesh.Epoch == 2 })
	g.open()
	reply, err := r.result(client, task)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "result", canonical(t, reply.Payload), `{"n":1}`)
	if n := len(g.entered); n != 0 {
		t.Errorf("%d hops more than %s", n, hop.ID)
	}
}

func TestCallEndsWithAnErrorThatTells(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	errs := make(chan error, 1)
	seen := func(_ *mesh.Answer, err error) { errs <- err }
	node := r.node(mesh.Config{})
	r.serve(node, mesh.Agent{Entity: helper, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return nil, envelope.Errorf("E_MINE", "no luck")
	})})
	for i, c := range []struct {
		call mesh.Call
		code envelope.Code
		text string
	}{
		{mesh.Call{To: helper, Key: "x"}, "E_MINE", "no luck"},
		{mesh.Call{To: ada, Key: "x"}, envelope.CodeUnavailable, "inboxes"},
		{mesh.Call{To: "bus.x", Key: "x"}, envelope.CodeNoResponders, "no worker"},
		{mesh.Call{To: "agent.nobody", Key: "x", Timeout: time.Second}, envelope.CodeNoResponders, "no worker serves agent.nobody"},
		{mesh.Call{To: helper}, envelope.CodeInternal, "key"},
		{mesh.Call{To: "agent.*", Key: "x"}, envelope.CodeInternal, "agent.*"},
	} {
		entity := lead + string(rune('a'+i))
		r.serve(node, mesh.Agent{Entity: entity, Handler: calling(c.call, seen)})
		r.send(newTask(entity, "lead.work", `{}`))
		err := within(t, "the error", errs)
		if codeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

func TestCallStopsAtTheHopLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// An agent that calls itself, for ever.
	self := calling(mesh.Call{To: lead, Intent: "lead.work", Key: "again"}, nil)
	r.serve(r.node(mesh.Config{Tree: mesh.TreeLimits{MaxDepth: 3}}), mesh.Agent{Entity: lead, Handler: self, Concurrency: 16})
	hops := r.listen(lead)
	e := errorOf(t, r.request(newTask(lead, "lead.work", `{}`)))
	if e.Code != envelope.CodeTreeLimit || !strings.Contains(e.Message, "4 hops") || e.Retryable {
		t.Errorf("%+v", e)
	}
	settle(t, r.nc)
	equal(t, "tasks", len(drained(hops)), 4)
	// What a sender says of the tree can only lower the bound.
	for _, c := range []struct {
		tree string
		code envelope.Code
	}{
		{`{"max_depth":100,"depth":4}`, envelope.CodeTreeLimit}, {`{"max_depth":2,"depth":3}`, envelope.CodeTreeLimit},
		{`{"max_depth":0}`, envelope.CodeRequires}, {`{"max_iterations":0}`, envelope.CodeRequires}, {`{"teams":[{"task":"t","max_iterations":0}]}`, envelope.CodeRequires}, {`{"teams":[{"max_iterations":1}]}`, envelope.CodeRequires}, {`{"max_tasks":0}`, envelope.CodeRequires}, {`{"tokens":0}`, envelope.CodeRequires},
		{`{"usd":0.0}`, envelope.CodeRequires}, {`{"usd":1e-12}`, envelope.CodeRequires},
		{`{"depth":-1}`, envelope.CodeRequires}, {`"deep"`, envelope.CodeRequires}, {`{"max_depth":1}`, envelope.CodeTreeLimit},
	} {
		e := errorOf(t, r.request(requiring(newTask(lead, "lead.work", `{}`), `{"tree":`+c.tree+`}`)))
		equal(t, c.tree, e.Code, c.code)
	}
}

func TestCallIsCancelledWithItsTask(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{true, false} {
		r := newDurableRig(t)
		g := willing{newGate(t)}
		r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: g})
		r.hears(helper)
		done := make(chan error, 1)
		r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one", Live: live}, func(_ *mesh.Answer, err error) { done <- err })})
		failed := r.events()
		client := r.client()
		task := newTask(lead, "lead.work", `{}`)
		r.submit(client, task)
		hop := within(t, "the hop", g.entered).Envelope
		if _, err := client.Command(ctxFor(t), lead, intents.CancelTask{ID: task.ID}); err != nil {
			t.Fatal(err)
		}
		if err := within(t, "the call to end", done); !errors.Is(err, context.Canceled) && codeOf(err) != envelope.CodeCancelled {
			t.Errorf("the call ended with %v", err)
		}
		for {
			e := r.event(failed, "mesh.task.failed")
			if member(t, e.Payload, "task") == `"`+hop.ID+`"` {
				break
			}
		}
	}
}
