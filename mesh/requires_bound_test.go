package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/state"
)

// meshes are meshes of one server: without a prefix, red and blue. The same keys are
// known in all of them.
func meshes(t *testing.T) map[string]*durableRig {
	t.Helper()
	r := newDurableRig(t)
	return map[string]*durableRig{"": r, "red": r.under("red"), "blue": r.under("blue")}
}

// Finding 6 of the security review: the same keys in two prefixes of one server ran
// the same signed bytes in both.
func TestASignedTaskIsForOneMesh(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada-1", sign.Ed25519, ada)
	all := meshes(t)
	required := sign.Verifier{Ring: k.ring, Mode: sign.Required}
	for name, r := range all {
		agent := k.signer("reviewer-"+name+"1", sign.Ed25519, reviewer)
		r.serve(r.lane(mesh.Config{Verifier: required}), mesh.Agent{Handler: echo, Signer: agent})
		r.hears(reviewer)
	}
	for from, r := range all {
		client := r.lane(mesh.Config{Entity: ada, Signer: signer, Verifier: required})
		live := newTask(reviewer, "code.review", `{"lane":"live"}`)
		sent := r.listen(dot(from) + reviewer)
		if _, err := client.Send(ctxFor(t), live, mesh.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		bytes := within(t, "the task", sent).Data
		queued := newTask(reviewer, "code.review", `{"lane":"durable"}`)
		work, _ := r.m.Work("normal", reviewer)
		submitted := r.listen(work)
		r.submit(client, queued)
		if _, err := r.result(client, queued); err != nil {
			t.Fatal(err)
		}
		durable := within(t, "the durable task", submitted).Data
		for to, other := range all {
			if to == from {
				continue
			}
			problem := errorOf(t, parse(t, other.requestRaw(dot(to)+reviewer, bytes, nil).Data))
			equal(t, fmt.Sprintf("live, of %q in %q", from, to), problem.Code, envelope.CodeRequires)

			work, _ := other.m.Work("normal", reviewer)
			if err := other.nc.PublishMsg(&nats.Msg{Subject: work, Data: durable}); err != nil {
				t.Fatal(err)
			}
			there := other.lane(mesh.Config{Entity: ada, Verifier: required})
			_, err := there.Result(ctxFor(t), reviewer, queued.ID, mesh.ResultOptions{Follow: true})
			equal(t, fmt.Sprintf("durable, of %q in %q", from, to), codeOf(err), envelope.CodeRequires)
			if _, err := jetstream.NewStates(other.js(other.nc), other.m).Get(ctxFor(t), state.ID{Entity: reviewer, Run: state.RunID(reviewer, queued.ID)}); !errors.Is(err, state.ErrNotFound) {
				t.Errorf("of %q in %q: there is a run: %v", from, to, err)
			}
		}
	}
}

// What is not signed need not name its mesh; where it does, it holds.
func TestTheMeshOfATask(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada-1", sign.Ed25519, ada)
	all := meshes(t)
	for _, r := range all {
		r.serve(r.lane(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Handler: echo})
	}
	const none, red = ``, `"mesh":"red"`
	for _, c := range []struct {
		requires string
		signed   bool
		in       string
		want     string
	}{
		{none, false, "", ""}, {none, false, "red", ""}, {none, true, "", ""},
		{red, false, "red", ""}, {red, true, "red", ""}, {`"m\u0065sh":"r\u0065d"`, true, "red", ""},
		{none, true, "red", `a signed task must name its mesh here: set requires.mesh to "red" before it is signed`},
		{`"mesh":null`, true, "red", `a signed task must name its mesh here: set requires.mesh to "red" before it is signed`},
		{red, true, "blue", `requires.mesh: the task is for mesh "red", and this is "blue"`},
		{red, false, "blue", `requires.mesh: the task is for mesh "red", and this is "blue"`},
		{`"m\u0065sh":"red"`, true, "blue", `requires.mesh: the task is for mesh "red", and this is "blue"`},
		{red, true, "", `requires.mesh: the task is for mesh "red", and this one has no prefix`},
		{red, false, "", `requires.mesh: the task is for mesh "red", and this one has no prefix`},
		{`"mesh":""`, true, "", `requires.mesh must be a text: the subject prefix of the mesh that the task is for`},
		{`"mesh":["red"]`, true, "red", `requires.mesh must be a text: the subject prefix of the mesh that the task is for`},
	} {
		task := requiring(newTask(reviewer, "code.review", `{}`), `{`+c.requires+`}`)
		if c.signed {
			signed(t, signer, task)
		}
		reply := parse(t, all[c.in].requestRaw(dot(c.in)+reviewer, encode(t, task), nil).Data)
		name := fmt.Sprintf("%s, signed %v, in %q", c.requires, c.signed, c.in)
		if c.want == "" {
			equal(t, name, outcome(t, reply), reviewer+" {}")
		} else {
			equal(t, name, outcome(t, reply), "E_REQUIRES "+c.want)
		}
	}
}

// A signed command stops nothing in another mesh that has a task of the same id.
func TestASignedCommandIsForOneMesh(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada-1", sign.Ed25519, ada)
	all := meshes(t)
	red, blue := all["red"], all["blue"]
	g := newGate(t)
	blue.serve(blue.lane(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Handler: willing{g}, Concurrency: 4})
	blue.hears(reviewer)
	client := blue.lane(mesh.Config{Entity: ada, Signer: signer, Verifier: k.verifier()})

	// One on each lane.
	live := newTask(reviewer, "code.review", `{}`)
	if err := mesh.BindTask(live, "blue", false); err != nil {
		t.Fatal(err)
	}
	ended := make(chan *nats.Msg, 1)
	inbox := blue.nc.NewInbox()
	if _, err := blue.nc.ChanSubscribe(inbox, ended); err != nil {
		t.Fatal(err)
	}
	if err := blue.nc.PublishMsg(&nats.Msg{Subject: "blue." + reviewer, Reply: inbox, Data: encode(t, signed(t, signer, live))}); err != nil {
		t.Fatal(err)
	}
	within(t, "the live task", g.entered)
	durable := newTask(reviewer, "code.review", `{}`)
	blue.submit(client, durable)
	within(t, "the durable task", g.entered)

	ctl, _ := blue.m.Ctl(reviewer)
	urgent, _ := blue.m.Work("urgent", reviewer)
	for _, of := range []string{"red", ""} {
		for _, task := range []*envelope.Envelope{live, durable} {
			cancel := cancelOf(task, fmt.Sprintf(`{"id":%q,"durable":%v}`, task.ID, task == durable))
			if err := mesh.BindTask(cancel, of, false); err != nil {
				t.Fatal(err)
			}
			body := encode(t, signed(t, signer, cancel))
			if err := red.nc.Publish(ctl, body); err != nil {
				t.Fatal(err)
			}
			if _, err := blue.js(blue.nc).Publish(ctxFor(t), urgent, body); err != nil {
				t.Fatal(err)
			}
			_, err := client.Result(ctxFor(t), reviewer, cancel.ID, mesh.ResultOptions{Follow: true})
			equal(t, "the command over the queue", codeOf(err), envelope.CodeRequires)
		}
	}
	blue.servedAt(ctl) // and so has had the commands
	empty(t, "the live task's end", ended)
	g.open()
	equal(t, "the live task", parse(t, within(t, "its end", ended).Data).Type, envelope.TypeResult)
	if _, err := blue.result(client, durable); err != nil {
		t.Errorf("the durable task: %v", err)
	}
}

// servedAt waits until the worker has been through what was published to a control
// subject before: it answers what it has no such task for.
func (r *durableRig) servedAt(ctl string) {
	r.t.Helper()
	ping := envelope.New(envelope.TypeTask, ada, reviewer, intents.TaskCancel, json.RawMessage(`{"run":"none","durable":true}`))
	r.requestRaw(ctl, encode(r.t, ping), nil)
}

// All that a mesh signs of tasks names it: the mesh client's tasks, commands, hops of
// both lanes, tasks that are handed on, questions to people.
func TestAllSignedTasksNameTheirMesh(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	r := (&durableRig{rig: rigWith(t, natsd.Config{JetStream: true})}).under("red")
	required := mesh.Config{Verifier: sign.Verifier{Ring: k.ring, Mode: sign.Required}}
	signing := func(entity string) *sign.Signer {
		return k.signer(strings.ReplaceAll(entity, ".", "-"), sign.Ed25519, entity)
	}
	seen := r.listen("red.>")

	r.serve(r.lane(required), mesh.Agent{Entity: helper, Handler: echo, Signer: signing(helper)})
	r.hears(helper)
	lead := "agent.lead"
	r.serve(r.lane(required), mesh.Agent{Entity: lead, Signer: signing(lead), Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		switch task.Envelope.Intent {
		case "code.pass":
			return task.Delegate(ctx, mesh.Delegation{To: helper})
		case "code.person":
			_, err := task.Call(ctx, mesh.Call{To: bob, Key: "bob", Payload: json.RawMessage(`{"question":"?"}`)})
			return json.RawMessage(`{}`), err
		}
		a, err := task.Call(ctx, mesh.Call{To: helper, Key: "k", Payload: json.RawMessage(`{}`), Requires: map[string]json.RawMessage{"format": json.RawMessage(`"json"`)}})
		if err != nil {
			return nil, err
		}
		return a.Envelope.Payload, nil
	})})
	r.hears(lead)
	client := r.lane(mesh.Config{Entity: ada, Signer: signing(ada), Verifier: required.Verifier})
	for _, intent := range []string{"code.review", "code.pass"} {
		if _, err := client.Send(ctxFor(t), newTask(lead, intent, `{}`), mesh.SendOptions{}); err != nil {
			t.Fatalf("%s: %v", intent, err)
		}
		task := newTask(lead, intent, `{}`)
		r.submit(client, task)
		if _, err := r.result(client, task); err != nil {
			t.Fatalf("%s, durable: %v", intent, err)
		}
	}
	task := newTask(lead, "code.person", `{}`)
	r.submit(client, task)
	eventually(t, "bob is asked", func() bool {
		asks, err := client.PersonTasks(ctxFor(t), bob)
		return err == nil && len(asks) == 1
	})
	if _, err := client.Command(ctxFor(t), lead, intents.CancelTask{ID: task.ID}); err != nil {
		t.Fatal(err)
	}
	settle(t, r.nc)
	kinds := map[string]bool{}
	for _, msg := range drained(seen) {
		e, err := envelope.Parse(msg.Data)
		if err != nil || e.Type != envelope.TypeTask || e.Sig == nil {
			continue
		}
		var requires struct {
			Mesh string `json:"mesh"`
		}
		if err := json.Unmarshal(e.Requires, &requires); err != nil || requires.Mesh != "red" {
			t.Errorf("%s: a signed task %s from %s with requires %s", msg.Subject, e.Intent, e.From, e.Requires)
		}
		lane := "live"
		if strings.Contains(msg.Subject, ".aee.") {
			lane = strings.Split(msg.Subject, ".")[2]
		}
		kinds[lane+" "+e.From+" to "+e.To+" "+e.Intent] = true
	}
	for _, want := range []string{
		"live human.ada to agent.lead code.review", "live agent.lead to agent.helper agent.helper.run", "work agent.lead to agent.helper agent.helper.run", "work human.ada to agent.lead code.review",
		"work agent.lead to agent.helper code.pass", "live agent.lead to agent.helper code.pass", "live agent.lead to human.bob human.ask",
		"ctl human.ada to agent.lead " + intents.TaskCancel,
	} {
		if !kinds[want] {
			t.Errorf("nothing was sent as: %s", want)
		}
	}
	if t.Failed() {
		t.Log(kinds)
	}
	other := newTask(lead, "code.review", `{}`)
	other.Requires = json.RawMessage(`{"mesh":"blue"}`)
	_, err := client.Send(ctxFor(t), other, mesh.SendOptions{})
	equal(t, "a task for another mesh", codeOf(err), envelope.CodeRequires)
}

// What a person was asked in one mesh stands in no inbox of another one.
func TestASignedQuestionIsForOneMesh(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	signer := k.signer("ada-1", sign.Ed25519, ada)
	for name, r := range meshes(t) {
		client := r.lane(mesh.Config{Entity: ada, Verifier: k.verifier()})
		ids := map[string]string{}
		for _, of := range []string{"red", "blue", "", name} {
			task := newTask(bob, "human.ask", `{"question":"?"}`)
			if err := mesh.BindTask(task, of, false); err != nil {
				t.Fatal(err)
			}
			ids[task.ID] = of
			if _, err := r.js(r.nc).Publish(ctxFor(t), dot(name)+bob, encode(t, signed(t, signer, task))); err != nil {
				t.Fatal(err)
			}
		}
		asks, err := client.PersonTasks(ctxFor(t), bob)
		if err != nil {
			t.Fatal(err)
		}
		for _, ask := range asks {
			equal(t, "a question in "+name, ids[ask.Task.ID], name)
		}
		equal(t, "questions in "+name, len(asks), 2)
	}
}
