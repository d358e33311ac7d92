package jetstream_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// never is a pause that does not end while a test runs.
const never = time.Hour

// startSleeper starts a lane that sleeps, once it is open. Its notifier may have been
// changed by the caller.
func startSleeper(t *testing.T, js natsjs.JetStream, n func(*jetstream.Notifier) *jetstream.Notifier) (*jetstream.Queue, *worker) {
	t.Helper()
	q := jetstream.NewQueue(js, subject.Map{})
	opts := alert(true)
	opts.Notifier = n(q.NewNotifier())
	return q, startLaneOf(t, js, q, "agent.x", 4, opts)
}

func consumers(t *testing.T, js natsjs.JetStream) []string {
	t.Helper()
	var all []string
	for _, stream := range []string{jetstream.StreamWork, jetstream.StreamSchedule} {
		s, err := js.Stream(testContext(t), stream)
		if err != nil {
			t.Fatal(err)
		}
		names := s.ConsumerNames(testContext(t))
		for name := range names.Name() {
			all = append(all, name)
		}
		if names.Err() != nil {
			t.Fatal(names.Err())
		}
	}
	slices.Sort(all)
	return all
}

// A lane without tasks has a durable lane to show, and no consumer. The publication of a
// task wakes the priority that it is of; without tasks that sleeps again, and a task wakes
// it again.
func TestALaneWithoutTasksSleeps(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	var n *jetstream.Notifier
	q, w := startSleeper(t, js, func(made *jetstream.Notifier) *jetstream.Notifier {
		n = jetstream.Paced(made, never, 0)
		return n
	})
	w.said(t, jetstream.LaneWorking)
	for _, ok := range []bool{true, false} {
		entity := map[bool]string{true: "agent.x", false: "agent.y"}[ok]
		if served, err := q.Served(testContext(t), entity); err != nil || served != ok {
			t.Errorf("%s has a durable lane: %v, %v", entity, served, err)
		}
	}
	var made []string
	for _, priority := range []string{"normal", "high", "normal"} {
		waitFor(t, "the lane to sleep", func() bool {
			jetstream.Poll(testContext(t), n)
			return w.Asleep()
		})
		if all := consumers(t, js); !slices.Equal(all, made) {
			t.Errorf("there are consumers %q, want %q", all, made)
		}
		// From here on only the publication of the task can wake the lane.
		if h := w.Health(); h.State != jetstream.LaneWorking || !h.Parts[2].Asleep {
			t.Errorf("asleep, the lane is %+v", h)
		}
		submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: priority, Data: []byte(priority)})
		if d := w.done(t); string(d.Data) != priority || d.Delivered != 1 {
			t.Errorf("got %q, delivered %d times", d.Data, d.Delivered)
		}
		if token := priority + "-agent=2Ex"; !slices.Contains(made, token) {
			made = append(made, token)
			slices.Sort(made)
		}
	}
}

// The poll alone finds what no publication tells: tasks that are older than the worker,
// tasks whose publication it did not get, and delayed tasks that fall due.
func TestThePollFindsTasks(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js := start(t)
	apply(t, js, jetstream.Options{})
	before := jetstream.NewQueue(js, subject.Map{})
	submit(t, before, jetstream.Submission{Entity: "agent.x", Data: []byte("older")})
	q, w := startSleeper(t, js, func(n *jetstream.Notifier) *jetstream.Notifier {
		return jetstream.Muted(jetstream.Paced(n, 20*time.Millisecond, 0))
	})
	if d := w.done(t); string(d.Data) != "older" || d.First {
		t.Errorf("got %q, the first delivery for certain: %v", d.Data, d.First)
	}
	waitFor(t, "the lane to sleep", w.Asleep)
	submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: "low", Data: []byte("unheard")})
	if d := w.done(t); string(d.Data) != "unheard" {
		t.Errorf("got %q", d.Data)
	}
	waitFor(t, "the lane to sleep", w.Asleep)
	submit(t, q, jetstream.Submission{Entity: "agent.x", ID: "12345678", At: time.Now().Add(time.Second), Data: []byte("delayed")})
	if d := w.done(t); string(d.Data) != "delayed" {
		t.Errorf("got %q", d.Data)
	}
}

// A JetStream that was silent for a moment is asked again soon, although the poll took long: a
// delayed task has no publication that wakes its lane.
func TestThePollOutlastsASilence(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	o := natstest.NewOutage(t, srv)
	_, w := startSleeper(t, o.JetStream(t, natstest.Conn(t, srv)), func(n *jetstream.Notifier) *jetstream.Notifier {
		return jetstream.Paced(n, 20*time.Millisecond, 0)
	})
	waitFor(t, "the lane to sleep", w.Asleep)
	o.Silence(true)
	w.said(t, jetstream.LaneDeaf) // two looks have timed out
	o.Silence(false)
	submit(t, jetstream.NewQueue(js, subject.Map{}), jetstream.Submission{Entity: "agent.x", ID: "12345678", At: time.Now().Add(time.Second), Data: []byte("delayed")})
	select {
	case d := <-w.got:
		if err := d.Ack(); err != nil || string(d.Data) != "delayed" {
			t.Errorf("got %q, %v", d.Data, err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the task did not come")
	}
}

// A worker that sleeps gets the tasks of one that dies.
func TestASleepingLaneGetsTheTasksOfADeadWorker(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	dying := connect(t, srv)
	first := startLane(t, dying, subject.Map{}, "agent.x", 1, jetstream.LaneOptions{Create: true, Lease: time.Second})
	submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte("task")})
	first.next(t)
	_, w := startSleeper(t, js, func(n *jetstream.Notifier) *jetstream.Notifier {
		return jetstream.Muted(jetstream.Paced(n, 20*time.Millisecond, 0))
	})
	dying.Conn().Close()
	if d := w.done(t); string(d.Data) != "task" || d.Delivered < 2 {
		t.Errorf("got %q, delivered %d times", d.Data, d.Delivered)
	}
}

// A sleeping lane reports that the server is away, and is woken by tasks after it is back.
func TestASleepingLaneOutlastsTheServer(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	q, w := startSleeper(t, js, func(n *jetstream.Notifier) *jetstream.Notifier { return jetstream.Paced(n, 20*time.Millisecond, 0) })
	w.said(t, jetstream.LaneWorking)
	with := srv.Config()
	srv.Close()
	if h := w.said(t, jetstream.LaneDeaf); !because(h, nats.ErrDisconnected, "") {
		t.Errorf("without a server: %+v", h)
	}
	natstest.Run(t, with)
	w.said(t, jetstream.LaneWorking)
	if !w.Asleep() {
		t.Error("the lane does not sleep")
	}
	w.hears(t, q)
}

// A sleeping lane reports that the server is away, also if the connection was lost before the
// lane started.
func TestASleepingLaneStartsWithoutTheServer(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	opts := alert(true)
	opts.Notifier = jetstream.Paced(q.NewNotifier(), 20*time.Millisecond, 0)
	lane, err := q.Lane("agent.x", opts)
	if err == nil {
		err = lane.Open(testContext(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	srv.Close()
	waitFor(t, "the connection to be lost", func() bool { return !js.Conn().IsConnected() })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- lane.Run(ctx, func() int { return 1 }, func(*jetstream.Delivery) { t.Error("a task, without a server") })
	}()
	waitFor(t, "the lane to be deaf", func() bool { return lane.Health().State == jetstream.LaneDeaf })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What a worker may not do makes it slower, and deaf to nothing: without permission to
// subscribe to tasks it polls, and without permission to poll it stays awake.
func TestASleepingLaneNeedsFewPermissions(t *testing.T) {
	t.Parallel()
	poll := []string{"$JS.API.STREAM.INFO.AEE_WORK", "$JS.API.STREAM.INFO.AEE_SCHEDULE"}
	for name, denied := range map[string]natsd.Permissions{
		"no subscription": {Subscribe: natsd.Subjects{Deny: []string{"aee.work.>"}}},
		"no poll":         {Publish: natsd.Subjects{Deny: poll}},
		"no consumers":    {Publish: natsd.Subjects{Deny: []string{"$JS.API.CONSUMER.CREATE.>"}}},
		"no registration": {Publish: natsd.Subjects{Deny: []string{"$KV.aee_lanes.>"}}},
		"none but to create consumers": {
			Publish: natsd.Subjects{Deny: append([]string{"$KV.aee_lanes.>"}, poll...)}, Subscribe: natsd.Subjects{Deny: []string{"aee.work.>"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
				{Name: "all", Password: "p"}, {Name: "worker", Password: "p", Permissions: &denied},
			}})
			js := connect(t, srv, nats.UserInfo("all", "p"))
			opts := jetstream.Options{}
			if name == "no consumers" {
				opts.Entities = []string{"agent.x"}
			}
			apply(t, js, opts)
			fenced := connect(t, srv, nats.UserInfo("worker", "p"))
			_, w := startSleeper(t, fenced, func(n *jetstream.Notifier) *jetstream.Notifier { return jetstream.Paced(n, 100*time.Millisecond, 0) })
			for range 2 {
				w.hears(t, jetstream.NewQueue(js, subject.Map{}))
			}
			if served, err := jetstream.NewQueue(js, subject.Map{}).Served(testContext(t), "agent.x"); err != nil || !served {
				t.Errorf("the entity has a durable lane: %v, %v", served, err)
			}
		})
	}
}

// A consumer that is deleted while its priority sleeps is made again for the next task.
func TestASleepingLaneNeedsNoConsumer(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	q, w := startSleeper(t, js, func(n *jetstream.Notifier) *jetstream.Notifier { return jetstream.Paced(n, 20*time.Millisecond, 0) })
	w.hears(t, q)
	waitFor(t, "the lane to sleep", w.Asleep)
	for _, p := range subject.Priorities() {
		if err := js.DeleteConsumer(testContext(t), jetstream.StreamWork, p+"-agent=2Ex"); err != nil {
			t.Fatal(err)
		}
	}
	w.hears(t, q)
}

// Workers of the release before, whose lanes do not sleep, and of this one share an
// entity: each task comes once. No lease ends meanwhile.
func TestASleepingLaneBesideOneThatDoesNotSleep(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	opts := alert(true)
	opts.Lease = never
	sleepy := opts
	sleepy.Notifier = jetstream.Paced(q.NewNotifier(), 20*time.Millisecond, 0)
	sleeper := startLaneOf(t, js, q, "agent.x", 4, sleepy)
	other := startLane(t, connect(t, srv), subject.Map{}, "agent.x", 4, opts)
	other.said(t, jetstream.LaneWorking)
	const tasks = 60
	for i := range tasks {
		submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte(fmt.Sprint(i))})
	}
	seen := map[string]bool{}
	for len(seen) < tasks {
		var w *worker
		var d *jetstream.Delivery
		select {
		case d = <-sleeper.got:
			w = sleeper
		case d = <-other.got:
			w = other
		case <-time.After(patience):
			t.Fatalf("%d of %d tasks came", len(seen), tasks)
		}
		if seen[string(d.Data)] {
			t.Errorf("task %s came again, delivery %d", d.Data, d.Delivered)
		}
		seen[string(d.Data)] = true
		if err := d.DoubleAck(testContext(t)); err != nil {
			t.Fatal(err)
		}
		w.free(1)
	}
}
