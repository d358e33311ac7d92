//go:build unix

package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// cancelled sends a task, cancels it as soon as the program has it, and returns
// what the sender was told, after the agent has ended the task.
func (w *world) cancelled(what string) *envelope.Error {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	task := envelope.New(envelope.TypeTask, "human.ada", entity, "test.run", json.RawMessage(do(what, "")))
	events, err := w.node.Conn().SubscribeSync("bus.mesh.task")
	if err != nil {
		w.t.Fatal(err)
	}
	defer events.Unsubscribe()
	_, err = w.node.Send(ctx, task, mesh.SendOptions{OnStream: func(*envelope.Envelope) error { cancel(); return nil }})
	for {
		msg, waitErr := events.NextMsg(patience)
		if waitErr != nil {
			w.t.Fatalf("the task never ended: %v", waitErr)
		}
		if e, parseErr := envelope.Parse(msg.Data); parseErr == nil && e.Intent == intents.TaskFailed && e.Corr == task.Corr {
			return envelope.AsError(err)
		}
	}
}

// wantBusy sends a task that finds every place taken, one of them by a task
// that lingers.
func (w *world) wantBusy(linger time.Duration) {
	w.t.Helper()
	got := w.send(entity, do("echo", "behind"), sending{})
	if got.err == nil || got.err.Code != envelope.CodeBusy || !got.err.Retryable ||
		got.err.BackoffMS <= 0 || got.err.BackoffMS > linger.Milliseconds() {
		w.t.Errorf("got %+v, want E_BUSY, retryable within %v", got, linger)
	}
}

// echoOnceFree sends tasks until one finds a place.
func (w *world) echoOnceFree() {
	w.t.Helper()
	until(w.t, "a place is free", func() bool {
		got := w.send(entity, do("echo", "free"), sending{})
		if got.err != nil && got.err.Code != envelope.CodeBusy {
			w.t.Fatalf("got %+v", got)
		}
		return got.payload == `{"text":"free"}`
	})
}

// A task that was cancelled keeps its place until the program has answered it,
// so that the program never has more tasks than the agent's concurrency.
func TestProgramNeverHasMoreTasksThanConcurrency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", nil)
	w.hostProgram(p, 1)
	var pid struct{ PID int }
	if err := json.Unmarshal([]byte(w.send(entity, do("pid", ""), sending{}).payload), &pid); err != nil {
		t.Fatal(err)
	}
	if err := w.cancelled("until_signal"); err.Code != envelope.CodeCancelled {
		t.Fatalf("got %v", err)
	}
	w.wantBusy(program.DefaultLinger)
	if n := p.Health().Details["in_flight"]; n != 1 {
		t.Errorf("%v in flight, want 1", n)
	}
	syscall.Kill(pid.PID, syscall.SIGUSR1)
	w.echoOnceFree()
	if d := p.Health().Details; d["lines_late"] != int64(1) || d["tasks_unanswered"] != nil {
		t.Errorf("health %v", d)
	}
}

func TestProgramThatNeverAnswersBlocksItsPlaceForSoLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", func(c *program.Config) { c.Linger = 50 * time.Millisecond })
	w.hostProgram(p, 1)
	if err := w.cancelled("hold"); err.Code != envelope.CodeCancelled {
		t.Fatalf("got %v", err)
	}
	w.echoOnceFree()
	if got := w.send(entity, do("release", ""), sending{}); got.payload != `{"text":"released"}` {
		t.Errorf("got %+v", got)
	}
	until(t, "the late answer is counted", func() bool {
		d := p.Health().Details
		return d["lines_late"] == int64(1) && d["tasks_unanswered"] == int64(1)
	})
}

func TestProgramTasksBehindOneThatTimedOutAreBusyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", func(c *program.Config) { c.Linger = time.Hour })
	w.hostProgram(p, 1)
	// On a slow machine it may time out before the program has it.
	until(t, "a task that the program has times out", func() bool {
		if got := w.send(entity, do("hold", ""), sending{requires: `{"timeout_ms":100}`}); got.err == nil || got.err.Code != envelope.CodeTimeout {
			t.Fatalf("got %+v", got)
		}
		return p.Health().Details["in_flight"] == 1
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { w.wantBusy(time.Hour) })
	}
	wg.Wait()
}

// A place without a lingering program is used as before.
func TestProgramServesOnThePlacesThatAreFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", func(c *program.Config) { c.Linger = time.Hour })
	w.hostProgram(p, 2)
	var wg sync.WaitGroup
	wg.Go(func() { w.send(entity, do("hold", ""), sending{}) })
	until(t, "the program holds it", func() bool { return p.Health().Details["in_flight"] == 1 })
	w.send(entity, do("release", ""), sending{}) // beside it: there are two places
	wg.Wait()
	if err := w.cancelled("hold"); err.Code != envelope.CodeCancelled {
		t.Fatalf("got %v", err)
	}
	if got := w.send(entity, do("echo", "second place"), sending{}); got.payload != `{"text":"second place"}` {
		t.Errorf("got %+v", got)
	}
	if err := w.cancelled("hold"); err.Code != envelope.CodeCancelled {
		t.Fatalf("got %v", err)
	}
	w.wantBusy(time.Hour)
}

// The place of a task that lingers is free when the program that owes the
// answer is gone.
func TestProgramThatDiedLeavesNoPlaceTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := newProgram(t, "serve", func(c *program.Config) { c.Linger = time.Hour })
	w.hostProgram(p, 1)
	var pid struct{ PID int }
	if err := json.Unmarshal([]byte(w.send(entity, do("pid", ""), sending{}).payload), &pid); err != nil {
		t.Fatal(err)
	}
	if err := w.cancelled("hold"); err.Code != envelope.CodeCancelled {
		t.Fatalf("got %v", err)
	}
	syscall.Kill(pid.PID, syscall.SIGKILL)
	w.echoOnceFree()
}

// A task that has timed out keeps its slot while the program works on it: no worker begins
// another one beyond the agent's concurrency (AAIF, Runtime Configuration). Its sender has
// its answer at the deadline all the same.
func TestATaskThatTimedOutKeepsItsSlotWhileTheProgramWorks(t *testing.T) {
	t.Parallel()
	natstest.Long(t) // the shortest timeout_seconds is a second
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			serve := func(opts agents.Options) {
				opts.As = entity
				a := newAgent(t, doc(t, `"runtime": {"timeout_seconds": 1, "concurrency": 1, "max_retries": 0}`), opts)
				ready := make(chan struct{})
				a.Ready = func() { close(ready) }
				l.host(a, func(d *mesh.Durable) { d.Slots = slot.NewStore(l.js(l.conn), subject.Map{}, time.Minute) })
				<-ready
			}
			p := newProgram(t, "serve", func(c *program.Config) { c.Linger = time.Hour })
			serve(agents.Options{Program: p})
			reply, err := l.ask(false, entity, do("pid", ""))
			var pid struct{ PID int }
			if err != nil || json.Unmarshal(reply.Payload, &pid) != nil {
				t.Fatalf("got %v, %v", reply, err)
			}
			if _, err := l.ask(durable, entity, do("hold", "")); err == nil || envelope.AsError(err).Code != envelope.CodeTimeout {
				t.Fatalf("got %v", err)
			}
			if n := p.Health().Details["in_flight"]; n != 1 {
				t.Fatalf("%v in flight, want 1", n)
			}
			serve(agents.Options{Handler: answering(`{"text":"second"}`)})
			var wg sync.WaitGroup
			for range 12 { // some to each worker
				task := l.task(entity, do("echo", "early"), `{"timeout_ms":500}`)
				wg.Go(func() {
					if reply, err := l.client.Send(l.ctx(), task, mesh.SendOptions{}); err == nil {
						t.Errorf("answered %s beside the task under way", reply.Payload)
					}
				})
			}
			wg.Wait()
			syscall.Kill(pid.PID, syscall.SIGKILL)
			until(t, "the slot is free", func() bool {
				_, err := l.ask(false, entity, do("echo", "free"))
				return err == nil
			})
		})
	}
}
