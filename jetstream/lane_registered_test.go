package jetstream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
)

// A running lane whose record is removed, because its entity was retired under it or because the
// bucket was lost, registers again, although it sleeps: without the record its callers would send
// tasks over the live lane. A lane that has its record writes nothing.
func TestARunningLaneRegistersAgain(t *testing.T) {
	t.Parallel()
	for _, lanes := range []int{1, 9} { // looked for one by one, and all at once
		t.Run(fmt.Sprint(lanes), func(t *testing.T) {
			t.Parallel()
			js := start(t)
			apply(t, js, jetstream.Options{})
			q := jetstream.NewQueue(js, subject.Map{})
			opts := alert(true)
			opts.Notifier = jetstream.Reregistering(q.NewNotifier(), 20*time.Millisecond)
			entity := func(i int) string { return fmt.Sprintf("agent.x%d", i) }
			for i := range lanes {
				startLaneOf(t, js, q, entity(i), 4, opts)
			}
			written, err := js.Conn().SubscribeSync("$KV.aee_lanes.>")
			if err != nil {
				t.Fatal(err)
			}
			served := func(i int) bool {
				ok, err := q.Served(testContext(t), entity(i))
				return ok && err == nil
			}
			for range 2 {
				if _, err := jetstream.Retire(testContext(t), js, subject.Map{}, entity(0)); err != nil {
					t.Fatal(err)
				}
				waitFor(t, "the lane to register again", func() bool { return served(0) })
			}
			for range 2 {
				if m, err := written.NextMsg(patience); err != nil || string(m.Data) != entity(0) {
					t.Fatalf("%v, %v", m, err)
				}
			}
			if err := js.DeleteStream(testContext(t), "KV_aee_lanes"); err != nil {
				t.Fatal(err)
			}
			apply(t, js, jetstream.Options{})
			for i := range lanes {
				waitFor(t, "each lane to register in the new bucket", func() bool { return served(i) })
			}
			if n, _, err := written.Pending(); err != nil || n < lanes {
				t.Errorf("%d records written, %v", n, err)
			}
		})
	}
}

// After a reconnect a lane looks for its record at once: the server may have another store.
func TestALaneLooksForItsRecordAfterAReconnect(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	q, _ := startSleeper(t, js, func(n *jetstream.Notifier) *jetstream.Notifier { return n })
	if _, err := jetstream.Retire(testContext(t), js, subject.Map{}, "agent.x"); err != nil {
		t.Fatal(err)
	}
	natstest.Restart(t, srv)
	waitFor(t, "the lane to register again", func() bool {
		ok, err := q.Served(brief(t), "agent.x")
		return ok && err == nil
	})
}

// A worker that may not look for the records asks once.
func TestALaneThatMayNotLookForItsRecordAsksOnce(t *testing.T) {
	t.Parallel()
	const look = "$JS.API.STREAM.INFO.KV_aee_lanes"
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"}, {Name: "worker", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{look}}}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{})
	worker := connect(t, srv, nats.UserInfo("worker", "p"))
	q := jetstream.NewQueue(worker, subject.Map{})
	opts := alert(true)
	opts.Notifier = jetstream.Reregistering(q.NewNotifier(), 10*time.Millisecond)
	w := startLaneOf(t, worker, q, "agent.x", 4, opts)
	waitFor(t, "the refusal", func() bool { return !jetstream.Looks(opts.Notifier) })
	w.hears(t, q)
}
