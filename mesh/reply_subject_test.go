package mesh_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/mesh/perms"
	"github.com/aeemesh/aeemesh/state"
)

// A sender who may give an agent live tasks, and nothing else, has its worker publish
// where the sender may not: a server does not hold reply subjects to the sender's
// permissions, and a worker has more of them. A worker answers on inboxes only.
func TestAttackAWorkerPublishesNowhereForASender(t *testing.T) {
	t.Parallel()
	var m subject.Map
	inbox := perms.InboxPrefix(victim)
	live, errA := perms.Worker(m, victim, "_INBOX_c")
	durable, errB := perms.DurableWorker(m, victim, inbox)
	worker := both(t, live, errA, durable, errB)
	sender, err := perms.Client(m, "_INBOX_c", victim)
	if err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "y", Password: "y", Permissions: serverPermissions(worker)}, {Name: "c", Password: "c", Permissions: serverPermissions(sender)}, {Name: "admin", Password: "a"},
	}})
	r := &durableRig{rig: &rig{t, srv, natstest.Conn(t, srv, nats.UserInfo("admin", "a"))}}
	if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{Map: m, Entities: []string{victim}}); err != nil {
		t.Fatal(err)
	}
	states, id := jetstream.NewStates(r.js(r.nc), m), state.ID{Entity: victim, Run: "its-own"}
	if _, err := states.Put(ctxFor(t), id, 0, []byte(`{"what":"the record"}`)); err != nil {
		t.Fatal(err)
	}
	silent := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	y := natstest.Conn(t, srv, nats.UserInfo("y", "y"), nats.CustomInboxPrefix(inbox), silent)
	r.serve(r.laneOn(y, mesh.Config{}, fenced), mesh.Agent{Entity: victim, Handler: echo})
	c := natstest.Conn(t, srv, nats.UserInfo("c", "c"), nats.CustomInboxPrefix("_INBOX_c"), silent)

	const record = "$KV." + jetstream.BucketState + "." + victim + ".its-own"
	targets := []string{
		record, "$KV." + jetstream.BucketState + ".agent.other.run", "$JS.API.STREAM.PURGE.KV_" + jetstream.BucketState, "$SRV.PING",
		"aee.reply." + victim + ".task", "aee.reply.agent.other.task", "aee.work.urgent.agent.other", "aee.ctl.agent.other", "aee.dead." + victim + ".task",
		"aee.count.of." + subject.Escape(victim) + ".tasks.corr", "aee.schedule." + victim + ".task", "bus.mesh.alert", "human.boss", "agent.other", "tool.other",
		"acme.aee.work.normal.agent.other", "acme.agent.other", "human." + strings.Repeat("x", 255),
	}
	var heard []chan *nats.Msg
	for _, target := range targets {
		heard = append(heard, r.listen(target))
	}
	ask := func(conn *nats.Conn, reply string) {
		t.Helper()
		task := newTask(victim, "payroll.run", `{}`)
		for _, msg := range []*nats.Msg{
			{Subject: victim, Data: encode(t, task)},
			{Subject: victim, Data: []byte("no envelope")},
			{Subject: victim, Data: encode(t, newTask(victim, intents.StatusPing, `{}`))},
			{Subject: victim, Data: encode(t, requiring(newTask(victim, "payroll.run", `{}`), `{"stream":true}`))},
			{Subject: "aee.ask." + victim, Data: []byte("hello")},
			{Subject: "aee.ctl." + victim, Data: encode(t, cancelOf(task, `{"id":"none","durable":true}`))},
		} {
			msg.Reply = reply
			if err := conn.PublishMsg(msg); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, target := range targets {
		ask(c, target)
	}
	for _, verb := range []micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb} {
		name, err := micro.ControlSubject(verb, subject.ServiceName(victim), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			if err := r.nc.PublishRequest(name, target, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.nc.Request(name, nil, patience); err != nil { // an inbox is answered
			t.Fatal(err)
		}
	}
	// The worker takes each subject's messages in their order, and answers here.
	for _, reply := range []string{"_INBOX_c.1", "_INBOX_c.2"} {
		answers := make(chan *nats.Msg, 20)
		if _, err := c.ChanSubscribe(reply, answers); err != nil {
			t.Fatal(err)
		}
		ask(c, reply)
		for range 7 { // the stream has an end
			within(t, "an answer in an inbox", answers)
		}
	}
	settle(t, r.nc)
	for i, target := range targets {
		for _, msg := range drained(heard[i]) {
			if string(msg.Data) != "" && msg.Reply == "" || target == record {
				t.Errorf("the worker has published to %s: %s", target, msg.Data)
			}
		}
	}
	rec, err := states.Get(ctxFor(t), id)
	if err != nil || string(rec.Data) != `{"what":"the record"}` {
		t.Errorf("the worker's own record: %s, %v", rec.Data, err)
	}
	// The server refuses messages whose reply subject is a request to JetStream.
	if dropped := r.counters(victim)["dropped"]; dropped != (len(targets)-1)*9 {
		t.Errorf("%d dropped, want %d", dropped, (len(targets)-1)*9)
	}
	if _, err := mesh.New(natstest.Conn(t, srv, nats.UserInfo("admin", "a"), nats.CustomInboxPrefix("replies.ada")), mesh.Config{}); err == nil {
		t.Error("a node is made whose tasks no worker would answer")
	}
}

func TestInboxes(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]bool{
		"_INBOX.a.b": true, "_INBOX_ada.x": true, "_R_.x.y": true, "inbox": true, "_": true,
		"": false, "$JS": false, "$KV.b.k": false, "agent.x": false, "replies.ada.1": false, "acme.aee.work.low.agent.x": false, ".x": false,
	} {
		equal(t, reply, mesh.IsReplyInbox(reply), want)
	}
	for _, entity := range []string{ada, "agent._x", "service.a.b"} {
		equal(t, entity, mesh.IsReplyInbox(perms.InboxPrefix(entity)), true)
	}
}
