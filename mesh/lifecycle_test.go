package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestDrainFinishesWhatRunsAndHandsBackWhatWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	w := r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g})
	running, waiting := newTask(reviewer, "code.review", `{"n":1}`), newTask(reviewer, "code.review", `{"n":2}`)
	a := r.send(running)
	within(t, "the first task", g.entered)
	b := r.send(waiting)
	r.ping(reviewer)
	w.stop()
	want := waiting.ReplyError(envelope.Errorf(envelope.CodeDraining, "this worker of agent.reviewer is shutting down and had not begun the task").WithBackoff(100 * time.Millisecond))
	same(t, parse(t, within(t, "the task handed back", b).Data), want)
	empty(t, "the running task", a)
	g.open()
	same(t, parse(t, within(t, "the result", a).Data), running.Reply(envelope.TypeResult, running.Payload))
	if err := within(t, "Serve", w.done); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := r.nc.Request(reviewer, nil, patience); err != nats.ErrNoResponders {
		t.Errorf("after the end: %v", err)
	}
}

// Whatever the server had sent before the subscription was taken back is
// answered: run by this worker, or handed back.
func TestDrainLosesNoTask(t *testing.T) {
	t.Parallel()
	for _, seen := range []mesh.Seen{nil, &memSeen{}} {
		r := newRig(t)
		w := r.serve(r.node(mesh.Config{Seen: seen, SeenUnsigned: true, Quotas: mesh.Quotas{UnknownRate: -1}}), mesh.Agent{Handler: echo, Concurrency: 2, Queue: 64})
		second := r.serve(r.node(mesh.Config{Seen: seen, SeenUnsigned: true, Quotas: mesh.Quotas{UnknownRate: -1}}), mesh.Agent{Handler: echo, Concurrency: 2, Queue: 10_000})
		inbox := r.nc.NewInbox()
		answers := r.listen(inbox)
		const tasks = 3000
		for i := range tasks {
			r.nc.PublishRequest(reviewer, inbox, encode(t, newTask(reviewer, "code.review", `{}`)))
			if i == tasks/2 {
				w.stop()
			}
		}
		codes := map[envelope.Code]int{}
		for range tasks {
			e := parse(t, within(t, fmt.Sprintf("an answer; so far %v", codes), answers).Data)
			if e.Type == envelope.TypeError {
				codes[errorOf(t, e).Code]++
			} else {
				codes["ok"]++
			}
		}
		for code := range codes {
			switch code {
			case "ok", envelope.CodeDraining, envelope.CodeBusy:
			default:
				t.Errorf("answers: %v", codes)
			}
		}
		if err := within(t, "Serve", w.done); err != nil {
			t.Error(err)
		}
		second.end()
		settle(t, r.nc)
		empty(t, "after all answers", answers)
	}
}

func TestDrainGivesUpAfterItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	stopped := make(chan error, 1)
	w := r.serve(r.node(mesh.Config{Drain: 20 * time.Millisecond}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		g.entered <- task
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		<-g.release
		return nil, nil
	})})
	answers := r.send(newTask(reviewer, "code.review", `{}`))
	within(t, "the task", g.entered)
	w.stop()
	equal(t, "the answer", errorOf(t, parse(t, within(t, "an answer", answers).Data)).Code, envelope.CodeUnavailable)
	err := within(t, "Serve", w.done)
	if err == nil || !strings.Contains(err.Error(), "drain agent.reviewer: after 20ms there were tasks under way still (1)") {
		t.Errorf("Serve: %v", err)
	}
	equal(t, "what the handler hears", codeOf(within(t, "the handler", stopped)), envelope.CodeUnavailable)
}

// presence is the payload of an event on bus.mesh.agent.
type presence struct {
	Entity      string         `json:"entity"`
	Instance    string         `json:"instance"`
	AgentID     string         `json:"agent_id"`
	Version     string         `json:"version"`
	Status      string         `json:"status"`
	Running     int64          `json:"running"`
	Queued      int            `json:"queued"`
	Concurrency int            `json:"concurrency"`
	Requests    int64          `json:"requests"`
	Errors      int64          `json:"errors"`
	Started     string         `json:"started"`
	HeartbeatMS int64          `json:"heartbeat_ms"`
	Details     map[string]any `json:"details"`
}

func presenceOf(t testing.TB, e *envelope.Envelope) (p presence) {
	t.Helper()
	equal(t, "where presence goes", [2]string{string(e.Type), e.To}, [2]string{"event", "bus.mesh.agent"})
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAgentTellsTheBusOfItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	events := r.listen("bus.mesh.agent")
	w := r.serve(r.node(mesh.Config{Heartbeat: 10 * time.Millisecond}), mesh.Agent{
		Handler: echo, Concurrency: 3, Version: "1.2.3", AgentID: "did:example:1",
		Health: func() mesh.Health { return mesh.Health{Status: "degraded"} },
	})
	r.request(newTask(reviewer, "code.review", `{}`))
	r.request(newTask(reviewer, "aee.no.such", `{}`))
	joined := parse(t, within(t, "joined", events).Data)
	equal(t, "the first event", joined.Intent, intents.AgentJoined)
	first := presenceOf(t, joined)
	if _, err := time.Parse(envelope.TimeLayout, first.Started); err != nil || first.Instance == "" {
		t.Errorf("started %q, instance %q", first.Started, first.Instance)
	}
	want := presence{Entity: reviewer, Instance: first.Instance, AgentID: "did:example:1", Version: "1.2.3", Status: "degraded", Concurrency: 3, Started: first.Started, HeartbeatMS: 10}
	equal(t, "joined", first, want)
	equal(t, "its corr", joined.Corr, first.Instance)
	want.Requests, want.Errors = 2, 1
	eventually(t, "a heartbeat tells of both requests", func() bool {
		e := parse(t, within(t, "a heartbeat", events).Data)
		equal(t, "intent and corr", [3]string{e.Intent, e.Corr, e.From}, [3]string{intents.AgentHeartbeat, first.Instance, reviewer})
		return reflect.DeepEqual(presenceOf(t, e), want)
	})
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	last := joined
	for last.Intent != intents.AgentLeft { // heartbeats may be on their way
		last = parse(t, within(t, "left", events).Data)
	}
	equal(t, "its corr", last.Corr, first.Instance)
	equal(t, "left", presenceOf(t, last), want)
	settle(t, r.nc)
	equal(t, "after the last word", len(drained(events)), 0)
}

func TestHeartbeatsCanBeOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	events := r.listen("bus.mesh.agent")
	w := r.serve(r.node(mesh.Config{Heartbeat: -1}), mesh.Agent{Handler: echo})
	w.end()
	var told []string
	for !slices.Contains(told, intents.AgentLeft) {
		told = append(told, parse(t, within(t, "left", events).Data).Intent)
	}
	equal(t, "events", told, []string{intents.AgentJoined, intents.AgentLeft})
}

func TestTaskEventsFollowTheTask(t *testing.T) {
	t.Parallel()
	for _, level := range []mesh.TaskEvents{mesh.EventsAll, mesh.EventsFailures} {
		r := newRig(t)
		events, presence := r.listen("bus.mesh.task"), r.listen("bus.mesh.agent")
		r.serve(r.node(mesh.Config{TaskEvents: level}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			if string(task.Envelope.Payload) == `{"secret":2}` {
				return nil, envelope.Errorf("E_MINE", "no luck")
			}
			return json.RawMessage(`{"secret":3}`), nil
		})})
		instance := presenceOf(t, parse(t, within(t, "joined", presence).Data)).Instance
		good, bad := newTask(reviewer, "code.review", `{"secret":1}`), newTask(reviewer, "code.review", `{"secret":2}`)
		good.Corr, good.Trace = "workflow-1", json.RawMessage(`{"trace_id":"9f3c","span_id":"b77c"}`)
		bad.Corr = "workflow-1"
		r.request(good)
		r.request(bad)
		r.ping(reviewer) // what the mesh asks for itself is not told
		event := func(task *envelope.Envelope, intent, more string) *envelope.Envelope {
			return &envelope.Envelope{V: "1", ID: task.ID, TS: task.TS, Type: envelope.TypeEvent, From: reviewer, To: "bus.mesh.task", Intent: intent,
				Corr: "workflow-1", Trace: task.Trace, Priority: envelope.PriorityNormal,
				Payload: json.RawMessage(fmt.Sprintf(`{"task":%q,"intent":"code.review","sender":"human.ada","instance":%q%s}`, task.ID, instance, more))}
		}
		want := []*envelope.Envelope{
			event(good, intents.TaskStarted, ""),
			event(good, intents.TaskFinished, `,"duration_ms":0`),
			event(bad, intents.TaskStarted, ""),
			event(bad, intents.TaskFailed, `,"duration_ms":0,"error":{"code":"E_MINE","message":"no luck","retryable":false}`),
		}
		if level == mesh.EventsFailures {
			want = want[3:]
		}
		for _, w := range want {
			got := parse(t, within(t, "an event", events).Data)
			var members map[string]json.RawMessage
			json.Unmarshal(got.Payload, &members)
			if took, timed := members["duration_ms"]; timed {
				var ms float64
				if json.Unmarshal(took, &ms) != nil || ms <= 0 {
					t.Errorf("duration_ms is %s", took)
				}
				got.Payload = json.RawMessage(strings.Replace(string(got.Payload), `"duration_ms":`+string(took), `"duration_ms":0`, 1))
			}
			same(t, got, w)
		}
		settle(t, r.nc)
		empty(t, "more events", events)
	}
}

func TestServeLeavesNothingBehind(t *testing.T) {
	// Not parallel: it looks at all goroutines.
	srv, err := natsd.New(natsd.Config{Port: natsd.RandomPort})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	r := &rig{t, srv, nc}
	r.ping2()
	before := goleak.IgnoreCurrent()
	subs := nc.NumSubscriptions()
	node := r.nodeOn(nc, mesh.Config{Heartbeat: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Serve(ctx, mesh.Agent{Entity: reviewer, Handler: echo, Concurrency: 8}) }()
	eventually(t, "the agent answers", func() bool {
		_, err := nc.Request("aee.ask."+reviewer, []byte("hi"), time.Second)
		return err == nil
	})
	cancel()
	if err := within(t, "Serve", done); err != nil {
		t.Fatal(err)
	}
	equal(t, "subscriptions", nc.NumSubscriptions(), subs)
	goleak.VerifyNone(t, before)
}

// ping2 makes the connection's own request subscription exist.
func (r *rig) ping2() { r.nc.Request("nobody", nil, time.Second) }

func TestServeRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node := r.node(mesh.Config{})
	for want, agent := range map[string]mesh.Agent{
		`agent: entity "reviewer": has no type: it must be <type>.<name>, like "agent.reviewer"` + "\na handler is needed\nconcurrency -1: must be at least 1\nversion \"v1.0.0\" is not a semantic version (example: 1.0.0)": {Entity: "reviewer", Concurrency: -1, Version: "v1.0.0"},
		"agent: a handler is needed": {Entity: reviewer, Handler: mesh.HandlerFunc(nil)},
		`agent: trace header "aee-x" is not a valid header name, or is reserved`: {Entity: reviewer, Handler: echo, TraceHeader: "aee-x"},
		"agent: entity bus.x: a bus has no worker":                               {Entity: "bus.x", Handler: echo},
		"agent: entity human.ada: a human has no worker":                         {Entity: ada, Handler: echo},
		`agent: entity "aee.ask": first token "aee" is reserved for the mesh`:    {Entity: "aee.ask", Handler: echo},
	} {
		if err := node.Serve(t.Context(), agent); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if err := node.Serve(t.Context(), mesh.Agent{Entity: reviewer, Handler: mesh.Typed[struct{}, struct{}](nil)}); err == nil || err.Error() != "agent: a handler is needed" {
		t.Errorf("Typed of no function: %v", err)
	}
	_, err := mesh.New(nil, mesh.Config{Prefix: "agent", Entity: "x", MaxTimeout: -1})
	want := "mesh node: a NATS connection is needed\n" + `prefix "agent": first token "agent" is an entity type` + "\n" +
		`entity "x": has no type: it must be <type>.<name>, like "agent.x"` + "\nMaxTimeout and DefaultTimeout cannot be negative"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	closed := natstest.Conn(t, r.srv)
	closed.Close()
	if err := r.nodeOn(closed, mesh.Config{}).Serve(t.Context(), mesh.Agent{Entity: reviewer, Handler: echo}); err == nil || !strings.HasPrefix(err.Error(), "serve agent.reviewer: ") {
		t.Errorf("on a closed connection: %v", err)
	}
}

// The server reports a refused subscription asynchronously; a worker that no task
// reaches must not sit there as if all were well.
func TestServeSaysThatASubscriptionIsNotPermitted(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{
		{Name: "w", Password: "w", Permissions: &natsd.Permissions{Subscribe: natsd.Subjects{Allow: []string{"$SRV.>", "aee.>"}}}},
	}})
	r := &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("w", "w"))}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := r.node2(mesh.Config{}).Serve(ctx, mesh.Agent{Entity: reviewer, Handler: echo})
	if err == nil || !strings.HasPrefix(err.Error(), "serve agent.reviewer: the server does not permit ") || !strings.Contains(err.Error(), "agent.reviewer") {
		t.Errorf("Serve: %v", err)
	}
}

// node2 makes a node on the rig's own connection.
func (r *rig) node2(cfg mesh.Config) *mesh.Node { return r.nodeOn(r.nc, cfg) }

func TestWorkerServesAgainAfterServerRestart(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	r := &rig{t, srv, natstest.Conn(t, srv)}
	g := newGate(t)
	agents := make(chan *nats.Msg, 65536)
	w := r.serve(r.node(mesh.Config{Heartbeat: 10 * time.Millisecond}), mesh.Agent{Handler: g, Concurrency: 2})
	// One task is under way while the server goes and comes.
	mid := r.send(newTask(reviewer, "code.review", `{"mid":true}`))
	within(t, "the task", g.entered)
	srv2 := natstest.Restart(t, srv)
	eventually(t, "the agent is back", func() bool {
		_, err := r.nc.Request("$SRV.PING.agent-reviewer", nil, 200*time.Millisecond)
		return err == nil
	})
	watch := natstest.Conn(t, srv2)
	if _, err := watch.ChanSubscribe("bus.mesh.agent", agents); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		equal(t, "heartbeats go on", parse(t, within(t, "a heartbeat", agents).Data).Intent, intents.AgentHeartbeat)
	}
	g.open()
	equal(t, "the task under way", parse(t, within(t, "its result", mid).Data).Type, envelope.TypeResult)
	task := newTask(reviewer, "code.review", `{"after":true}`)
	same(t, r.request(task), task.Reply(envelope.TypeResult, task.Payload))
	if err := w.end(); err != nil {
		t.Error(err)
	}
}

func TestKilledWorkersTaskEndsAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newRig(t)
	g := newGate(t)
	conns := []*nats.Conn{natstest.Conn(t, r.srv), natstest.Conn(t, r.srv)}
	for _, nc := range conns {
		r.serve(r.nodeOn(nc, mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
			if string(task.Envelope.Payload) == `{"die":true}` {
				g.entered <- task
				<-g.release
			}
			return nil, nil
		})})
	}
	t.Cleanup(g.open)
	inboxes := r.listen("_INBOX.>")
	client := r.node(mesh.Config{})
	sent := make(chan error, 1)
	go func() {
		_, err := client.Send(t.Context(), requiring(newTask(reviewer, "code.review", `{"die":true}`), `{"timeout_ms":600000}`), mesh.SendOptions{})
		sent <- err
	}()
	within(t, "the task", g.entered)
	holder := holderOn(t, inboxes)[1]
	// Which of the two it is: ask who is busy.
	busy := -1
	var instances []mesh.Instance
	eventually(t, "both are found", func() bool { // who answers late is not waited for
		var err error
		instances, err = client.Discover(t.Context(), reviewer, time.Second)
		return err == nil && len(instances) == 2 && instances[0].Stats != nil && instances[1].Stats != nil
	})
	var presences = map[string]int64{}
	for _, in := range instances {
		var c struct{ Running int64 }
		if err := json.Unmarshal(in.Stats.Endpoints[0].Data, &c); err != nil {
			t.Fatal(err)
		}
		presences[in.Info.ID] = c.Running
	}
	equal(t, "tasks of the worker that has named itself", presences[holder], int64(1))
	for i, nc := range conns {
		for id, running := range presences {
			if running == 1 && r.servedBy(id, nc) {
				busy = i
			}
		}
	}
	if busy < 0 {
		t.Fatal("no worker is busy")
	}
	conns[busy].Close()
	// Until the server has noticed, it may still choose the dead worker.
	eventually(t, "the server to forget the dead worker", func() bool {
		left, err := client.Discover(t.Context(), reviewer, time.Second)
		return err == nil && len(left) == 1
	})
	for range 20 {
		equal(t, "the others go on", r.request(newTask(reviewer, "code.review", `{}`)).Type, envelope.TypeResult)
	}
	gone(t, "the sender", within(t, "Send", sent))
	g.open()
}

// servedBy reports whether the instance's own subscription is on nc.
func (r *rig) servedBy(id string, nc *nats.Conn) bool {
	r.t.Helper()
	before := nc.Stats().InMsgs
	r.requestRaw("$SRV.PING.agent-reviewer."+id, nil, nil)
	return nc.Stats().InMsgs > before
}

func TestIdleWorkerStopsAtOnceWhereTheServerIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node := r.node(mesh.Config{})
	w := r.serve(node, mesh.Agent{Handler: echo})
	r.srv.Close()
	eventually(t, "the connection to notice", func() bool { return !node.Conn().IsConnected() })
	w.stop()
	select {
	case err := <-w.done:
		equal(t, "nothing was lost", err, nil)
	case <-time.After(4 * time.Second): // half of what one vain flush takes
		t.Fatal("the worker waits for a server that is gone")
	}
}
