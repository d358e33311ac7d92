package jetstream_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
)

func TestTaskBeyondTheServersTimeIsRefused(t *testing.T) {
	t.Parallel()
	ctx, js, m := testContext(t), start(t), prefix(t, "")
	apply(t, js, jetstream.Options{Map: m})
	q := jetstream.NewQueue(js, m)
	if done, err := q.Submit(ctx, jetstream.Submission{Entity: "agent.x", ID: "t", Data: []byte("{}"), At: jetstream.MaxDue.Add(time.Second)}); err == nil {
		t.Errorf("stored: %+v", done)
	}
	submit(t, q, jetstream.Submission{Entity: "agent.x", ID: "t", Data: []byte("{}"), At: jetstream.MaxDue})
	stream, err := js.Stream(ctx, jetstream.StreamSchedule+m.Suffix())
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d tasks wait for their time", n)
	}
}

// A delayed task is delivered when it is due, on the lane of its priority, as it was
// submitted.
func TestLaneOfDelayedTasks(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	for _, p := range []string{"", "acme.eu"} {
		ctx, js, m := testContext(t), start(t), prefix(t, p)
		apply(t, js, jetstream.Options{Map: m, Entities: []string{"agent.x"}})
		q := jetstream.NewQueue(js, m)
		w := startLane(t, js, m, "agent.x", 4, creating)
		at := time.Now().Add(time.Second)
		task := jetstream.Submission{
			Entity: "agent.x", Priority: "high", ID: "t 1", Data: []byte("{}"), At: at, Header: nats.Header{"Content-Type": {"application/cbor"}},
		}
		due := submit(t, q, task).Due
		if due.Before(at) {
			t.Errorf("due %s, was to be at %s", due, at)
		}
		d := w.done(t)
		subj, _ := m.Work("high", "agent.x")
		if d.Subject != subj || d.Priority != "high" || string(d.Data) != "{}" || d.Header.Get("Content-Type") != "application/cbor" || d.Header.Get("Nats-Scheduler") != "" {
			t.Errorf("got %+v", d)
		}
		if in := d.Header.Get("Nats-Expected-Stream"); in != jetstream.StreamWork+m.Suffix() {
			t.Errorf("any stream may store it: %q", in)
		}
		if d.Stored.Before(at) {
			t.Errorf("it came at %s, and was due at %s", d.Stored, due)
		}
		// The schedule is gone, and the task is recognised by its id.
		waitFor(t, "the stream to be empty", func() bool {
			stream, err := js.Stream(brief(t), jetstream.StreamSchedule+m.Suffix())
			return err == nil && stream.CachedInfo().State.Msgs == 0
		})
		task.At = time.Time{}
		if again := submit(t, q, task); !again.Duplicate {
			t.Errorf("again: %+v", again)
		}
		if err := q.Unschedule(ctx, "agent.x", "t 1"); !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("it is not scheduled any more: %v", err)
		}
	}
}

// While the work queue is full, a delayed task waits and is not lost; messages that are
// not delayed tasks are dropped.
func TestLaneOfDelayedTasksThatIsFull(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.StreamWork: {MaxBytes: 4096}}})
	q := jetstream.NewQueue(js, subject.Map{})
	var err error
	fillers := 0
	for err == nil {
		if _, err = q.Submit(ctx, jetstream.Submission{Entity: "agent.y", Data: make([]byte, 500)}); err == nil {
			fillers++
		}
	}
	if !errors.Is(err, jetstream.ErrFull) {
		t.Fatal(err)
	}
	submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: "low", ID: "t1", Data: make([]byte, 500), At: time.Now().Add(time.Second)})
	for _, subj := range []string{"aee.due.low.agent.x", "aee.due.never.agent.x"} { // published directly
		if _, err := js.Publish(ctx, subj, make([]byte, 500)); err != nil {
			t.Fatal(err)
		}
	}
	w := startLane(t, js, subject.Map{}, "agent.x", 4, alert(true))
	waitFor(t, "the reason to be told", func() bool {
		h := w.Health()
		return errors.Is(h.Err, jetstream.ErrFull) && h.State == jetstream.LaneWorking
	})
	if n := len(w.got); n != 0 {
		t.Errorf("%d tasks came", n)
	}
	other := startLane(t, js, subject.Map{}, "agent.y", 4, creating)
	for range fillers {
		other.done(t)
	}
	if d := w.done(t); len(d.Data) != 500 || d.Priority != "low" {
		t.Errorf("%+v", d)
	}
	waitFor(t, "the reason to go", func() bool { return w.Health().Err == nil })
	waitFor(t, "the stream to be empty", func() bool {
		stream, err := js.Stream(brief(t), jetstream.StreamSchedule)
		return err == nil && stream.CachedInfo().State.Msgs == 0
	})
}

// Finding 1 of the security review, in another form: a schedule may target any subject of
// its stream. A user who may schedule for one entity must not reach the queue of another,
// neither by a schedule nor by the subject of due tasks.
func TestAScheduleReachesItsOwnEntityOnly(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	soon := time.Now().Add(time.Second).UTC().Format(time.RFC3339)
	if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "aee.schedule.agent.x.1", Data: []byte("forged"), Header: nats.Header{
		"Nats-Schedule": {"@at " + soon}, "Nats-Schedule-Target": {"aee.due.normal.agent.y"},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "aee.due.normal.agent.y", []byte("forged")); err != nil {
		t.Fatal(err)
	}
	submit(t, q, jetstream.Submission{Entity: "agent.y", ID: "2", Data: []byte("own"), At: time.Now().Add(time.Second)})
	dropped := make(chan string, 8)
	opts := creating
	opts.Dropped = func(subject string, _ error) { dropped <- subject }
	w := startLane(t, js, subject.Map{}, "agent.y", 4, opts)
	for range 2 {
		select {
		case subj := <-dropped:
			if subj != "aee.due.normal.agent.y" {
				t.Errorf("dropped %s", subj)
			}
		case <-time.After(patience):
			t.Fatal("what is forged is not dropped")
		}
	}
	if d := w.done(t); string(d.Data) != "own" {
		t.Errorf("got %q", d.Data)
	}
}

// Since finding 1 of the security review, workers may not purge. A repeating schedule,
// which such a worker cannot delete, must not stop its lane: each due message is dropped,
// and the operator is told how to delete the schedule.
func TestAFencedLaneDropsWhatAScheduleRepeats(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "aee.schedule.agent.x.again", Data: []byte("again"), Header: nats.Header{
		"Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {"aee.due.normal.agent.x"},
	}}); err != nil {
		t.Fatal(err)
	}
	q := jetstream.NewQueue(js, subject.Map{})
	q.Fence()
	dropped := make(chan error, 8)
	opts := creating
	opts.Dropped = func(_ string, err error) { dropped <- err }
	w := startLaneOf(t, js, q, "agent.x", 4, opts)
	for range 2 {
		select {
		case err := <-dropped:
			if !strings.Contains(err.Error(), "nats stream purge AEE_SCHEDULE --subject aee.schedule.agent.x.again") {
				t.Errorf("the operator is told %q", err)
			}
		case <-time.After(patience):
			t.Fatal("what is due is not dropped")
		}
	}
	if h := w.Health(); h.Err != nil {
		t.Errorf("the lane: %v", h.Err)
	}
}

// Many tasks fall due at once, for two workers: each is delivered once.
func TestLaneOfManyDelayedTasks(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js := start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	const tasks = 300
	at := time.Now().Add(time.Second)
	for i := range tasks {
		submit(t, q, jetstream.Submission{Entity: "agent.x", ID: fmt.Sprint(i), Data: fmt.Append(nil, i), At: at})
	}
	long := jetstream.LaneOptions{Create: true, Lease: time.Hour}
	one, two := startLane(t, js, subject.Map{}, "agent.x", 8, long), startLane(t, js, subject.Map{}, "agent.x", 8, long)
	seen := map[string]bool{}
	for len(seen) < tasks {
		var d *jetstream.Delivery
		w := one
		select {
		case d = <-one.got:
		case d = <-two.got:
			w = two
		case <-time.After(patience):
			t.Fatalf("%d of %d came", len(seen), tasks)
		}
		if seen[string(d.Data)] {
			t.Errorf("%s came twice", d.Data)
		}
		seen[string(d.Data)] = true
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
		w.free(1)
	}
	// A lane requests no more than it can take: what it returned would come again at once.
	specs, err := jetstream.Consumers(subject.Map{}, "agent.x", 0)
	if err != nil {
		t.Fatal(err)
	}
	cons, err := js.Consumer(testContext(t), jetstream.StreamSchedule, specs[len(specs)-1].Config.Durable)
	if err != nil {
		t.Fatal(err)
	}
	if n := cons.CachedInfo().Delivered.Consumer; n > tasks+tasks/10 {
		t.Errorf("%d tasks were delivered %d times", tasks, n)
	}
}

// The server knows whether a task is due, and the sender does not: its clock may be ahead.
func TestATaskOfThePastIsDueAtOnce(t *testing.T) {
	t.Parallel()
	js, m := start(t), prefix(t, "")
	apply(t, js, jetstream.Options{Map: m, Entities: []string{"agent.x"}})
	w := startLane(t, js, m, "agent.x", 4, creating)
	began := time.Now()
	at := began.Add(-time.Hour).Truncate(time.Second)
	if due := submit(t, jetstream.NewQueue(js, m), jetstream.Submission{Entity: "agent.x", ID: "t", Data: []byte("{}"), At: at}).Due; !due.Equal(at) {
		t.Errorf("due %s, want %s", due, at)
	}
	w.done(t)
	t.Logf("%v until it was delivered", time.Since(began))
}
