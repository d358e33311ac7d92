package jetstream_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A lane always reports that it receives no tasks. Each test takes something away from a
// working lane, waits until the lane reports that, restores it, and receives the tasks
// that were submitted meanwhile.

// alert returns options with short intervals, so that the tests are short.
func alert(create bool) jetstream.LaneOptions {
	return jetstream.LaneOptions{Create: create, Heartbeat: 100 * time.Millisecond, Check: 100 * time.Millisecond}
}

// hears checks that a task of each priority is received.
func (w *worker) hears(t testing.TB, q *jetstream.Queue) {
	t.Helper()
	for _, p := range subject.Priorities() {
		waitFor(t, "a task to be stored", func() bool {
			_, err := q.Submit(brief(t), jetstream.Submission{Entity: "agent.x", Priority: p, Data: []byte(p)})
			return err == nil
		})
	}
	seen := map[string]bool{}
	for len(seen) < 4 {
		d := w.next(t)
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		w.free(1)
		seen[d.Priority] = true
	}
}

// complained waits until the lane has reported a state and its cause.
func (w *worker) complained(t testing.TB, state jetstream.LaneState, is error, words string) jetstream.LaneHealth {
	t.Helper()
	h := w.saidThat(t, fmt.Sprintf("%s: %v, %q", state, is, words), func(h jetstream.LaneHealth) bool {
		return h.State == state && because(h, is, words)
	})
	if h.Since.IsZero() || time.Since(h.Since) > 2*patience {
		t.Errorf("%s since %s", h.State, h.Since)
	}
	return h
}

// because reports whether a lane's health gives this cause.
func because(h jetstream.LaneHealth, is error, words string) bool {
	return h.Reason != "" && (is == nil || errors.Is(h.Err, is)) && strings.Contains(h.Reason, words)
}

// restored waits until the lane works, whatever it reports in between.
func (w *worker) restored(t testing.TB) {
	t.Helper()
	waitFor(t, "the lane to work", func() bool { return w.Health().State == jetstream.LaneWorking })
}

func TestLaneRecreatesItsConsumer(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(true))
	w.said(t, jetstream.LaneWorking)
	if err := js.DeleteConsumer(ctx, jetstream.StreamWork, "normal-agent=2Ex"); err != nil {
		t.Fatal(err)
	}
	w.saidThat(t, "that no normal tasks come", func(h jetstream.LaneHealth) bool {
		return h.Parts[2].State != jetstream.LaneWorking && h.Parts[2].Reason != ""
	})
	w.said(t, jetstream.LaneWorking)
	w.hears(t, q)
	// Also while the lane has no open request, because it has no room.
	w.mu.Lock()
	w.places = 0
	w.mu.Unlock()
	for _, p := range subject.Priorities() {
		if err := js.DeleteConsumer(ctx, jetstream.StreamWork, p+"-agent=2Ex"); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the consumers to be made", func() bool {
		for _, p := range subject.Priorities() {
			if _, err := js.Consumer(brief(t), jetstream.StreamWork, p+"-agent=2Ex"); err != nil {
				return false
			}
		}
		return true
	})
	w.mu.Lock()
	w.places = 4
	w.mu.Unlock()
	w.Wake()
	w.hears(t, q)
}

// The server announces that it deletes a consumer before it removes the files. Were the next one
// of that name made meanwhile, it would lose its own: it could not be changed, and a restart of
// the server would forget it.
func TestLaneRecreatesItsConsumerWhenTheOldOneIsGone(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(true))
	w.said(t, jetstream.LaneWorking)
	for range 10 {
		if err := js.DeleteConsumer(brief(t), jetstream.StreamWork, "normal-agent=2Ex"); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the consumer to be made", func() bool {
			_, err := js.Consumer(brief(t), jetstream.StreamWork, "normal-agent=2Ex")
			return err == nil
		})
		w.restored(t)
		c, err := js.Consumer(brief(t), jetstream.StreamWork, "normal-agent=2Ex")
		if err != nil {
			t.Fatal(err)
		}
		cfg := c.CachedInfo().Config
		cfg.AckWait += time.Second
		if _, err := js.UpdateConsumer(brief(t), jetstream.StreamWork, cfg); err != nil {
			t.Fatalf("the new consumer has no files: %v", err)
		}
	}
}

func TestLaneCreatesItsConsumerOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(false))
	h := w.complained(t, jetstream.LaneDeaf, jetstream.ErrNotFound, "consumer not found")
	specs, err := jetstream.Consumers(subject.Map{}, "agent.x", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range specs {
		if !strings.Contains(h.Reason, spec.Name(subject.Map{})) {
			t.Errorf("%s is not named: %s", spec.Name(subject.Map{}), h.Reason)
		}
	}
	make := func() {
		for _, spec := range specs {
			// The server may still be removing the files of the deleted consumer; until
			// then it cannot create another one of that name.
			waitFor(t, "a consumer", func() bool {
				_, err := jetstream.EnsureConsumer(ctx, js, subject.Map{}, spec, true)
				return err == nil
			})
		}
	}
	make()
	w.said(t, jetstream.LaneWorking)
	w.hears(t, q)
	if err := js.DeleteConsumer(ctx, jetstream.StreamWork, "urgent-agent=2Ex"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the reason", func() bool {
		h := w.Health()
		return h.State == jetstream.LaneDegraded && errors.Is(h.Err, jetstream.ErrNotFound) && strings.HasPrefix(h.Reason, "urgent tasks: ")
	})
	make()
	w.restored(t)
	w.hears(t, q)
}

func TestLaneOfARecreatedStream(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(true))
	w.said(t, jetstream.LaneWorking)
	if err := js.DeleteStream(ctx, jetstream.StreamWork); err != nil {
		t.Fatal(err)
	}
	w.complained(t, jetstream.LaneDegraded, nil, " tasks: ")
	waitFor(t, "the reason", func() bool { return errors.Is(w.Health().Err, jetstream.ErrNotFound) })
	apply(t, js, jetstream.Options{})
	w.said(t, jetstream.LaneWorking)
	w.hears(t, q)
}

func TestLaneThatIsPaused(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(true))
	w.said(t, jetstream.LaneWorking)
	if _, err := js.PauseConsumer(ctx, jetstream.StreamWork, "high-agent=2Ex", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.saidThat(t, "that one part is paused", func(h jetstream.LaneHealth) bool {
		return h.State == jetstream.LaneDegraded && because(h, nil, "high tasks: consumer high-agent=2Ex is paused for another ") &&
			h.Parts[1].State == jetstream.LanePaused && h.Parts[0].State == jetstream.LaneWorking
	})
	submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: "high"})
	waitFor(t, "the lag to show", func() bool {
		h := w.Health()
		return h.Pending == 1 && !h.Oldest.IsZero() && h.Parts[1].Pending == 1
	})
	if len(w.got) != 0 {
		t.Error("a task came from a paused consumer")
	}
	if _, err := js.ResumeConsumer(ctx, jetstream.StreamWork, "high-agent=2Ex"); err != nil {
		t.Fatal(err)
	}
	if d := w.done(t); d.Priority != "high" {
		t.Errorf("%+v", d)
	}
	w.said(t, jetstream.LaneWorking)
	waitFor(t, "the lag to go", func() bool { h := w.Health(); return h.Pending == 0 && h.Oldest.IsZero() })
	w.hears(t, q)
}

// The server restarts without JetStream, or with an empty store.
func TestLaneWithoutJetStream(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(true))
	w.said(t, jetstream.LaneWorking)
	with := srv.Config()
	srv.Close()
	w.complained(t, jetstream.LaneDeaf, nil, "")
	without := with
	without.JetStream, without.StoreDir = false, ""
	srv = natstest.Run(t, without)
	waitFor(t, "the reason", func() bool { return because(w.Health(), jetstream.ErrUnavailable, "") })
	srv.Close()
	natstest.Run(t, with)
	w.restored(t)
	w.hears(t, q)
}

func TestLaneAcrossRestarts(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, js, subject.Map{}, "agent.x", 4, jetstream.LaneOptions{Create: true})
	w.said(t, jetstream.LaneWorking)
	for range 3 {
		w.hears(t, q)
		submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte("in flight")})
		held := w.next(t)
		srv.Close()
		w.said(t, jetstream.LaneDeaf)
		srv = natstest.Restart(t, srv)
		// The held task is not redelivered before its lease ends, and can be acknowledged
		// on the new server.
		waitFor(t, "the acknowledgement", func() bool { return held.DoubleAck(brief(t)) == nil })
		w.free(1)
		w.said(t, jetstream.LaneWorking)
		for len(w.got) > 0 { // redelivered if its lease has ended
			d := w.next(t)
			if d.Seq != held.Seq {
				t.Errorf("%+v", d)
			}
			w.free(1)
		}
	}
}

// Without permission to send a request, the server does not answer at all.
func TestLaneThatIsRefused(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	users := func(deny ...string) []natsd.User {
		return []natsd.User{
			{Name: "all", Password: "p"},
			{Name: "worker", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: deny}}},
		}
	}
	for what, deny := range map[string]string{
		"draw": "$JS.API.CONSUMER.MSG.NEXT.>",
		"look": "$JS.API.CONSUMER.INFO.>",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, natsd.Config{JetStream: true, Users: users(deny)})
			js := connect(t, srv, nats.UserInfo("all", "p"))
			apply(t, js, jetstream.Options{})
			q := jetstream.NewQueue(js, subject.Map{})
			// Another worker has made the consumers.
			lane, err := q.Lane("agent.x", creating)
			if err != nil {
				t.Fatal(err)
			}
			if err := lane.Open(testContext(t)); err != nil {
				t.Fatal(err)
			}
			w := startLane(t, connect(t, srv, nats.UserInfo("worker", "p")), subject.Map{}, "agent.x", 4, alert(false))
			w.complained(t, jetstream.LaneDeaf, jetstream.ErrDenied, "ermissions")
			if what == "look" { // a worker may receive tasks without permission to look at the consumer
				w.restored(t)
				w.hears(t, q)
				return
			}
			cfg := srv.Config()
			cfg.Users = users("something.else")
			srv.Close()
			natstest.Run(t, cfg)
			w.restored(t)
			w.hears(t, q)
		})
	}
}

// A worker whose user may not make the consumers says what an operator has to do.
func TestLaneThatMayNotMakeItsConsumers(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "worker", Password: "p", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{"$JS.API.CONSUMER.CREATE.>"}}}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, connect(t, srv, nats.UserInfo("worker", "p")), subject.Map{}, "agent.x", 4, alert(true))
	w.complained(t, jetstream.LaneDeaf, jetstream.ErrNotFound, `an operator has to run "aeemesh apply --entity agent.x"`)
	lane, err := q.Lane("agent.x", creating)
	if err != nil {
		t.Fatal(err)
	}
	if err := lane.Open(testContext(t)); err != nil {
		t.Fatal(err)
	}
	w.restored(t)
	w.hears(t, q)
}

// A consumer accepts a number of waiting requests and drops further ones silently: the
// lane notices the silence.
func TestLaneThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	spec, err := jetstream.WorkConsumer(subject.Map{}, "low", "agent.x", 0)
	if err != nil {
		t.Fatal(err)
	}
	spec.Config.MaxWaiting = 1
	if _, err := js.CreateConsumer(ctx, jetstream.StreamWork, spec.Config); err != nil {
		t.Fatal(err)
	}
	sub, err := js.Conn().SubscribeSync("the.other")
	if err != nil {
		t.Fatal(err)
	}
	if err := js.Conn().PublishRequest("$JS.API.CONSUMER.MSG.NEXT.AEE_WORK.low-agent=2Ex", "the.other", []byte(`{"batch":1,"expires":3600000000000,"group":"topology-6"}`)); err != nil {
		t.Fatal(err)
	}
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(true))
	w.saidThat(t, "that nobody answers", func(h jetstream.LaneHealth) bool {
		return h.State == jetstream.LaneDegraded && strings.Contains(h.Parts[3].Reason, "the server does not answer requests for tasks")
	})
	waitFor(t, "it to be tried again", func() bool {
		info, err := js.Consumer(brief(t), jetstream.StreamWork, "low-agent=2Ex")
		return err == nil && info.CachedInfo().NumWaiting == 1
	})
	if w.Health().State == jetstream.LaneWorking {
		t.Errorf("%+v", w.Health())
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	w.said(t, jetstream.LaneWorking)
	w.hears(t, q)
}

// An operator may limit the unacknowledged messages; at the limit the lane draws no more,
// and continues when some are acknowledged.
func TestLaneAtItsConsumersBound(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	spec, err := jetstream.WorkConsumer(subject.Map{}, "normal", "agent.x", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	spec.Config.MaxAckPending = 2
	if _, err := js.CreateConsumer(ctx, jetstream.StreamWork, spec.Config); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"urgent", "high", "low"} {
		spec, err := jetstream.WorkConsumer(subject.Map{}, p, "agent.x", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateConsumer(ctx, jetstream.StreamWork, spec.Config); err != nil {
			t.Fatal(err)
		}
	}
	due, err := jetstream.DueConsumer(subject.Map{}, "agent.x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(ctx, jetstream.StreamSchedule, due.Config); err != nil {
		t.Fatal(err)
	}
	const tasks = 20
	for i := range tasks {
		submit(t, q, jetstream.Submission{Entity: "agent.x", Data: fmt.Append(nil, i)})
	}
	w := startLane(t, js, subject.Map{}, "agent.x", 10, alert(false))
	seen := map[string]bool{}
	for len(seen) < tasks {
		d := w.next(t)
		if len(seen) == 4 {
			waitFor(t, "the reason to be told", func() bool { return strings.Contains(w.Health().Reason, "max_ack_pending") })
		}
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
		w.free(1)
		seen[string(d.Data)] = true
	}
}

// Another consumer, which draws from elsewhere, has the name.
func TestLaneOfAForeignConsumer(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	if _, err := js.CreateConsumer(ctx, jetstream.StreamWork, natsjs.ConsumerConfig{
		Durable: "normal-agent=2Ex", FilterSubject: "aee.work.normal.agent.y", AckPolicy: natsjs.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(false))
	w.said(t, jetstream.LaneDeaf)
	waitFor(t, "the foreign one to be told", func() bool {
		p := w.Health().Parts[2]
		return p.Priority == "normal" && p.State == jetstream.LaneDeaf && strings.Contains(p.Reason, "filter_subject aee.work.normal.agent.y, should be aee.work.normal.agent.x")
	})
}

func TestLaneEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	w := startLane(t, js, subject.Map{}, "agent.x", 1, creating)
	w.said(t, jetstream.LaneWorking)
	js.Conn().Close()
	w.said(t, jetstream.LaneStopped)
	if err := w.end(); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("got %v", err)
	}
}

// In a cluster the leader of a consumer may go down with its server while the worker's
// own server stays up: no status message tells the worker.
func TestLaneWhoseLeaderIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes some seconds")
	}
	t.Parallel()
	servers := natstest.Cluster(t, 3)
	js, err := natsjs.New(natstest.ConnAll(t, servers))
	if err != nil {
		t.Fatal(err)
	}
	applyInCluster(t, js, jetstream.Options{Replicas: 3})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(true))
	w.said(t, jetstream.LaneWorking)
	w.hears(t, q)
	leader := ""
	waitFor(t, "the consumer has a leader", func() bool {
		cons, err := js.Consumer(brief(t), jetstream.StreamWork, "normal-agent=2Ex")
		if err == nil && cons.CachedInfo().Cluster != nil {
			leader = cons.CachedInfo().Cluster.Leader
		}
		return leader != ""
	})
	for _, srv := range servers {
		if srv.Name() == leader {
			srv.Close()
		}
	}
	w.said(t, jetstream.LaneDeaf, jetstream.LaneDegraded)
	waitFor(t, "a new leader", func() bool {
		cons, err := js.Consumer(brief(t), jetstream.StreamWork, "normal-agent=2Ex")
		return err == nil && cons.CachedInfo().Cluster.Leader != ""
	})
	w.hears(t, q)
	w.restored(t)
}

// A delivery may reach a worker when its lease is over: it lay in the connection, or before a
// worker that stood still. If there is no room for it, the worker leaves it alone: its nak would
// be about the delivery to the worker that has the message now.
func TestALateDeliveryIsNotNakked(t *testing.T) {
	t.Parallel()
	ctx, srv := testContext(t), natstest.Run(t, natsd.Config{JetStream: true})
	js, line := connect(t, srv), natstest.NewCable(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	opts := alert(true)
	opts.Lease = time.Second
	behind := connect(t, srv, nats.SetCustomDialer(line))
	late := startLane(t, behind, subject.Map{}, "agent.x", 2, opts)
	both := func() {
		for _, priority := range []string{"normal", "high"} {
			submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: priority, ID: nats.NewInbox(), Data: []byte("{}")})
		}
	}
	both()
	late.done(t)
	late.done(t)
	waitFor(t, "it waits for tasks of both priorities", func() bool { return requestWaits(t, js, "normal") && requestWaits(t, js, "high") })
	naks, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.>")
	if err != nil {
		t.Fatal(err)
	}
	late.mu.Lock()
	late.places = 1
	late.mu.Unlock()
	line.Block(true)
	both()
	heir := startLane(t, js, subject.Map{}, "agent.x", 2, opts)
	for range 2 {
		if d := heir.next(t); d.Delivered != 2 {
			t.Fatalf("the heir got delivery %d", d.Delivered)
		}
	}
	line.Block(false)
	late.next(t)
	if err := behind.Conn().FlushWithContext(ctx); err != nil { // the other one has come, too
		t.Fatal(err)
	}
	if err := late.end(); err != nil {
		t.Error(err)
	}
	for _, nc := range []*nats.Conn{behind.Conn(), js.Conn()} {
		if err := nc.FlushWithContext(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n, _, _ := naks.Pending(); n != 0 {
		t.Errorf("%d naks", n)
	}
}

// requestWaits reports whether a request for tasks of agent.x with a priority waits.
func requestWaits(t testing.TB, js natsjs.JetStream, priority string) bool {
	t.Helper()
	c, err := js.Consumer(testContext(t), jetstream.StreamWork, priority+"-agent=2Ex")
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo().NumWaiting > 0
}
