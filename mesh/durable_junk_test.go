package mesh_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A client with the permission to publish may publish anything to the subjects of the durable
// lane. Each of it ends, as a dead letter or dropped with an alert; none is handed
// out for ever; and the tasks behind it are done.
func TestJunkOnTheDurableLaneEnds(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	r := &durableRig{rig: rigWith(t, natsd.Config{JetStream: true, MaxPayload: 64 << 10})}
	if _, err := jetstream.Apply(t.Context(), r.js(r.nc), jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	alerts := r.listen("bus.mesh.alert")
	js := r.js(r.nc)
	stored := func(subj string, data []byte, header nats.Header) bool {
		_, err := js.PublishMsg(ctxFor(t), &nats.Msg{Subject: subj, Data: data, Header: header})
		return err == nil
	}
	h := &hostile{rand.New(rand.NewPCG(3, 4)), t}
	odd := []nats.Header{
		nil, {headers.HeaderRun: {"x"}}, {headers.HeaderRun: {"../.."}, "Aee-Seq": {"-1"}}, {"Aee-Handoff": {"{}"}}, {"Content-Type": {"application/cbor", "x"}}, {"Aee-Dead-Code": {"x"}},
		{"Nats-Msg-Id": {strings.Repeat("y", 4000)}}, {"traceparent": {"00-zz"}}, {"Nats-Scheduler": {"aee.schedule.agent.other.x"}, "Nats-Schedule-Next": {"purge"}},
	}
	const bodies = 220
	accepted := 0
	for i := range bodies {
		b := h.make(i)
		subj := "aee.work." + []string{"urgent", "high", "normal", "low"}[i%4] + "." + reviewer
		if i%5 == 0 { // as a delayed task, by hand
			subj = "aee.due" + strings.TrimPrefix(subj, "aee.work")
		}
		header := nats.Header{}
		for _, h := range []nats.Header{odd[i%len(odd)], b.header} {
			for k, v := range h {
				header[k] = v
			}
		}
		if stored(subj, b.data, header) {
			accepted++
		}
	}
	if accepted < bodies/2 {
		t.Fatalf("the server took %d of %d", accepted, bodies)
	}
	// Subjects of no priority of ours, and schedules that are none: broken ones the
	// server refuses.
	if !stored("aee.due.never."+reviewer, []byte("x"), nil) {
		t.Error("not stored")
	}
	for id, pattern := range map[string]string{"broken": "@at noon", "wrong": "* * *", "never": "@every 1ms"} {
		if stored("aee.schedule."+reviewer+"."+id, []byte("{}"), nats.Header{"Nats-Schedule": {pattern}, "Nats-Schedule-Target": {"aee.due.normal." + reviewer}}) {
			t.Errorf("the server takes schedule %q", pattern)
		}
	}
	again := newTask(reviewer, "code.review", `{"again":true}`)
	if !stored("aee.schedule."+reviewer+".again", encode(t, again), nats.Header{"Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {"aee.due.normal." + reviewer}}) {
		t.Error("the server takes no schedule that repeats: then this test is not needed")
	}

	r.serve(r.lane(mesh.Config{Limits: envelope.Limits{MaxBytes: 16 << 10}}), mesh.Agent{Handler: echo})
	client := r.client()
	task := newTask(reviewer, "code.review", `{"n":1}`)
	r.submit(client, task)
	if reply, err := r.result(client, task); err != nil || string(reply.Payload) != `{"n":1}` {
		t.Fatalf("the task behind: %v, %v", reply, err)
	}
	r.drainedQueue()
	eventually(t, "nothing waits for its time", func() bool {
		s, err := js.Stream(ctxFor(t), jetstream.StreamSchedule)
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
	letters := 0
	for letter, err := range jetstream.NewDead(js, r.m).List(ctxFor(t), "") {
		if err != nil {
			t.Fatal(err)
		}
		if letter.Entity != reviewer || letter.Code == "" {
			t.Errorf("%+v", letter)
		}
		letters++
	}
	if letters < accepted/2 {
		t.Errorf("%d dead letters of %d messages", letters, accepted)
	}
	// Alerts of one kind are held back, the first one is not.
	for deadline := time.After(patience); ; {
		select {
		case msg := <-alerts:
			e := parse(t, msg.Data)
			if what := string(e.Payload); e.Intent == intents.AlertRaised && (strings.Contains(what, "repeats") || strings.Contains(what, "never") || strings.Contains(what, "not a delayed task")) {
				return
			}
		case <-deadline:
			t.Fatal("nobody was told of what was dropped")
		}
	}
}
