package jetstream_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

func TestBacklog(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "acme.eu"} {
		ctx, js, m := testContext(t), start(t), prefix(t, p)
		q := jetstream.NewQueue(js, m)
		if _, err := q.Backlog(ctx); !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("without streams: %v", err)
		}
		apply(t, js, jetstream.Options{Map: m})
		if all, err := q.Backlog(ctx); err != nil || len(all) != 0 {
			t.Errorf("of nobody: %+v, %v", all, err)
		}
		before := time.Now()
		for i := range 5 {
			submit(t, q, jetstream.Submission{Entity: "agent.drawn", Data: fmt.Append(nil, i)})
		}
		submit(t, q, jetstream.Submission{Entity: "agent.drawn", Priority: "low"})
		for _, entity := range []string{"agent.alone", "agent.alone", "agent.drawn"} {
			submit(t, q, jetstream.Submission{Entity: entity, Priority: "urgent"})
		}
		submit(t, q, jetstream.Submission{Entity: "agent.late", ID: "t", At: time.Now().Add(time.Hour)})
		bury(t, jetstream.NewDead(js, m), jetstream.DeadLetter{Entity: "agent.dead", TaskID: "t"})
		// A task that was retried once, and died again: its permit to be retried is no letter.
		again := jetstream.NewDead(js, m)
		work, _ := m.Work("normal", "agent.again")
		better, _ := m.Work("normal", "agent.better")
		if _, err := again.Retry(ctx, bury(t, again, jetstream.DeadLetter{Entity: "agent.again", TaskID: "t", Subject: work, Data: []byte("{}")})); err != nil {
			t.Fatal(err)
		}
		if _, err := again.Retry(ctx, bury(t, again, jetstream.DeadLetter{Entity: "agent.better", TaskID: "t", Subject: better, Data: []byte("{}")})); err != nil {
			t.Fatal(err)
		}
		bury(t, again, jetstream.DeadLetter{Entity: "agent.again", TaskID: "t", Subject: work, Data: []byte("{}"), Work: 2})
		due, _ := m.Due("low", "agent.late")
		if _, err := js.Publish(ctx, due, nil); err != nil {
			t.Fatal(err)
		}

		w := startLane(t, js, m, "agent.drawn", 3, jetstream.LaneOptions{Create: true, Lease: time.Hour})
		for range 3 {
			w.next(t)
		}
		var of map[string]jetstream.Backlog
		waitFor(t, "three to be at work and four to wait", func() bool {
			all, err := q.Backlog(ctx)
			if err != nil {
				t.Fatal(err)
			}
			of = map[string]jetstream.Backlog{}
			for _, b := range all {
				of[b.Entity] = b
			}
			// Tasks that the lane requeued count as unacknowledged. The lane creates its
			// consumers one after the other.
			b := of["agent.drawn"]
			return len(all) == 6 && all[1].Entity == "agent.alone" && b.Unacked() >= 3 && b.Pending()+b.Unacked() == 7 && b.Priorities[0].Consumer
		})
		alone := of["agent.alone"]
		if u := alone.Priorities[0]; u.Priority != "urgent" || u.Consumer || u.Pending != 2 || u.Oldest.Before(before.Add(-time.Second)) || alone.Pending() != 2 || !alone.Oldest().Equal(u.Oldest) {
			t.Errorf("nobody draws: %+v", alone)
		}
		if d := of["agent.drawn"]; !d.Priorities[0].Consumer || d.Priorities[0].Paused || len(d.Priorities) != 4 || d.Pending() > 0 && d.Oldest().IsZero() {
			t.Errorf("a worker draws: %+v", d)
		}
		if l := of["agent.late"]; l.Scheduled != 1 || l.Due != 1 || l.Pending() != 0 || !l.Oldest().IsZero() {
			t.Errorf("delayed: %+v", l)
		}
		if d := of["agent.dead"]; d.Dead != 1 {
			t.Errorf("dead: %+v", d)
		}
		if d := of["agent.again"]; d.Dead != 1 || d.Pending() != 1 {
			t.Errorf("dead again: %+v", d)
		}
		if d := of["agent.better"]; d.Dead != 0 || d.Pending() != 1 {
			t.Errorf("retried, and not dead again: %+v", d)
		}
		some, err := q.Backlog(ctx, "agent.late", "agent.nobody")
		if err != nil || len(some) != 2 || some[0].Scheduled != 1 || some[1].Entity != "agent.nobody" || len(some[1].Priorities) != 4 {
			t.Errorf("of two: %+v, %v", some, err)
		}
		if _, err := q.Backlog(ctx, "agent.*"); err == nil {
			t.Error("a pattern is no entity")
		}
	}
}

// The backlog of a paused consumer, and the age of tasks after the delivered ones.
func TestBacklogOfAPausedConsumer(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	q := jetstream.NewQueue(js, subject.Map{})
	w := startLane(t, js, subject.Map{}, "agent.x", 1, jetstream.LaneOptions{Create: true, Lease: time.Hour})
	submit(t, q, jetstream.Submission{Entity: "agent.x"})
	w.next(t)
	if _, err := js.PauseConsumer(ctx, jetstream.StreamWork, "normal-agent=2Ex", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	second := submit(t, q, jetstream.Submission{Entity: "agent.x"})
	stream, err := js.Stream(ctx, jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := stream.GetMsg(ctx, second.Seq)
	if err != nil {
		t.Fatal(err)
	}
	var n jetstream.PriorityBacklog
	defer func() {
		if t.Failed() {
			t.Logf("got %+v; the second was stored at %s", n, msg.Time)
		}
	}()
	waitFor(t, "the second to be counted", func() bool { // the consumer counts it a moment after it is stored
		all, err := q.Backlog(ctx, "agent.x")
		if err != nil {
			t.Fatal(err)
		}
		n = all[0].Priorities[2]
		return n.Paused && n.Pending == 1 && n.Unacked == 1 && n.Oldest.Equal(msg.Time) && !n.OldestDrawn.IsZero() && n.OldestDrawn.Before(msg.Time)
	})
}

// After a full disk a consumer may be ahead of the stream: it delivers none of the tasks behind
// it, and does not count them. The backlog does, and a reset makes the consumer deliver them, as
// docs/operations.md says.
func TestBacklogCountsWhatItsConsumerDoesNotDeliver(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{Entities: []string{"agent.x"}})
	q := jetstream.NewQueue(js, subject.Map{})
	task := submit(t, q, jetstream.Submission{Entity: "agent.x"})
	reset := func(seq uint64) {
		t.Helper()
		msg, err := js.Conn().RequestWithContext(ctx, "$JS.API.CONSUMER.RESET.AEE_WORK.normal-agent=2Ex", fmt.Appendf(nil, `{"seq":%d}`, seq))
		if err != nil || !strings.Contains(string(msg.Data), `"reset_seq":`) {
			t.Fatalf("%v: %s", err, msg.Data)
		}
	}
	reset(task.Seq + 1)
	consumer, err := js.Consumer(ctx, jetstream.StreamWork, "normal-agent=2Ex")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := consumer.Info(ctx); err != nil || info.NumPending != 0 || info.NumAckPending != 0 {
		t.Fatalf("%+v, %v: the consumer is not ahead", info, err)
	}
	all, err := q.Backlog(ctx, "agent.x")
	if err != nil {
		t.Fatal(err)
	}
	if n := all[0].Priorities[2]; !n.Consumer || n.Pending != 1 || n.Unacked != 0 || n.Oldest.IsZero() {
		t.Errorf("got %+v, want one that waits", n)
	}
	reset(task.Seq)
	if info, err := consumer.Info(ctx); err != nil || info.NumPending != 1 {
		t.Errorf("after the reset: %+v, %v", info, err)
	}
}
