package mesh_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestADeadlinePassesWhileTheTaskIsQueued(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := newGate(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g})
	client := r.client()
	r.submit(client, newTask(reviewer, "code.review", `{}`))
	within(t, "the task", g.entered)
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":1}`)
	r.submit(client, task)
	since := time.Now()
	eventually(t, "the deadline has passed by any clock", func() bool { return time.Since(since) > 500*time.Millisecond })
	g.open()
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeTimeout {
		t.Errorf("result %v", err)
	}
	r.drainedQueue()
	select {
	case <-g.entered:
		t.Error("a task was begun whose deadline had passed")
	default:
	}
	equal(t, "dead letters", len(r.letters()), 0)
}

func TestADeadlinePassesWhileTheTaskRuns(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	g := willing{newGate(t)}
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: g, Retry: mesh.RetryPolicy{Max: 5}})
	client := r.client()
	task := requiring(newTask(reviewer, "code.review", `{}`), `{"timeout_ms":300}`)
	r.submit(client, task)
	if _, err := r.result(client, task); codeOf(err) != envelope.CodeTimeout || !strings.Contains(err.Error(), "300ms") {
		t.Errorf("result %v", err)
	}
	r.drainedQueue()
	equal(t, "attempts", r.record(task).Mesh.Attempt, 0)
}

// The agent's own limit is for running: what a run waited for does not count,
// and what it ran under an earlier owner does.
func TestTheAgentsTimeoutCountsRunningTime(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	const limit = 4 * time.Second
	s := newStepper(t, 2)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: s, Timeout: limit})
	client := r.client()
	task := newTask(reviewer, "code.review", `{}`)
	r.submit(client, task)
	within(t, "the task", s.entered)
	began := time.Now()
	r.command(client, intents.PauseTask{Target: target(task)})
	eventually(t, "it has run for a while", func() bool { return time.Since(began) > 200*time.Millisecond })
	s.next <- struct{}{}
	within(t, "the commit", s.outcome)
	r.drainedQueue()
	paused := r.record(task)
	if paused.Mesh.Ran < 200*time.Millisecond || paused.Mesh.Ran >= limit {
		t.Errorf("ran %v", paused.Mesh.Ran)
	}
	r.command(client, intents.ResumeTask{Target: target(task)})
	within(t, "the task", s.entered)
	_, err := r.result(client, task) // it is not resumed
	if codeOf(err) != envelope.CodeTimeout || !strings.Contains(err.Error(), limit.String()) {
		t.Errorf("result %v", err)
	}
	if c := r.record(task); c.Mesh.Ran < limit {
		t.Errorf("ran %v", c.Mesh.Ran)
	}
}

func TestScheduledTasks(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Handler: echo})
	client := r.client()
	task, doomed := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	before := time.Now()
	receipt, err := client.Submit(ctxFor(t), task, mesh.SubmitOptions{After: 1200 * time.Millisecond})
	if err != nil || receipt.Due.Before(before.Add(time.Second)) {
		t.Fatalf("receipt %+v, %v", receipt, err)
	}
	if _, err := client.Submit(ctxFor(t), doomed, mesh.SubmitOptions{At: time.Now().Add(2 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	never := newTask(reviewer, "code.review", `{"n":3}`)
	if _, err := client.Submit(ctxFor(t), never, mesh.SubmitOptions{After: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.lane(mesh.Config{Entity: "agent.stranger"}).Command(ctxFor(t), reviewer, intents.CancelTask{ID: never.ID}); codeOf(err) != envelope.CodeDenied {
		t.Errorf("a stranger's cancel of a scheduled task: %v", err)
	}
	for _, task := range []*envelope.Envelope{doomed, never} {
		if out := r.command(client, intents.CancelTask{ID: task.ID}); !out.Cancelled || out.Status != "failed" {
			t.Errorf("cancel of a scheduled task: %+v", out)
		}
		r.cancelled(client, task) // at once
	}
	// Its message is purged too. A busy server (2.15.2) says that it has done so and
	// sometimes still returns it: when it falls due its run has ended.
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	began := r.record(task).Mesh.StartedAt
	if at := before.Add(1200 * time.Millisecond); began.Before(at.Add(-50 * time.Millisecond)) {
		t.Errorf("begun at %v, due at %v", began, at)
	}
}

// A task may also say itself when it is to begin, and go to the queue at once;
// and be signed long before, so that its ts is past by then.
func TestATaskThatIsToBeginLater(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{Skew: 2 * time.Second}), mesh.Agent{Handler: echo})
	client := r.client()
	at := time.Now().Add(2500 * time.Millisecond)
	task := requiring(newTask(reviewer, "code.review", `{}`), fmt.Sprintf(`{"not_before":%q}`, at.UTC().Format(time.RFC3339Nano)))
	r.submit(client, task)
	if _, err := r.result(client, task); err != nil {
		t.Fatal(err)
	}
	if began := r.record(task).Mesh.StartedAt; began.Before(at.Add(-50 * time.Millisecond)) {
		t.Errorf("begun at %v, due at %v", began, at)
	}
}

// When a task is to begin is by the server's clock, whichever the sender's is.
func TestATaskIsDelayedByTheServersClock(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	for name, c := range map[string]struct {
		ahead, at time.Duration // of the sender's clock
		delayed   bool
	}{
		"the sender is ahead":  {-time.Hour, -30 * time.Minute, true},
		"the sender is behind": {time.Hour, 30 * time.Minute, false},
	} {
		client := r.lane(mesh.Config{Entity: ada}, func(d *mesh.Durable) {
			d.Clock = jetstream.NewClock(natstest.ClockAhead(t, r.srv, c.ahead), r.m)
		})
		at := time.Now().Add(c.at).Truncate(time.Second)
		receipt, err := client.Submit(ctxFor(t), newTask(reviewer, "code.review", `{}`), mesh.SubmitOptions{At: at})
		if err != nil || receipt.Due.Equal(at) != c.delayed || receipt.Due.IsZero() == c.delayed {
			t.Errorf("%s: %+v, %v; for %v", name, receipt, err, at)
		}
	}
}
