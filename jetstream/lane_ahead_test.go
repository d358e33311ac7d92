package jetstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// After a full disk and the death of its server, a consumer may be ahead of its stream. These
// tests bring one into that state by a reset to a sequence that the stream does not have.

// reset has a consumer of agent.x continue at a sequence of its stream.
func reset(t testing.TB, js natsjs.JetStream, consumer string, seq uint64) {
	t.Helper()
	msg, err := js.Conn().RequestWithContext(testContext(t), "$JS.API.CONSUMER.RESET."+consumer, fmt.Appendf(nil, `{"seq":%d}`, seq))
	if err != nil || !strings.Contains(string(msg.Data), `"reset_seq":`) {
		t.Fatalf("%v: %s", err, msg.Data)
	}
}

const (
	normalOfX = "AEE_WORK.normal-agent=2Ex"
	dueOfX    = "AEE_SCHEDULE.due-agent=2Ex"
)

// requestsTo counts what is published to a subject of the JetStream API without some words.
func requestsTo(t testing.TB, js natsjs.JetStream, subj, without string) *atomic.Int64 {
	t.Helper()
	var n atomic.Int64
	sub, err := js.Conn().Subscribe(subj, func(m *nats.Msg) {
		if without == "" || !strings.Contains(string(m.Data), without) {
			n.Add(1)
		}
	})
	if err == nil {
		err = js.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return &n
}

// A lane notices that a consumer does not deliver what its stream holds, and resets it, with
// and without a notifier.
func TestALaneResetsAConsumerThatIsAhead(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, sleeps := range []bool{false, true} {
		for _, consumer := range []string{normalOfX, dueOfX} {
			for _, when := range []string{"before the worker starts", "before the task comes"} {
				t.Run(fmt.Sprintf("sleeps %t, %s ahead %s", sleeps, consumer, when), func(t *testing.T) {
					t.Parallel()
					js := start(t)
					apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
					q := jetstream.NewQueue(js, subject.Map{})
					task := jetstream.Submission{Entity: "agent.x", Data: []byte("stuck")}
					if consumer == dueOfX {
						task.ID, task.At = "12345678", time.Now().Add(time.Second)
					}
					reset(t, js, consumer, 1000)
					opts := alert(sleeps)
					if sleeps {
						opts.Notifier = jetstream.Paced(q.NewNotifier(), 20*time.Millisecond, 0)
					}
					begin := func() *worker { return startLaneOf(t, js, q, "agent.x", 4, opts) }
					var w *worker
					if when == "before the task comes" {
						w = begin()
						w.said(t, jetstream.LaneWorking)
					}
					submit(t, q, task)
					if w == nil {
						w = begin()
					}
					if d := w.done(t); string(d.Data) != "stuck" || d.Delivered != 1 {
						t.Errorf("got %q, delivered %d times", d.Data, d.Delivered)
					}
					w.restored(t)
					w.hears(t, q)
				})
			}
		}
	}
}

// A lane that always has work in hand notices it, too: its consumer has got past what it did not
// deliver.
func TestALaneThatWorksResetsAConsumerThatWasAhead(t *testing.T) {
	t.Parallel()
	for _, sleeps := range []bool{false, true} {
		t.Run(fmt.Sprintf("sleeps %t", sleeps), func(t *testing.T) {
			t.Parallel()
			js := start(t)
			apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
			q := jetstream.NewQueue(js, subject.Map{})
			for i := range 6 {
				submit(t, q, jetstream.Submission{Entity: "agent.x", Data: fmt.Append(nil, i)})
			}
			reset(t, js, normalOfX, 6)
			opts := alert(sleeps)
			if sleeps {
				opts.Notifier = jetstream.Paced(q.NewNotifier(), 20*time.Millisecond, 0)
			}
			w := startLaneOf(t, js, q, "agent.x", 8, opts)
			var held []*jetstream.Delivery
			seen := map[string]bool{}
			for len(seen) < 6 {
				select {
				case d := <-w.got:
					held, seen[string(d.Data)] = append(held, d), true
				case <-time.After(patience):
					t.Fatalf("got %d of 6 tasks; the lane says %+v", len(seen), w.Health())
				}
			}
			for _, d := range held {
				if err := d.Ack(); err != nil {
					t.Error(err)
				}
			}
			w.restored(t)
		})
	}
}

// The health says that a consumer was ahead, and names it.
func TestALaneSaysThatItsConsumerWasAhead(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	q := jetstream.NewQueue(js, subject.Map{})
	for range 3 {
		submit(t, q, jetstream.Submission{Entity: "agent.x"})
	}
	reset(t, js, normalOfX, 1000)
	w := startLaneOf(t, js, q, "agent.x", 4, alert(false))
	h := w.complained(t, jetstream.LaneDegraded, nil, "normal tasks: consumer AEE_WORK/normal-agent=2Ex is ahead of its stream and does not deliver 3 of its tasks")
	if h.Parts[2].State != jetstream.LaneDeaf || h.Parts[2].Pending != 3 || h.Pending != 3 {
		t.Errorf("normal tasks: %+v", h.Parts[2])
	}
	for range 3 {
		if d := w.done(t); d.First { // what was delivered before the reset is not known
			t.Errorf("%+v is said to be the first delivery", d)
		}
	}
	w.said(t, jetstream.LaneWorking)
}

// A worker that may not reset its consumer says what an operator has to do, asks for the reset
// once, and works after it.
func TestALaneThatMayNotResetItsConsumer(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "worker", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.CONSUMER.RESET.>"}}}},
	}})
	for _, consumer := range []string{normalOfX, dueOfX} {
		js := connect(t, srv, nats.UserInfo("all", "p"))
		apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
		q := jetstream.NewQueue(js, subject.Map{})
		task := jetstream.Submission{Entity: "agent.x"}
		if consumer == dueOfX {
			task.ID, task.At = "12345678", time.Now().Add(time.Second)
		}
		submit(t, q, task)
		reset(t, js, consumer, 1000)
		var denials atomic.Int64
		fenced := connect(t, srv, nats.UserInfo("worker", "p"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if strings.Contains(err.Error(), "CONSUMER.RESET") {
				denials.Add(1)
			}
		}))
		w := startLane(t, fenced, subject.Map{}, "agent.x", 4, alert(false))
		h := w.complained(t, jetstream.LaneDegraded, jetstream.ErrDenied, "nats req '$JS.API.CONSUMER.RESET."+consumer+`' '{"seq":1}'`)
		looked := func() time.Time { return w.Health().Parts[0].Looked }
		for range 4 { // it goes on to look, and does not ask again
			before := looked()
			waitFor(t, "another look", func() bool { return looked().After(before) })
		}
		if now := w.Health(); now.State != jetstream.LaneDegraded || !strings.Contains(now.Reason, "CONSUMER.RESET") {
			t.Errorf("later: %s, %s, want %s", now.State, now.Reason, h.Reason)
		}
		if n := denials.Load(); n != 1 {
			t.Errorf("it asked %d times for what it may not", n)
		}
		reset(t, js, consumer, 1)
		w.done(t)
		w.restored(t)
		if err := w.end(); err != nil {
			t.Error(err)
		}
	}
}

// It stays so after its requests for tasks ended, as when the server stood still: it asks for the
// reset once more only on another connection, whose permissions may be others.
func TestALaneRemembersThatItMayNotResetItsConsumer(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "worker", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.CONSUMER.RESET.>"}}}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	submit(t, jetstream.NewQueue(js, subject.Map{}), jetstream.Submission{Entity: "agent.x"})
	reset(t, js, normalOfX, 1000)
	requests := make(chan string, 1000)
	sub, err := js.Conn().Subscribe("$JS.API.CONSUMER.MSG.NEXT."+normalOfX, func(m *nats.Msg) { requests <- m.Reply })
	if err == nil {
		err = js.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	var denials atomic.Int64
	fenced := connect(t, srv, nats.UserInfo("worker", "p"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if strings.Contains(err.Error(), "CONSUMER.RESET") {
			denials.Add(1)
		}
	}))
	w := startLane(t, fenced, subject.Map{}, "agent.x", 4, alert(false))
	w.complained(t, jetstream.LaneDegraded, jetstream.ErrDenied, "CONSUMER.RESET")
	for range 4 { // the server ends the request, and the lane sends another one
		inbox := <-requests
		for len(requests) > 0 {
			inbox = <-requests
		}
		end := &nats.Msg{Subject: inbox, Header: nats.Header{"Status": {"409"}, "Description": {"Leadership Change"}}}
		if err := js.Conn().PublishMsg(end); err != nil {
			t.Fatal(err)
		}
		select {
		case requests <- <-requests:
		case <-time.After(patience):
			t.Fatal("the lane sends no request any more")
		}
		before := w.Health().Parts[2].Looked
		waitFor(t, "two more looks", func() bool { return w.Health().Parts[2].Looked.After(before.Add(150 * time.Millisecond)) })
	}
	w.mu.Lock()
	for _, h := range w.health {
		if h.Parts[2].State == jetstream.LaneWorking {
			t.Errorf("it said meanwhile that normal tasks come: %+v", h.Parts[2])
			break
		}
	}
	w.mu.Unlock()
	if n := denials.Load(); n != 1 {
		t.Errorf("it asked %d times for what it may not", n)
	}
	if err := fenced.Conn().ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it to ask on the other connection", func() bool { return denials.Load() == 2 })
	w.complained(t, jetstream.LaneDegraded, jetstream.ErrDenied, "CONSUMER.RESET")
	reset(t, js, normalOfX, 1)
	w.done(t)
	w.restored(t)
}

// A lane whose requests for tasks break off after each look, as while a cluster elects one leader
// after the other, counts what it found before.
func TestALaneWhoseRequestsBreakOffResetsAConsumerThatIsAhead(t *testing.T) {
	t.Parallel()
	for _, sleeps := range []bool{false, true} {
		t.Run(fmt.Sprintf("sleeps %t", sleeps), func(t *testing.T) {
			t.Parallel()
			ctx, js := testContext(t), start(t)
			apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
			q := jetstream.NewQueue(js, subject.Map{})
			submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte("stuck")})
			reset(t, js, normalOfX, 1000)
			resets := requestsTo(t, js, "$JS.API.CONSUMER.RESET."+normalOfX, "")
			inbox := ""
			requests, err := js.Conn().SubscribeSync("$JS.API.CONSUMER.MSG.NEXT." + normalOfX)
			if err != nil {
				t.Fatal(err)
			}
			opts := alert(sleeps)
			opts.Check = 500 * time.Millisecond
			if sleeps {
				opts.Notifier = jetstream.Paced(q.NewNotifier(), 20*time.Millisecond, 0)
			}
			w := startLaneOf(t, js, q, "agent.x", 4, opts)
			for looked := (time.Time{}); resets.Load() == 0; {
				waitFor(t, "another look", func() bool { return w.Health().Parts[2].Looked.After(looked) })
				looked = w.Health().Parts[2].Looked
				for { // the newest request
					wait := time.Millisecond
					if inbox == "" {
						wait = patience
					}
					msg, err := requests.NextMsg(wait)
					if err != nil {
						break
					}
					inbox = msg.Reply
				}
				end := &nats.Msg{Subject: inbox, Header: nats.Header{"Status": {"409"}, "Description": {"Leadership Change"}}}
				if err := js.Conn().PublishMsg(end); err != nil {
					t.Fatal(err)
				}
				if ctx.Err() != nil {
					t.Fatal("the consumer is not reset")
				}
			}
			if d := w.done(t); string(d.Data) != "stuck" {
				t.Errorf("got %q", d.Data)
			}
			w.restored(t)
		})
	}
}

// Several workers that notice it at the same time have every task delivered.
func TestLanesResetAConsumerTogether(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	q := jetstream.NewQueue(js, subject.Map{})
	const tasks = 100
	for i := range tasks {
		submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte(fmt.Sprint(i))})
	}
	reset(t, js, normalOfX, 1000)
	all := make(chan *jetstream.Delivery)
	ctx := testContext(t)
	for range 4 {
		w := startLane(t, connect(t, srv), subject.Map{}, "agent.x", 4, alert(false))
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case d := <-w.got:
					_ = d.DoubleAck(ctx) // a reset may have come between: then the task comes again
					w.free(1)
					select {
					case all <- d:
					case <-ctx.Done():
						return
					}
				}
			}
		}()
	}
	seen := map[string]bool{}
	for len(seen) < tasks {
		select {
		case d := <-all:
			seen[string(d.Data)] = true
		case <-ctx.Done():
			t.Fatalf("%d of %d tasks came", len(seen), tasks)
		}
	}
	waitFor(t, "the queue to be empty", func() bool {
		select { // a task that comes again
		case <-all:
		default:
		}
		has, err := js.Stream(brief(t), jetstream.StreamWork)
		return err == nil && has.CachedInfo().State.Msgs == 0
	})
}

// A server before 2.14 does not answer to the request for a reset.
func TestALaneWhoseServerKnowsNoReset(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	const old = "old.api."
	sub, err := js.Conn().Subscribe(old+">", func(m *nats.Msg) {
		if asked := strings.TrimPrefix(m.Subject, old); !strings.HasPrefix(asked, "CONSUMER.RESET.") {
			_ = js.Conn().PublishMsg(&nats.Msg{Subject: "$JS.API." + asked, Reply: m.Reply, Header: m.Header, Data: m.Data})
		}
	})
	if err == nil {
		err = js.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	q := jetstream.NewQueue(js, subject.Map{})
	submit(t, q, jetstream.Submission{Entity: "agent.x"})
	reset(t, js, normalOfX, 1000)
	through, err := natsjs.NewWithAPIPrefix(natstest.Conn(t, srv), strings.TrimSuffix(old, "."))
	if err != nil {
		t.Fatal(err)
	}
	w := startLane(t, through, subject.Map{}, "agent.x", 4, alert(false))
	w.complained(t, jetstream.LaneDegraded, nil, "nats req 'old.api.CONSUMER.RESET."+normalOfX+"'")
	reset(t, js, normalOfX, 1)
	w.done(t)
	w.restored(t)
	w.hears(t, q)
}

// Lanes that work do not reset their consumers, however often they look. They ask no more than
// is said in lane_ahead.go: when they begin to draw from a consumer, and not later.
func TestALaneThatWorksResetsNothing(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for _, sleeps := range []bool{false, true} {
		t.Run(fmt.Sprintf("sleeps %t", sleeps), func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, natsd.Config{JetStream: true})
			js := connect(t, srv)
			apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
			q := jetstream.NewQueue(js, subject.Map{})
			resets := requestsTo(t, js, "$JS.API.CONSUMER.RESET.>", "")
			counts := requestsTo(t, js, "$JS.API.STREAM.INFO.*", `"offset"`) // without the polls
			opts := alert(sleeps)
			opts.Heartbeat, opts.Check = time.Second, 5*time.Millisecond
			var workers []*worker
			for range 3 {
				js := connect(t, srv)
				q := jetstream.NewQueue(js, subject.Map{})
				if sleeps {
					opts.Notifier = jetstream.Paced(q.NewNotifier(), 5*time.Millisecond, 0)
				}
				workers = append(workers, startLaneOf(t, js, q, "agent.x", 4, opts))
			}
			for _, p := range subject.Priorities() {
				submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: p})
			}
			for _, w := range workers {
				for i := range 4 {
					for range 4 {
						before := w.Health().Parts[i].Looked
						waitFor(t, "another look", func() bool { p := w.Health().Parts[i]; return p.Unacked == 1 && p.Looked.After(before) })
					}
				}
			}
			began := counts.Load()
			if least := int64(len(workers) * 4); began < least || began > 6*least {
				t.Errorf("the lanes asked %d times what the streams hold when they began", began)
			}
			ctx, stop := context.WithCancel(testContext(t))
			defer stop()
			done := make(chan struct{}, 1000)
			for _, w := range workers {
				go func() {
					for {
						select {
						case <-ctx.Done():
							return
						case d := <-w.got:
							if d.DoubleAck(ctx) == nil {
								done <- struct{}{}
							}
							w.free(1)
						}
					}
				}()
			}
			const tasks = 600
			for i := range tasks { // one at a time, so that the consumers are idle again and again
				submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: subject.Priorities()[i%4]})
				select {
				case <-done:
				case <-time.After(patience):
					t.Fatalf("%d tasks were done", i)
				}
			}
			if err := js.Conn().Flush(); err != nil {
				t.Fatal(err)
			}
			if n := resets.Load(); n != 0 {
				t.Errorf("%d resets", n)
			}
			// A few more: the server tells a consumer of a message after it has stored it.
			if n := counts.Load() - began; n > 10 {
				t.Errorf("the lanes asked %d times what the streams hold while they worked", n)
			}
		})
	}
}
