package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// elsewhere has the server send a message with a body and headers of the attacker's
// choice to a subject that the attacker may not publish to, in each way that its
// permissions leave: as the answer to a direct get, to a pull, and to an acknowledgement
// that asks for the next message.
func (a *attack) elsewhere(target string, header nats.Header, body []byte) {
	a.t.Helper()
	work := "aee.work.normal." + attacker
	consumer := jetstream.StreamWork + ".normal-" + subject.Escape(attacker)
	mine := "$KV." + jetstream.BucketState + "." + attacker + ".forged"
	inbox := perms.InboxPrefix(attacker)
	for i, to := range []string{mine, work, work, work} {
		h := maps.Clone(header)
		if h.Get(natsjs.MsgIDHeader) != "" { // else the server takes them for one
			h.Set(natsjs.MsgIDHeader, fmt.Sprint("forged", i))
		}
		if _, err := a.x.RequestMsg(&nats.Msg{Subject: to, Header: h, Data: body}, 5*time.Second); err != nil {
			a.t.Fatal(err)
		}
	}
	if err := a.x.PublishRequest("$JS.API.DIRECT.GET.KV_aee_state."+mine, target, nil); err != nil {
		a.t.Fatal(err)
	}
	sub, err := a.x.SubscribeSync(inbox + ".held")
	if err != nil {
		a.t.Fatal(err)
	}
	next := "$JS.API.CONSUMER.MSG.NEXT." + consumer
	if err := a.x.PublishRequest(next, inbox+".held", []byte(`{"batch":1,"group":"topology-6"}`)); err != nil {
		a.t.Fatal(err)
	}
	held, err := sub.NextMsg(5 * time.Second)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := a.x.PublishRequest(held.Reply, target, []byte(`+NXT {"batch":1,"group":"topology-6"}`)); err != nil {
		a.t.Fatal(err)
	}
	if err := a.x.PublishRequest(next, target, []byte(`{"batch":1,"group":"topology-6"}`)); err != nil {
		a.t.Fatal(err)
	}
	if err := sub.Unsubscribe(); err != nil {
		a.t.Fatal(err)
	}
	// A stream answers its direct gets in their order, and so does a consumer its pulls once it has
	// handed out what there is.
	if _, err := a.x.Request("$JS.API.DIRECT.GET.KV_aee_state."+mine, nil, patience); err != nil {
		a.t.Fatal(err)
	}
	pulled, err := a.admin.Consumer(a.t.Context(), jetstream.StreamWork, "normal-"+subject.Escape(attacker))
	if err != nil {
		a.t.Fatal(err)
	}
	eventually(a.t, "the messages to be handed out", func() bool {
		info, err := pulled.Info(a.t.Context())
		return err == nil && info.NumPending == 0
	})
	none, err := a.x.Request(next, []byte(`{"batch":1,"group":"topology-6","no_wait":true}`), patience)
	if err != nil || none.Header.Get("Status") != "404" {
		a.t.Fatalf("a pull of nothing: %v, %v", none, err)
	}
}

// Finding 1 of the security review, what was left of its part c: a worker may make no
// consumer any more, but it chooses the reply subject of its reads and pulls. What the
// server so puts on a subject of another agent is no task, no text and no command there.
func TestAttackMessagesSentElsewhereReachNoLane(t *testing.T) {
	t.Parallel()
	a := newAttack(t)
	g := newGate(t)
	a.serve(a.nodeOn(a.nc, mesh.Config{}), mesh.Agent{Entity: victim, Handler: willing{g}, Concurrency: 2})
	running := newTask(victim, "payroll.run", `{"n":1}`)
	answer := a.send(running)
	within(t, "the task", g.entered)

	forged := newTask(victim, "payroll.run", `{"forged":true}`)
	forged.From = "human.boss"
	a.elsewhere(victim, nil, encode(t, forged))
	a.elsewhere("aee.ask."+victim, nats.Header{"Aee-From": {"human.boss"}}, []byte("forged"))
	a.elsewhere("aee.ctl."+victim, nil, encode(t, cancelOf(running, fmt.Sprintf(`{"id":%q}`, running.ID))))

	// The server answers in order, and so does the agent.
	a.ping(victim)
	a.control(cancelOf(running, `{"id":"another"}`))
	a.ping(victim)
	next := a.send(newTask(victim, "payroll.run", `{"n":2}`))
	if got := within(t, "the next task", g.entered); string(got.Envelope.Payload) != `{"n":2}` {
		t.Errorf("the victim runs %s, from %s", got.Envelope.Payload, got.Envelope.From)
	}
	g.open()
	for _, c := range []chan *nats.Msg{answer, next} {
		if e := parse(t, within(t, "an answer", c).Data); e.Type != envelope.TypeResult {
			t.Errorf("answered %s: %s", e.Type, e.Payload)
		}
	}
}

// The same on the subject where a sender waits for the replies to a durable task.
func TestAttackMessagesSentElsewhereAreNoReplies(t *testing.T) {
	t.Parallel()
	a := newAttack(t)
	f, err := jetstream.NewReplies(a.admin, a.m).Open(victim, "task")
	if err != nil {
		t.Fatal(err)
	}
	task := newTask(victim, "payroll.run", `{}`)
	reply := task.Reply(envelope.TypeResult, json.RawMessage(`{"forged":true}`))
	to := "aee.reply." + victim + ".task"
	a.elsewhere(to, nats.Header{"Aee-Seq": {"1"}, natsjs.MsgIDHeader: {"forged"}}, encode(t, reply))
	if _, err := a.admin.PublishMsg(t.Context(), &nats.Msg{Subject: to, Header: nats.Header{"Aee-Seq": {"1"}, natsjs.MsgIDHeader: {"real"}}, Data: []byte("real")}); err != nil {
		t.Fatal(err)
	}
	for m, err := range f.Messages(t.Context(), jetstream.FollowOptions{Fresh: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != "real" {
			t.Errorf("the sender reads %s %v", m.Data, m.Header)
		}
		break
	}
}

// The same on the subject where a sender waits for the reply to a live task.
func TestAttackMessagesSentElsewhereEndNoLiveTask(t *testing.T) {
	t.Parallel()
	a := newAttack(t)
	subjects := make(chan string, 2)
	if _, err := a.nc.Subscribe(victim, func(m *nats.Msg) {
		task := parse(t, m.Data)
		forged := encode(t, task.Reply(envelope.TypeError, json.RawMessage(`{"code":"E_DENIED","message":"forged"}`)))
		a.elsewhere(m.Reply, nil, forged)
		a.elsewhere(m.Reply, nats.Header{"Aee-Holder": {victim + " gone 0 server"}, "Aee-Task": {task.ID}}, nil)
		subjects <- m.Reply
		if err := m.Respond(encode(t, task.Reply(envelope.TypeResult, json.RawMessage(`{"real":true}`)))); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	settle(t, a.nc)
	sender := a.nodeOn(natstest.Conn(t, a.srv, nats.UserInfo("admin", "a")), mesh.Config{Entity: ada})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 2 {
		reply, err := sender.Send(ctx, newTask(victim, "payroll.run", `{}`), mesh.SendOptions{})
		if err != nil || string(reply.Payload) != `{"real":true}` {
			t.Errorf("the sender got %v, %v", reply, err)
		}
	}
	first, second := within(t, "a task", subjects), within(t, "a task", subjects)
	token := func(reply string) string { return reply[strings.LastIndex(reply, ".h-")+len(".h-"):] }
	if a, b := token(first), token(second); min(len(a), len(b)) < 8 || a[:4] == b[:4] {
		t.Errorf("the reply subjects are %s and %s", first, second)
	}
}
