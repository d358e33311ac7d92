package mesh

import (
	"context"
	"encoding/json"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// sleeper starts a taker, waits until it sleeps, and returns what it takes.
func sleeper(t *testing.T, q *queue) <-chan *Task {
	t.Helper()
	took := make(chan *Task, 1)
	w := q.worker()
	go func() {
		if task := q.take(w, false); task != nil {
			took <- task
		}
		close(took)
	}()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.asleep) == 0 || q.asleep[len(q.asleep)-1] != w {
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
	return took
}

func TestNobodyIsWokenForWhatTheAwakeWillSoonDo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		usual time.Duration
		tasks int
		wakes int
	}{
		{"brief", time.Microsecond, 50, 0},
		{"more than the patience", time.Microsecond, 51, 1},
		{"long", time.Millisecond, 1, 1},
		{"many long", time.Millisecond, 5, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(100)
			for range 3 {
				sleeper(t, q)
			}
			q.worker()
			q.watched = true // nothing may happen by itself
			q.usual = c.usual
			for n := range c.tasks {
				q.put(queued(envelope.PriorityNormal, n))
			}
			q.mu.Lock()
			equalTo(t, "woken", 3-len(q.asleep), c.wakes)
			q.mu.Unlock()
			q.close()
		})
	}
}

func TestTheWatchFindsAWorkerThatTakesLong(t *testing.T) {
	t.Parallel()
	q := newQueue(10)
	took := sleeper(t, q)
	w := q.worker()
	q.usual, q.watched = time.Nanosecond, true // tasks were brief, and nothing may happen by itself
	q.put(queued(envelope.PriorityNormal, 1))
	q.take(w, false)
	q.put(queued(envelope.PriorityNormal, 2))
	q.mu.Lock()
	equalTo(t, "asleep while the first task runs", len(q.asleep), 1)
	q.mu.Unlock()
	q.look()
	q.look()
	select {
	case task := <-took:
		equalTo(t, "taken", task.Envelope.ID, "2")
	case <-time.After(10 * time.Second):
		t.Fatal("the second task waits for the first")
	}
	equalTo(t, "awake", q.awake, 1)
	q.put(queued(envelope.PriorityNormal, 3))
	q.take(w, true)
	equalTo(t, "awake when the first task has ended", q.awake, 2)
	q.close()
}

// meeting ends when all have joined.
type meeting struct {
	mu      sync.Mutex
	missing int
	full    chan struct{}
}

func (m *meeting) join(ctx context.Context) error {
	m.mu.Lock()
	if m.missing--; m.missing == 0 {
		close(m.full)
	}
	m.mu.Unlock()
	select {
	case <-m.full:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Tasks that need one another's company must get it, whatever went before.
func TestLongTasksRunAtOnceAfterBriefOnes(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	node, err := New(natstest.Conn(t, srv), Config{})
	if err != nil {
		t.Fatal(err)
	}
	const concurrency = 4
	var round atomic.Pointer[meeting]
	ready := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- node.Serve(ctx, Agent{Entity: "agent.meeting", Concurrency: concurrency, Ready: func() { close(ready) },
			Handler: HandlerFunc(func(ctx context.Context, task *Task) (json.RawMessage, error) {
				if task.Envelope.Intent == "brief" {
					return nil, nil
				}
				return nil, round.Load().join(ctx)
			})})
	}()
	<-ready
	send := func(intent string) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := node.Send(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.meeting", intent, nil), SendOptions{})
		return err
	}
	for range 200 {
		if err := send("brief"); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		round.Store(&meeting{missing: concurrency, full: make(chan struct{})})
		errs := make(chan error)
		for range concurrency {
			go func() { errs <- send("long") }()
		}
		for range concurrency {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
