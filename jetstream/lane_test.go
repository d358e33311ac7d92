package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A worker is a lane with a number of places, for tests: it keeps each task until free is
// called.
type worker struct {
	*jetstream.Lane
	got chan *jetstream.Delivery // all received tasks
	end func() error             // ends the lane and returns what Run returned

	mu     sync.Mutex
	places int
	busy   int
	most   int
	health []jetstream.LaneHealth
	moved  chan struct{} // the health has changed
}

func (w *worker) room() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.places - w.busy
}

// free frees places.
func (w *worker) free(n int) {
	w.mu.Lock()
	w.busy -= n
	w.mu.Unlock()
	w.Wake()
}

func (w *worker) next(t testing.TB) *jetstream.Delivery {
	t.Helper()
	select {
	case d := <-w.got:
		return d
	case <-time.After(patience):
		t.Fatalf("no task came; %+v", w.Health())
		return nil
	}
}

// done receives the next task, acknowledges it and frees its place.
func (w *worker) done(t testing.TB) *jetstream.Delivery {
	t.Helper()
	d := w.next(t)
	if err := d.DoubleAck(testContext(t)); err != nil {
		t.Fatal(err)
	}
	w.free(1)
	return d
}

// said waits until the lane reports one of some states, after those that it reported
// before.
func (w *worker) said(t testing.TB, states ...jetstream.LaneState) jetstream.LaneHealth {
	t.Helper()
	return w.saidThat(t, fmt.Sprint(states), func(h jetstream.LaneHealth) bool { return slices.Contains(states, h.State) })
}

// saidThat waits for a health report with a property: on a busy machine a lane may also
// report other states, for instance that the server does not answer.
func (w *worker) saidThat(t testing.TB, what string, is func(jetstream.LaneHealth) bool) jetstream.LaneHealth {
	t.Helper()
	deadline := time.After(patience)
	for {
		w.mu.Lock()
		for i, h := range w.health {
			if is(h) {
				w.health = w.health[i+1:]
				w.mu.Unlock()
				return h
			}
		}
		w.mu.Unlock()
		select {
		case <-w.moved:
		case <-deadline:
			t.Fatalf("never %s: %+v", what, w.Health())
		}
	}
}

func startLane(t testing.TB, js natsjs.JetStream, m subject.Map, entity string, places int, opts jetstream.LaneOptions) *worker {
	t.Helper()
	return startLaneOf(t, js, jetstream.NewQueue(js, m), entity, places, opts)
}

func startLaneOf(t testing.TB, js natsjs.JetStream, q *jetstream.Queue, entity string, places int, opts jetstream.LaneOptions) *worker {
	t.Helper()
	w := &worker{got: make(chan *jetstream.Delivery, 10_000), places: places, moved: make(chan struct{}, 1)}
	opts.Changed = func(h jetstream.LaneHealth) {
		w.mu.Lock()
		w.health = append(w.health, h)
		w.mu.Unlock()
		select {
		case w.moved <- struct{}{}:
		default:
		}
	}
	lane, err := q.Lane(entity, opts)
	if err != nil {
		t.Fatal(err)
	}
	w.Lane = lane
	if opts.Notifier != nil { // register the entity, as a worker does
		if err := lane.Open(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- lane.Run(ctx, w.room, func(d *jetstream.Delivery) {
			w.mu.Lock()
			w.busy++
			w.most = max(w.most, w.busy)
			if w.busy > w.places {
				t.Errorf("%d tasks for %d places", w.busy, w.places)
			}
			w.mu.Unlock()
			w.got <- d
		})
	}()
	w.end = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := w.end(); err != nil && !js.Conn().IsClosed() {
			t.Error(err)
		}
	})
	return w
}

var creating = jetstream.LaneOptions{Create: true}

func TestLaneHandsOutWhatWasSubmitted(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "acme.eu"} {
		ctx, js, m := testContext(t), start(t), prefix(t, p)
		apply(t, js, jetstream.Options{Map: m})
		q := jetstream.NewQueue(js, m)
		// One task waits already, and one is published directly while the lane is idle,
		// as `nats pub` does.
		before := time.Now()
		submit(t, q, jetstream.Submission{Entity: "agent.x.y", Priority: "high", ID: "t1", Data: []byte("{}")})
		w := startLane(t, js, m, "agent.x.y", 4, creating)
		d := w.next(t)
		subj, _ := m.Work("high", "agent.x.y")
		if d.Subject != subj || d.Priority != "high" || string(d.Data) != "{}" || d.Seq != 1 || d.Delivered != 1 || d.Lease != jetstream.DefaultLease ||
			d.Stored.Before(before.Add(-time.Second)) || d.Stored.After(time.Now().Add(time.Second)) {
			t.Errorf("got %+v", d)
		}
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		waitFor(t, "the acknowledgement", func() bool { has, err := q.Has(ctx, "agent.x.y", 1, nil); return err == nil && !has })
		subj, _ = m.Work("normal", "agent.x.y")
		if err := js.Conn().Publish(subj, []byte("plain")); err != nil {
			t.Fatal(err)
		}
		if d := w.done(t); string(d.Data) != "plain" || d.Priority != "normal" || d.Header != nil {
			t.Errorf("got %+v", d)
		}
		if has, err := q.Has(ctx, "agent.x.y", 2, nil); has || err != nil {
			t.Errorf("after its acknowledgement: %t, %v", has, err)
		}
	}
}

// All four priorities have tasks: in every round of fifteen each gets its weight, and the
// low ones are not starved.
func TestLaneDrawsByWeight(t *testing.T) {
	t.Parallel()
	for _, places := range []int{1, 15} {
		js := start(t)
		apply(t, js, jetstream.Options{})
		const rounds = 10
		for _, p := range subject.Priorities() {
			for range 600 { // enough, even if one consumer starts slowly
				if _, err := js.PublishAsync("aee.work."+p+".agent.x", nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		<-js.PublishAsyncComplete()
		w := startLane(t, js, subject.Map{}, "agent.x", 0, creating)
		w.said(t, jetstream.LaneWorking) // otherwise the first consumer would be empty before the last one is created
		w.mu.Lock()
		w.places = places
		w.mu.Unlock()
		w.Wake()
		// The lane learns from the first task of each priority that there are more. Until
		// then the priority that came first gets all places.
		seen := map[string]bool{}
		for n := 0; len(seen) < 4 || n < 2*places; n++ {
			seen[w.done(t).Priority] = true
		}
		count := map[string]int{}
		for range 15 * rounds {
			count[w.done(t).Priority]++
		}
		// A task whose message is late lets the next priority go first, and several places
		// are filled in batches.
		slack := places
		for p, want := range map[string]int{"urgent": 8, "high": 4, "normal": 2, "low": 1} {
			if diff := count[p] - want*rounds; diff > slack || -diff > slack {
				t.Errorf("%d places: %v", places, count)
			}
		}
	}
}

// A worker never has more tasks than places, and tasks that it has no room for go to
// other workers.
func TestLaneRequeuesTasksItHasNoRoomFor(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, js, subject.Map{}, "agent.x", 1, jetstream.LaneOptions{Create: true, Lease: time.Hour})
	w.said(t, jetstream.LaneWorking)
	for _, p := range subject.Priorities() { // the idle lane has an open request for each priority
		submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: p})
	}
	first := w.next(t)
	// Other workers get the rest while the first one is busy.
	other := startLane(t, connect(t, srv), subject.Map{}, "agent.x", 3, jetstream.LaneOptions{})
	got := []string{first.Priority}
	for range 3 {
		got = append(got, other.done(t).Priority)
	}
	slices.Sort(got)
	if want := []string{"high", "low", "normal", "urgent"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if err := first.DoubleAck(testContext(t)); err != nil {
		t.Error(err)
	}
	w.free(1)
	submit(t, q, jetstream.Submission{Entity: "agent.x"})
	select {
	case <-w.got:
	case <-other.got:
	case <-time.After(patience):
		t.Error("no task came")
	}
	if n := len(w.got); n != 0 {
		t.Errorf("%d tasks more", n)
	}
}

func TestLaneDeliversAgain(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	const lease = 2 * time.Second
	w := startLane(t, js, subject.Map{}, "agent.x", 2, jetstream.LaneOptions{Create: true, Lease: lease})
	submit(t, q, jetstream.Submission{Entity: "agent.x"})
	d := w.next(t)
	if d.Lease != lease || w.Lease() != lease {
		t.Errorf("lease %s, %s", d.Lease, w.Lease())
	}
	begun := time.Now()
	if err := d.Nak(0); err != nil {
		t.Fatal(err)
	}
	w.free(1)
	d = w.next(t)
	if d.Delivered != 2 {
		t.Errorf("after a nak: %+v", d)
	}
	if err := d.Nak(50 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	w.free(1)
	d = w.next(t)
	if took := time.Since(begun); d.Delivered != 3 || took < 50*time.Millisecond {
		t.Errorf("after a nak with a delay of 50 ms, %s: %+v", took, d)
	}
	// Without a renewal the lease ends. With renewals it does not, however long the task
	// takes; a second task measures the time.
	begun = time.Now()
	d = w.next(t)
	if took := time.Since(begun); d.Delivered != 4 || took < lease/2 {
		t.Errorf("after %s of silence: %+v", took, d)
	}
	w.free(1)
	stop := renew(t, d, lease)
	submit(t, q, jetstream.Submission{Entity: "agent.x"})
	for round := range 2 {
		if other := w.next(t); other.Seq != 2 || other.Delivered != uint64(round+1) {
			t.Errorf("round %d: %+v", round, other)
		}
		w.free(1)
	}
	stop()
	if err := d.Term("cannot be done"); err != nil {
		t.Error(err)
	}
	waitFor(t, "the end of the task", func() bool { has, err := q.Has(ctx, "agent.x", d.Seq, nil); return err == nil && !has })
}

// renew renews a task's lease until the returned function is called.
func renew(t *testing.T, d *jetstream.Delivery, lease time.Duration) func() {
	stop := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(lease / 8)
		defer tick.Stop()
		for {
			if err := d.InProgress(); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(stop); renewing.Wait() }
}

// A transfer passes a message to another process, which can acknowledge it over its own
// connection.
func TestLaneAdoptedDelivery(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	const lease = 2 * time.Second
	w := startLane(t, js, subject.Map{}, "agent.x", 8, jetstream.LaneOptions{Create: true, Lease: lease})
	q := jetstream.NewQueue(connect(t, srv), subject.Map{})
	submit(t, q, jetstream.Submission{Entity: "agent.x"})
	d := w.next(t)
	adopted, err := q.Adopt("agent.x", d.AckSubject)
	if err != nil {
		t.Fatal(err)
	}
	if adopted.Subject != d.Subject || adopted.Priority != d.Priority || adopted.Seq != d.Seq || !adopted.Stored.Equal(d.Stored) || adopted.Delivered != 1 {
		t.Errorf("adopted %+v of %+v", adopted, d)
	}
	stop := renew(t, adopted, lease)
	submit(t, q, jetstream.Submission{Entity: "agent.x"}) // measures the time: it is redelivered after each lease
	for round := range 2 {
		if other := w.next(t); other.Seq != 2 || other.Delivered != uint64(round+1) {
			t.Errorf("round %d: %+v", round, other)
		}
		w.free(1)
	}
	stop()
	if err := adopted.DoubleAck(ctx); err != nil {
		t.Error(err)
	}
	if has, err := q.Has(ctx, "agent.x", d.Seq, nil); has || err != nil {
		t.Errorf("after its acknowledgement by the other process: %t, %v", has, err)
	}
	for _, bad := range []string{
		"", "aee.work.normal.agent.x", "$JS.ACK.AEE_WORK.normal-agent=2Ey.1.2.3.4.5", "$JS.ACK.OTHER.normal-agent=2Ex.1.2.3.4.5",
		strings.Replace(d.AckSubject, ".1.", ".>.", 1), d.AckSubject + ".x", "$JS.ACK.AEE_WORK.due-agent=2Ex.1.2.3.4.5",
	} {
		if got, err := q.Adopt("agent.x", bad); err == nil {
			t.Errorf("adopted %q: %+v", bad, got)
		}
	}
}

func TestLaneRunsOnce(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	w := startLane(t, js, subject.Map{}, "agent.x", 1, creating)
	w.said(t, jetstream.LaneWorking)
	none := func() int { return 0 }
	if err := w.Run(t.Context(), none, nil); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("got %v", err)
	}
	if err := w.end(); err != nil {
		t.Error(err)
	}
	if h := w.said(t, jetstream.LaneStopped); h.Entity != "agent.x" {
		t.Errorf("%+v", h)
	}
	// A second Run works, too.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx, none, nil); err != nil {
		t.Error(err)
	}
}

// Tasks that were being delivered when a lane ended go to other workers at once.
func TestLaneEndsInTheMiddle(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	const tasks = 300
	for i := range tasks {
		if _, err := js.PublishAsync("aee.work.normal.agent.x", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	long := jetstream.LaneOptions{Create: true, Lease: time.Hour}
	seen := map[string]bool{}
	for range 3 {
		w := startLane(t, connect(t, srv), subject.Map{}, "agent.x", 50, long)
		d := w.next(t)
		if err := w.end(); err != nil {
			t.Error(err)
		}
		for len(w.got) > 0 {
			if err := d.DoubleAck(testContext(t)); err != nil {
				t.Fatal(err)
			}
			seen[string(d.Data)] = true
			d = <-w.got
		}
		if err := d.DoubleAck(testContext(t)); err != nil {
			t.Fatal(err)
		}
		seen[string(d.Data)] = true
	}
	w := startLane(t, js, subject.Map{}, "agent.x", 50, long)
	for len(seen) < tasks {
		seen[string(w.done(t).Data)] = true
	}
}

func TestLaneNeedsItsStreams(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	q := jetstream.NewQueue(js, subject.Map{})
	if _, err := q.Lane("agent.*", creating); err == nil {
		t.Error("a pattern is no entity")
	}
	open := func(create bool) error {
		lane, err := q.Lane("agent.x", jetstream.LaneOptions{Create: create})
		if err != nil {
			t.Fatal(err)
		}
		return lane.Open(ctx)
	}
	if err := open(true); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("without streams: %v", err)
	}
	apply(t, js, jetstream.Options{})
	err := open(false)
	if !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("without consumers: %v", err)
	}
	specs, bad := jetstream.Consumers(subject.Map{}, "agent.x", 0)
	if bad != nil {
		t.Fatal(bad)
	}
	for _, spec := range specs {
		if !strings.Contains(fmt.Sprint(err), spec.Name(subject.Map{})) {
			t.Errorf("%s is not named: %v", spec.Name(subject.Map{}), err)
		}
	}
	for _, create := range []bool{true, false} {
		if err := open(create); err != nil {
			t.Errorf("create %t: %v", create, err)
		}
	}
}
