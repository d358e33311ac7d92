package jetstream_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A server whose configuration bounds requests (max_request_batch) sets that bound on each consumer,
// and sets it again after each update.
func TestAServerThatBoundsRequests(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte("jetstream { limits { max_request_batch: 3 } }"), 0o600); err != nil {
		t.Fatal(err)
	}
	js := connect(t, natstest.Run(t, natsd.Config{ConfigFile: conf, Port: natsd.RandomPort, JetStream: true}))
	opts := jetstream.Options{Entities: []string{"agent.x"}}
	apply(t, js, opts)
	for _, c := range apply(t, js, opts) {
		if c.Action != jetstream.ActionNone {
			t.Errorf("again: %s", c)
		}
	}
	q := jetstream.NewQueue(js, subject.Map{})
	const tasks = 20
	for range tasks {
		submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte("task")})
	}
	for _, create := range []bool{true, false} {
		w := startLaneOf(t, js, q, "agent.x", 10, jetstream.LaneOptions{Create: create, Check: 50 * time.Millisecond})
		w.said(t, jetstream.LaneWorking)
		for range tasks / 2 {
			w.done(t)
		}
		if h := w.Health(); h.State != jetstream.LaneWorking {
			t.Errorf("its health: %+v", h)
		}
	}
}

// A consumer that a newer release has made is refused, too, if an operator has edited it.
func TestAConsumerOfANewerReleaseThatIsSpoiltIsRefused(t *testing.T) {
	t.Parallel()
	for name, s := range spoilt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := start(t)
			apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
			edit(t, js, func(c *natsjs.ConsumerConfig) {
				c.Metadata[jetstream.MetaTopology] = "99"
				s.change(c)
			})
			w := startLaneOf(t, js, jetstream.NewQueue(js, subject.Map{}), "agent.x", 4, jetstream.LaneOptions{Create: true, Check: 50 * time.Millisecond})
			w.saidThat(t, s.says, func(h jetstream.LaneHealth) bool { return strings.Contains(h.Reason, s.says) })
		})
	}
}

// The server redelivers a task of another agent that was drawn by mistake, also when the consumer
// is as it should be, until that agent's worker has done it: each time later.
func TestATaskOfAnotherAgentComesLessAndLessOften(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	naks, err := js.Conn().SubscribeSync("$JS.ACK.AEE_WORK.normal-agent=2Ex.>")
	if err != nil {
		t.Fatal(err)
	}
	q := jetstream.NewQueue(js, subject.Map{})
	x := startLaneOf(t, js, q, "agent.x", 4, jetstream.LaneOptions{Create: true, Check: 50 * time.Millisecond})
	x.said(t, jetstream.LaneWorking)
	edit(t, js, func(c *natsjs.ConsumerConfig) { c.FilterSubject = "aee.work.normal.agent.y" })
	submit(t, q, jetstream.Submission{Entity: "agent.y", Data: []byte("task")})
	for _, want := range []string{`-NAK {"delay":1000000000}`, `-NAK {"delay":2000000000}`} {
		if got, err := naks.NextMsg(patience); err != nil || string(got.Data) != want {
			t.Fatalf("%v, %v; want %s", got, err, want)
		}
	}
	y := startLaneOf(t, js, q, "agent.y", 4, jetstream.LaneOptions{Create: true})
	if d := y.done(t); string(d.Data) != "task" {
		t.Errorf("drew %q", d.Data)
	}
}

// A task that was put back often has its body, too, when it comes to a worker.
func TestATaskThatCameOftenIsNotTakenWithoutItsBody(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLaneOf(t, js, q, "agent.x", 4, jetstream.LaneOptions{Create: true, Check: time.Hour})
	w.said(t, jetstream.LaneWorking)
	submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte("task")})
	for n := range 20 {
		d := w.next(t)
		if string(d.Data) != "task" {
			t.Fatalf("drew %q, delivery %d, %v", d.Data, d.Delivered, d.Header)
		}
		if n == 18 {
			edit(t, js, func(c *natsjs.ConsumerConfig) { c.HeadersOnly = true })
		}
		if err := d.Nak(0); err != nil {
			t.Fatal(err)
		}
		w.free(1)
	}
}

// A message that looks as if its body were missing, because its sender has written that header, comes to the
// worker, which refuses it, as soon as the consumer was looked at.
func TestAMessageWithoutABodyThatSaysItHasOne(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	const many = 600
	w := startLaneOf(t, js, jetstream.NewQueue(js, subject.Map{}), "agent.x", many, jetstream.LaneOptions{Create: true, Check: time.Hour})
	w.said(t, jetstream.LaneWorking)
	for range many {
		if err := js.Conn().PublishMsg(&nats.Msg{Subject: "aee.work.normal.agent.x", Header: nats.Header{nats.MsgSize: {"5"}}}); err != nil {
			t.Fatal(err)
		}
	}
	var seen []uint64
	for range many {
		d := w.next(t)
		if slices.Contains(seen, d.Seq) || d.Delivered == 1 {
			t.Errorf("message %d came, delivery %d", d.Seq, d.Delivered)
		}
		if err := d.Ack(); err != nil { // or it comes again after the lease
			t.Fatal(err)
		}
		seen = append(seen, d.Seq)
	}
}
