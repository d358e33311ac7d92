package jetstream_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// A worker of a release before topology 8 opens the lane, for it does not look at what it
// does not know, and then asks without a priority group: the server gives it no task, and
// says why. It cannot update the consumers either, as they are of a newer topology.
func TestAWorkerOfAnOlderReleaseDrawsNothing(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	q := jetstream.NewQueue(js, subject.Map{})
	submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: "normal", ID: "12345678", Data: []byte("task")})
	for _, request := range []string{`{"batch":1,"no_wait":true}`, `{"batch":1,"expires":30000000000,"idle_heartbeat":1000000000}`} {
		msg, err := js.Conn().Request("$JS.API.CONSUMER.MSG.NEXT.AEE_WORK.normal-agent=2Ex", []byte(request), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(msg.Data) > 0 || msg.Header.Get("Status") != "400" || msg.Header.Get("Description") != "Bad Request - Priority Group missing" {
			t.Errorf("%q was answered %q %v", request, msg.Data, msg.Header)
		}
	}
	if d := startLaneOf(t, js, q, "agent.x", 1, jetstream.LaneOptions{}).next(t); string(d.Data) != "task" {
		t.Errorf("a worker of this release drew %q", d.Data)
	}
}

// A future release that refuses the workers of this one raises the oldest topology that
// they must know, or the group of the consumers: both say so.
func TestAWorkerOfThisReleaseIsRefusedByAFutureOne(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	cons, err := js.Consumer(ctx, "AEE_WORK", "normal-agent=2Ex")
	if err != nil {
		t.Fatal(err)
	}
	cfg := cons.CachedInfo().Config
	cfg.PriorityGroups, cfg.Metadata[jetstream.MetaTopology] = []string{"topology-99"}, "99"
	if _, err := js.UpdateConsumer(ctx, "AEE_WORK", cfg); err != nil {
		t.Fatal(err)
	}
	q := jetstream.NewQueue(js, subject.Map{})
	submit(t, q, jetstream.Submission{Entity: "agent.x", Priority: "normal", ID: "12345678", Data: []byte("task")})
	lane, err := q.Lane("agent.x", jetstream.LaneOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := lane.Open(ctx); !errors.Is(err, jetstream.ErrNewer) || !strings.Contains(err.Error(), "topology-99") {
		t.Errorf("the lane: %v", err)
	}

	if err := jetstream.LaneLacks(ctx, js, subject.Map{}, false); err != nil {
		t.Errorf("a mesh of this release: %v", err)
	}
	for needs, refused := range map[string]bool{"6": false, "99": true} {
		s, err := js.Stream(ctx, "AEE_WORK")
		if err != nil {
			t.Fatal(err)
		}
		stream := s.CachedInfo().Config
		stream.Metadata[jetstream.MetaTopology], stream.Metadata[jetstream.MetaWorkers] = "99", needs
		if _, err := js.UpdateStream(ctx, stream); err != nil {
			t.Fatal(err)
		}
		err = jetstream.LaneLacks(ctx, js, subject.Map{}, true)
		if errors.Is(err, jetstream.ErrNewer) != refused || !refused && err != nil || refused && !strings.Contains(err.Error(), "topology 99") {
			t.Errorf("with workers %s: %v", needs, err)
		}
	}
}

// groupless makes the consumer of an entity's normal tasks as a release of topology 5 does.
func groupless(t *testing.T, js natsjs.JetStream, entity string) natsjs.Consumer {
	t.Helper()
	spec, err := jetstream.WorkConsumer(subject.Map{}, "normal", entity, never)
	if err != nil {
		t.Fatal(err)
	}
	cfg := spec.Config
	cfg.PriorityGroups, cfg.PriorityPolicy, cfg.Metadata = nil, natsjs.PriorityPolicyNone, map[string]string{jetstream.MetaTopology: "5"}
	cons, err := js.CreateOrUpdateConsumer(testContext(t), jetstream.StreamWork, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cons
}

// oldRequest asks for a task as a worker of an older release does, and waits for one.
func oldRequest(t *testing.T, js natsjs.JetStream, wait time.Duration) *nats.Msg {
	t.Helper()
	body := `{"batch":1,"no_wait":true}`
	if wait > 0 {
		body = fmt.Sprintf(`{"batch":1,"expires":%d}`, wait)
	}
	msg, err := js.Conn().Request("$JS.API.CONSUMER.MSG.NEXT.AEE_WORK.normal-agent=2Ex", []byte(body), 2*patience)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func refusesOldRequests(t *testing.T, js natsjs.JetStream) {
	t.Helper()
	waitFor(t, "the consumer to refuse workers of older releases", func() bool {
		return oldRequest(t, js, 0).Header.Get("Description") == "Bad Request - Priority Group missing"
	})
}

// A worker of an older release has made the consumer of an entity that had none, and draws.
// The first worker of this release that attaches gives it the priority group: nothing is lost
// of what waits, or of what the older worker has drawn, and that one draws no more.
func TestAConsumerOfAnOlderReleaseGetsTheGroup(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	old := groupless(t, js, "agent.x")
	q := jetstream.NewQueue(js, subject.Map{})
	for _, data := range []string{"first", "second"} {
		submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte(data)})
	}
	first := oldRequest(t, js, patience)
	if string(first.Data) != "first" {
		t.Fatalf("the older worker drew %q %v", first.Data, first.Header)
	}
	w := startLaneOf(t, js, q, "agent.x", 4, jetstream.LaneOptions{Create: true})
	if d := w.next(t); string(d.Data) != "second" || d.Delivered != 1 {
		t.Errorf("this release drew %q, delivery %d", d.Data, d.Delivered)
	} else if err := d.DoubleAck(testContext(t)); err != nil {
		t.Error(err)
	}
	refusesOldRequests(t, js)
	if err := first.AckSync(nats.Context(testContext(t))); err != nil {
		t.Error(err)
	}
	info, err := old.Info(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if info.NumAckPending != 0 || info.NumPending != 0 || !slices.Equal(info.Config.PriorityGroups, []string{"topology-6"}) {
		t.Errorf("the consumer: %+v", info)
	}
}

// A consumer that loses the group while a worker of this release draws from it gets it again.
func TestAConsumerThatLosesTheGroupGetsItAgain(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	w := startLaneOf(t, js, jetstream.NewQueue(js, subject.Map{}), "agent.x", 4, jetstream.LaneOptions{Create: true, Check: 20 * time.Millisecond})
	w.said(t, jetstream.LaneWorking)
	groupless(t, js, "agent.x")
	refusesOldRequests(t, js)
	w.saidThat(t, "working again", func(h jetstream.LaneHealth) bool { return h.State == jetstream.LaneWorking })
}

// A worker that may not change consumers takes no tasks from one without the group, and says
// what an operator has to do.
func TestAConsumerWithoutTheGroupIsRefused(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	groupless(t, js, "agent.x")
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLaneOf(t, js, q, "agent.x", 4, jetstream.LaneOptions{Check: 20 * time.Millisecond})
	h := w.saidThat(t, "that the consumer is of an older release", func(h jetstream.LaneHealth) bool {
		return h.State == jetstream.LaneDegraded && strings.Contains(h.Reason, "AEE_WORK/normal-agent=2Ex")
	})
	if !strings.Contains(h.Reason, `gives tasks to workers of older releases, too: an operator has to run "aeemesh apply --entity agent.x"`) {
		t.Errorf("it says %q", h.Reason)
	}
	submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte("task")})
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	if d := w.next(t); string(d.Data) != "task" || d.Delivered != 1 {
		t.Errorf("drew %q, delivery %d", d.Data, d.Delivered)
	}
}

// edit changes the consumer of the normal tasks of agent.x, as an operator can.
func edit(t *testing.T, js natsjs.JetStream, change func(*natsjs.ConsumerConfig)) {
	t.Helper()
	cons, err := js.Consumer(testContext(t), jetstream.StreamWork, "normal-agent=2Ex")
	if err != nil {
		t.Fatal(err)
	}
	cfg := cons.CachedInfo().Config
	change(&cfg)
	if _, err := js.UpdateConsumer(testContext(t), jetstream.StreamWork, cfg); err != nil {
		t.Fatal(err)
	}
}

// spoilt are changes to a consumer with which a lane gets no tasks, or gets them without their
// bodies, or those of another entity.
var spoilt = map[string]struct {
	change func(*natsjs.ConsumerConfig)
	says   string
}{
	"filter_subject":        {func(c *natsjs.ConsumerConfig) { c.FilterSubject = "aee.work.normal.agent.y" }, "filter_subject aee.work.normal.agent.y, should be aee.work.normal.agent.x"},
	"headers_only":          {func(c *natsjs.ConsumerConfig) { c.HeadersOnly = true }, "headers_only true, should be false"},
	"max_request_expires":   {func(c *natsjs.ConsumerConfig) { c.MaxRequestExpires = time.Second }, "max_request_expires 1s, should be none"},
	"max_request_max_bytes": {func(c *natsjs.ConsumerConfig) { c.MaxRequestMaxBytes = 100 }, "max_request_max_bytes 100, should be 0"},
}

// A consumer that an operator has edited so that tasks do not come, or not whole, while a worker draws from it
// is as before at the worker's next look, and no task is lost meanwhile.
func TestAConsumerThatIsSpoiltIsRepaired(t *testing.T) {
	t.Parallel()
	for name, s := range spoilt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := start(t)
			apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
			q := jetstream.NewQueue(js, subject.Map{})
			w := startLaneOf(t, js, q, "agent.x", 4, jetstream.LaneOptions{Create: true, Check: 50 * time.Millisecond})
			w.said(t, jetstream.LaneWorking)
			edit(t, js, s.change)
			submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte("task")})
			if d := w.next(t); string(d.Data) != "task" {
				t.Errorf("drew %q with %v", d.Data, d.Header)
			}
			waitFor(t, "the consumer to be as before", func() bool {
				left, err := jetstream.Plan(testContext(t), js, jetstream.Options{Entities: []string{"agent.x"}})
				if err != nil {
					t.Fatal(err)
				}
				return !slices.ContainsFunc(left, func(c jetstream.Change) bool { return c.Action != jetstream.ActionNone })
			})
		})
	}
}

// A worker that may not change consumers takes no tasks from one that is spoilt, and says what an
// operator has to do.
func TestAConsumerThatIsSpoiltIsRefused(t *testing.T) {
	t.Parallel()
	for name, s := range spoilt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := start(t)
			apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
			q := jetstream.NewQueue(js, subject.Map{})
			w := startLaneOf(t, js, q, "agent.x", 4, jetstream.LaneOptions{Check: 50 * time.Millisecond})
			w.said(t, jetstream.LaneWorking)
			edit(t, js, s.change)
			submit(t, q, jetstream.Submission{Entity: "agent.x", Data: []byte("task")})
			want := `consumer AEE_WORK/normal-agent=2Ex has ` + s.says + `: an operator has to run "aeemesh apply --entity agent.x"`
			waitFor(t, want, func() bool { return strings.Contains(w.Health().Reason, want) })
			apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
			if d := w.next(t); string(d.Data) != "task" {
				t.Errorf("drew %q with %v", d.Data, d.Header)
			}
		})
	}
}
