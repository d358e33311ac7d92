package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

func TestSendReturnsTheResultAndErrorsAsErrors(t *testing.T) {
	t.Parallel()
	for _, cbor := range []bool{false, true} {
		for _, stream := range []bool{false, true} {
			r := newRig(t)
			r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if string(task.Envelope.Payload) == `{"fail":true}` {
					return nil, envelope.Errorf("E_MINE", "no luck").WithBackoff(time.Second)
				}
				return streamFive(ctx, task)
			})})
			client := r.node(mesh.Config{})
			var seqs []string
			opts := mesh.SendOptions{CBOR: cbor}
			if stream {
				opts.OnStream = func(e *envelope.Envelope) error { seqs = append(seqs, canonical(t, e.Payload)); return nil }
			}
			task := newTask(reviewer, "code.review", `{"n":1}`)
			reply, err := client.Send(t.Context(), task, opts)
			if err != nil {
				t.Fatal(err)
			}
			same(t, reply, task.Reply(envelope.TypeResult, task.Payload))
			var want []string
			if stream {
				for _, n := range []string{"1", "2", "3", "4", "5"} {
					want = append(want, `{"seq":`+n+`,"text":"chunk"}`)
				}
			}
			equal(t, "stream", seqs, want)
			reply, err = client.Send(t.Context(), newTask(reviewer, "code.review", `{"fail":true}`), opts)
			var e *envelope.Error
			if !errors.As(err, &e) || reply == nil || !e.FromPeer() || e.Code != "E_MINE" || e.Message != "no luck" || e.Backoff() != time.Second {
				t.Errorf("%+v, %v", reply, err)
			}
		}
	}
}

// A task may ask for a stream although this client does not read it.
func TestSendIgnoresAStreamThatNobodyTakes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(streamFive)})
	task := requiring(newTask(reviewer, "code.review", `{"n":1}`), `{"stream":true,"timeout_ms":60000}`)
	reply, err := r.node(mesh.Config{}).Send(t.Context(), task, mesh.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same(t, reply, task.Reply(envelope.TypeResult, task.Payload))
}

// twice is an agent that answers each task well. Before it does, and after, it
// sends what the test wants on the reply subject.
func (r *rig) twice(before, after func(m *nats.Msg, task *envelope.Envelope)) {
	r.t.Helper()
	sub, err := r.nc.Subscribe(reviewer, func(m *nats.Msg) {
		task := parse(r.t, m.Data)
		before(m, task)
		m.Respond(encode(r.t, task.Reply(envelope.TypeResult, task.Payload)))
		after(m, task)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { sub.Unsubscribe() })
	settle(r.t, r.nc)
}

// A reply subject serves many tasks, one after the other. A late message on
// it to an earlier task is not taken for an answer.
func TestAnAnswerToAnEarlierTaskIsIgnored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	former := map[string]*envelope.Envelope{} // by reply subject
	again := 0
	r.twice(func(m *nats.Msg, task *envelope.Envelope) {
		old := former[m.Reply]
		former[m.Reply] = task
		if old == nil {
			return
		}
		again++
		refused := old.Reply(envelope.TypeError, envelope.Errorf(envelope.CodeInvalidEnvelope, "what is it").Payload())
		refused.ReplyTo, refused.Corr = "00000000000000000000000000", envelope.NewID()
		for _, e := range []*envelope.Envelope{
			old.Reply(envelope.TypeResult, json.RawMessage(`{"stray":true}`)),
			old.Reply(envelope.TypeError, envelope.Errorf(envelope.CodeInternal, "stray").Payload()),
			refused,
		} {
			m.Respond(encode(r.t, e))
		}
		m.Respond([]byte("stray"))
	}, func(*nats.Msg, *envelope.Envelope) {})
	client := r.node(mesh.Config{})
	for i := range 200 {
		task := newTask(reviewer, "code.review", fmt.Sprintf(`{"n":%d}`, i))
		reply, err := client.Send(t.Context(), task, mesh.SendOptions{})
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
		same(t, reply, task.Reply(envelope.TypeResult, task.Payload))
	}
	settle(t, r.nc)
	if again < 10 {
		t.Errorf("%d reply subjects were used again", again)
	}
}

func TestAReplySubjectOnWhichTwoAnswersCameIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen := map[string]bool{}
	again := 0
	r.twice(func(m *nats.Msg, _ *envelope.Envelope) {
		if seen[m.Reply] {
			again++
		}
		seen[m.Reply] = true
	}, func(m *nats.Msg, task *envelope.Envelope) {
		m.Respond(encode(r.t, task.Reply(envelope.TypeResult, task.Payload)))
	})
	client := r.node(mesh.Config{})
	for range 200 {
		if _, err := client.Send(t.Context(), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, r.nc)
	equal(t, "reply subjects used again", again, 0)
}

// Where nothing but strays come, the deadline says what they were.
func TestStraysDoNotKeepATaskWaiting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var first *envelope.Envelope
	sub, err := r.nc.Subscribe(reviewer, func(m *nats.Msg) {
		task := parse(r.t, m.Data)
		if first == nil {
			first = task
		}
		if string(task.Payload) == `{"last":true}` {
			task = first
		}
		m.Respond(encode(r.t, task.Reply(envelope.TypeResult, task.Payload)))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sub.Unsubscribe() })
	settle(t, r.nc)
	client := r.node(mesh.Config{})
	for range 64 {
		if _, err := client.Send(t.Context(), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the sender is told of the reply to another task", func() bool { // which comes later on a busy machine
		_, err := client.Send(t.Context(), requiring(newTask(reviewer, "code.review", `{"last":true}`), `{"timeout_ms":20}`), mesh.SendOptions{})
		if codeOf(err) != envelope.CodeTimeout {
			t.Fatalf("Send: %v", err)
		}
		return strings.Contains(err.Error(), "a reply arrived, but to another task")
	})
}

func TestSendWithoutAWorkerSaysSoAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client := r.node(mesh.Config{})
	for _, onStream := range []func(*envelope.Envelope) error{nil, func(*envelope.Envelope) error { return nil }} {
		_, err := client.Send(t.Context(), newTask("agent.nobody", "code.review", `{}`), mesh.SendOptions{OnStream: onStream})
		if codeOf(err) != envelope.CodeNoResponders || !errors.Is(err, nats.ErrNoResponders) || !strings.HasPrefix(err.Error(), "E_NO_RESPONDERS: no worker serves agent.nobody") {
			t.Errorf("Send: %v", err)
		}
	}
}

// An agent ends a task at its timeout_ms. A sender that does not wait that long cancels the task.
func TestSendEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ctx      time.Duration // 0: no deadline
		requires string
		signed   bool // by another process
		cancels  int
	}{
		"of the context":                    {ctx: 20 * time.Millisecond},
		"of the context, after the task's":  {ctx: 40 * time.Millisecond, requires: `{"timeout_ms":20}`},
		"of the context, before the task's": {ctx: 20 * time.Millisecond, requires: `{"timeout_ms":600000}`, cancels: 1},
		"of the context, for a signed task": {ctx: 20 * time.Millisecond, signed: true, cancels: 1},
		"of the task":                       {requires: `{"timeout_ms":20}`},
		"of the task, signed":               {requires: `{"timeout_ms":20}`, signed: true},
		"of the node":                       {},
		"of the node, for a signed task":    {signed: true, cancels: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			control := r.listen("aee.ctl.>")
			r.listen("agent.silent")
			client := r.node(mesh.Config{DefaultTimeout: 20 * time.Millisecond})
			task := newTask("agent.silent", "code.review", `{}`)
			if c.requires != "" {
				requiring(task, c.requires)
			}
			if c.signed {
				signed(t, newKeys(t).signer("key-1", sign.Ed25519, ">"), task)
			}
			ctx := t.Context()
			if c.ctx > 0 {
				limited, cancel := context.WithTimeout(ctx, c.ctx)
				defer cancel()
				ctx = limited
			}
			_, err := client.Send(ctx, task, mesh.SendOptions{})
			if codeOf(err) != envelope.CodeTimeout || !strings.HasPrefix(err.Error(), "E_TIMEOUT: agent.silent did not answer in time") {
				t.Errorf("Send: %v", err)
			}
			settle(t, r.nc)
			sent := drained(control)
			equal(t, "cancels", len(sent), c.cancels)
			for _, msg := range sent {
				equal(t, "the command", parse(t, msg.Data).Intent, intents.TaskCancel)
			}
		})
	}
}

func TestAgentLearnsHowLongTheSenderWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	g.open()
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g})
	client := r.node(mesh.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for requires, atMost := range map[string]time.Duration{"": time.Minute, `{"x-mine":[1.0],"format":"json"}`: time.Minute, `{"timeout_ms":7000}`: 7 * time.Second} {
		task := newTask(reviewer, "code.review", `{}`)
		if requires != "" {
			requiring(task, requires)
		}
		if _, err := client.Send(ctx, task, mesh.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		got := within(t, "the task", g.entered)
		if d := got.Requires.Timeout; d > atMost || d < atMost*9/10 {
			t.Errorf("%s: timeout %v", requires, d)
		}
		if strings.Contains(requires, "x-mine") && !strings.Contains(string(got.Envelope.Requires), `"x-mine":[1.0]`) {
			t.Errorf("unknown keys are lost: %s", got.Envelope.Requires)
		}
	}
}

func TestReplyThatIsNotForTheTaskIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(task, reply *envelope.Envelope)
		want   string
	}{
		"foreign corr":     {func(_, e *envelope.Envelope) { e.Corr = "another-corr" }, "reply from agent.reviewer: foreign corr another-corr"},
		"foreign reply_to": {func(_, e *envelope.Envelope) { e.ReplyTo = "another-task" }, "reply from agent.reviewer: it answers another-task, not "},
		"foreign stream":   {func(_, e *envelope.Envelope) { e.Type, e.ReplyTo = envelope.TypeStream, "another-task" }, "reply from agent.reviewer: it answers another-task, not "},
		"a task":           {func(_, e *envelope.Envelope) { e.Type = envelope.TypeTask }, "reply from agent.reviewer: an envelope of type task is no answer"},
		"foreign from":     {func(_, e *envelope.Envelope) { e.From = "agent.eve" }, "a reply to the task for agent.reviewer comes from agent.eve"},
		"no envelope":      {func(_, e *envelope.Envelope) { e.Type = "answer" }, "reply from agent.reviewer: type must be task, result, event, error or stream"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if _, err := r.nc.Subscribe(reviewer, func(msg *nats.Msg) {
				task, err := envelope.Parse(msg.Data)
				if err != nil {
					return
				}
				reply := task.Reply(envelope.TypeResult, nil)
				c.change(task, reply)
				data, err := reply.AppendJSON(nil)
				if err != nil {
					data = []byte(strings.Replace(string(encode(t, task.Reply(envelope.TypeResult, nil))), `"result"`, `"answer"`, 1))
				}
				msg.Respond(data)
			}); err != nil {
				t.Fatal(err)
			}
			settle(t, r.nc)
			client := r.node(mesh.Config{})
			for _, onStream := range []func(*envelope.Envelope) error{nil, func(*envelope.Envelope) error { return nil }} {
				reply, err := client.Send(t.Context(), requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":60000}`), mesh.SendOptions{OnStream: onStream})
				if reply != nil || err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%+v, %v", reply, err)
				}
				if code := codeOf(err); code != envelope.CodeInvalidEnvelope {
					t.Errorf("code %s", code)
				}
			}
		})
	}
}

func TestPubAckInsteadOfAnAnswerGivesTheHint(t *testing.T) {
	t.Parallel()
	r := rigWith(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "ALL", Subjects: []string{"agent.>"}, Storage: natsjs.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	_, err = r.node(mesh.Config{}).Send(t.Context(), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{})
	if err == nil || !strings.Contains(err.Error(), "a JetStream stream captures the subject of agent.reviewer") || !strings.Contains(err.Error(), "no_ack") {
		t.Errorf("Send: %v", err)
	}
}

func TestLiveTaskForAPersonIsNotSent(t *testing.T) {
	t.Parallel()
	r := rigWith(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(r.nc)
	if err != nil {
		t.Fatal(err)
	}
	inboxes, err := js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "INBOXES", Subjects: []string{"human.>"}, Storage: natsjs.MemoryStorage})
	if err != nil {
		t.Fatal(err)
	}
	node := r.node(mesh.Config{})
	_, err = node.Send(t.Context(), newTask("human.eve", "code.review", `{}`), mesh.SendOptions{})
	if codeOf(err) != envelope.CodeNoResponders || !strings.Contains(err.Error(), "human.eve has no worker that answers") {
		t.Errorf("Send: %v", err)
	}
	if _, err = node.Ask(t.Context(), "human.eve", "really?"); codeOf(err) != envelope.CodeNoResponders {
		t.Errorf("Ask: %v", err)
	}
	info, err := inboxes.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != 0 {
		t.Errorf("%d tasks are in the inbox", info.State.Msgs)
	}
}

// A timeout as long as a time.Duration can be is no wait of no time.
func TestSendWaitsForTheLongestTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return json.RawMessage(`{"ok":true}`), nil
	})})
	reply, err := r.node(mesh.Config{}).Send(t.Context(), requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":1e30}`), mesh.SendOptions{})
	if err != nil || string(reply.Payload) != `{"ok":true}` {
		t.Errorf("%v, %v", reply, err)
	}
}

func TestRetriesGoUnderNewIdsAndTheSameCorr(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen := r.listen(reviewer)
	var n atomic.Int32
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		if n.Add(1) < 3 {
			return nil, envelope.Errorf(envelope.CodeBusy, "not now").WithBackoff(time.Millisecond)
		}
		return json.RawMessage(`{"ok":true}`), nil
	})})
	var told []int
	task := newTask(reviewer, "code.review", `{}`)
	corr := task.Corr
	reply, err := r.node(mesh.Config{}).Send(t.Context(), task, mesh.SendOptions{Retries: 5, OnRetry: func(attempt int, _ time.Duration, why *envelope.Error) {
		if why.Code == envelope.CodeBusy {
			told = append(told, attempt)
		}
	}})
	if err != nil || string(reply.Payload) != `{"ok":true}` {
		t.Fatalf("%+v, %v", reply, err)
	}
	equal(t, "told", told, []int{1, 2})
	ids := map[string]bool{}
	for range 3 {
		e := parse(t, within(t, "an attempt", seen).Data)
		equal(t, "corr", e.Corr, corr)
		ids[e.ID] = true
	}
	equal(t, "ids", len(ids), 3)
	equal(t, "reply", reply.Corr, corr)
}

// A retry under a new id would go out unsigned.
func TestATaskThatWasSignedElsewhereIsNotRetried(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	k := newKeys(t)
	var n atomic.Int32
	r.serve(r.node(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		n.Add(1)
		return nil, envelope.Errorf(envelope.CodeBusy, "not now").WithBackoff(time.Millisecond)
	})})
	task := signed(t, k.signer("ada", sign.Ed25519, ada), newTask(reviewer, "code.review", `{}`))
	_, err := r.node(mesh.Config{}).Send(t.Context(), task, mesh.SendOptions{Retries: 2})
	equal(t, "code", codeOf(err), envelope.CodeBusy)
	equal(t, "attempts", n.Load(), int32(1))
}

func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	for code, want := range map[envelope.Code]int32{
		envelope.CodeBusy: 3, envelope.CodeRateLimited: 3, envelope.CodeDraining: 3,
		envelope.CodeTimeout: 1, envelope.CodeUnavailable: 1, envelope.CodeInternal: 1, "E_MINE": 1,
		// In an agent's answer, it is about another agent that it has asked: the
		// task itself was begun.
		envelope.CodeNoResponders: 1,
	} {
		r := newRig(t)
		var n atomic.Int32
		r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			n.Add(1)
			return nil, envelope.Errorf(code, "no").WithBackoff(time.Millisecond)
		})})
		_, err := r.node(mesh.Config{}).Send(t.Context(), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{Retries: 2})
		if code == envelope.CodeNoResponders {
			code = envelope.CodeUnavailable
		}
		equal(t, string(code), codeOf(err), code)
		equal(t, string(code)+" attempts", n.Load(), want)
	}
}

// An agent whose own call failed because another agent was busy has begun
// its task: its sender must not be told that nothing was done.
func TestRefusalsOfOthersAreNotTheAgentsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node := r.node(mesh.Config{})
	full := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Entity: "agent.full", Handler: full, Queue: -1})
	r.send(newTask("agent.full", "code.review", `{}`))
	within(t, "its only place", full.entered)
	var ran atomic.Int32
	r.serve(node, mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		ran.Add(1)
		var in struct{ To string }
		json.Unmarshal(task.Envelope.Payload, &in)
		reply, err := node.Send(ctx, envelope.New(envelope.TypeTask, reviewer, in.To, "code.review", nil), mesh.SendOptions{})
		if err != nil {
			return nil, err
		}
		return reply.Payload, nil
	})})
	for _, to := range []string{"agent.full", "agent.nobody"} {
		ran.Store(0)
		_, err := r.node(mesh.Config{}).Send(t.Context(), newTask(reviewer, "code.review", `{"to":"`+to+`"}`), mesh.SendOptions{Retries: 3})
		equal(t, to, codeOf(err), envelope.CodeUnavailable)
		equal(t, to+": ran", ran.Load(), int32(1))
	}
}

func TestSendTakesTasksOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client := r.node(mesh.Config{})
	if _, err := client.Send(t.Context(), envelope.New(envelope.TypeEvent, ada, reviewer, "x.y", nil), mesh.SendOptions{}); err == nil {
		t.Error("an event was sent as a task")
	}
	if _, err := client.Send(t.Context(), newTask("not an entity", "x.y", `{}`), mesh.SendOptions{}); err == nil {
		t.Error("a task was sent to no subject")
	}
}

// Command waits for a worker where there is none: a command that every worker refuses is refused
// before it is sent.
func TestACommandThatNamesNoTaskIsNotSent(t *testing.T) {
	t.Parallel()
	client := newDurableRig(t).client()
	const want = "mesh.task.cancel to agent.reviewer: "
	if _, err := client.Command(ctxFor(t), reviewer, intents.CancelTask{Reason: "enough"}); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Command: %v", err)
	}
}

func TestPostAndBroadcastReachWhoListens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	node := r.node(mesh.Config{Entity: "service.news"})
	inbox, bus := r.listen(ada), r.listen("bus.news.daily")
	e := envelope.New(envelope.TypeEvent, "service.news", ada, "news.mail", json.RawMessage(`{"a":1}`))
	if err := node.Post(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	equal(t, "mail", string(within(t, "mail", inbox).Data), string(encode(t, e)))
	if err := node.Broadcast("news.daily", "news.told", "workflow-1", json.RawMessage(`{"b":2}`)); err != nil {
		t.Fatal(err)
	}
	want := envelope.New(envelope.TypeEvent, "service.news", "bus.news.daily", "news.told", json.RawMessage(`{"b":2}`))
	want.Corr = "workflow-1"
	same(t, parse(t, within(t, "news", bus).Data), want)
	if err := node.Broadcast("no such topic", "x.y", "", nil); err == nil {
		t.Error("a topic with spaces")
	}
}

func TestSendLeavesTheCallersTaskAsItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{"n":1}`)
	before := encode(t, task)
	if _, err := r.node(mesh.Config{}).Send(t.Context(), task, mesh.SendOptions{OnStream: func(*envelope.Envelope) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	equal(t, "task", string(encode(t, task)), string(before))
}
