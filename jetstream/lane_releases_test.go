package jetstream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

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
