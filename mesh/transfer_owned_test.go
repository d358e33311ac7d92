package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/run"
)

// waiter is an agent whose handler claims its run and then waits: for its context, or for over.
type waiter struct {
	begun chan *Run
	over  chan struct{}
}

func (w *waiter) Handle(ctx context.Context, task *Task) (json.RawMessage, error) {
	if err := task.Run().Claim(ctx); err != nil {
		return nil, err
	}
	w.begun <- task.Run()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-w.over:
		return json.RawMessage(`{}`), nil
	}
}

// begunRun serves a waiter, and returns a run that it has begun.
func begunRun(t *testing.T, change ...func(*Config)) (*Node, context.Context, *waiter, *Run) {
	t.Helper()
	w := &waiter{begun: make(chan *Run, 100), over: make(chan struct{})}
	node, ctx := serveDurable(t, time.Minute, Agent{Entity: "agent.x", Handler: w}, change...)
	t.Cleanup(func() { close(w.over) })
	if _, err := node.Submit(ctx, envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`)), client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-w.begun:
		return node, ctx, w, r
	case <-ctx.Done():
		t.Fatal("the run does not begin")
		return nil, nil, nil, nil
	}
}

// capture captures a run as it stands. The caller says what becomes of it.
func capture(ctx context.Context, r *Run, to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.write(ctx, func(c *state.Checkpoint) error {
		c.Mesh.Migration = &state.Migration{ID: uuid.NewString(), To: to}
		return r.captured(c)
	})
	if err == nil {
		r.parked = aaif.RunMigrating
		r.stop(ErrParked)
	}
	return err
}

// onItsWay returns a run that has stopped for its transfer to another platform.
func onItsWay(t *testing.T, change func(*Run)) (*Node, context.Context, stopped) {
	t.Helper()
	node, ctx, _, old := begunRun(t)
	l := old.lane
	old.releasing.Store(true) // the test takes its message
	if change != nil {
		change(old)
	}
	if err := capture(ctx, old, "https://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	l.unlist(old)
	r, err := l.transfers.runOf(old.cp.Load(), old.rev, old.hold)
	if err != nil {
		t.Fatal(err)
	}
	l.own(r)
	return node, ctx, stopped{l.transfers, r}
}

// Each end of a transfer lets go of the run, and says the right thing of its message: nothing, if
// the message is another worker's. A nak would have the server give that worker's run to a third.
func TestWhatBecomesOfTheMessageOfARunThatWasTransferred(t *testing.T) {
	t.Parallel()
	end := func(s stopped) { s.End(s.r.task.Envelope.Reply(envelope.TypeResult, json.RawMessage(`{}`)), 0) }
	for name, test := range map[string]struct {
		lost bool // another worker has claimed the run
		last func(stopped)
		said string
	}{
		"moved":              {last: stopped.Moved},
		"parked":             {last: stopped.Park, said: "+ACK"},
		"given back":         {last: func(s stopped) { s.Requeue(nil) }, said: "-NAK"},
		"not written":        {last: func(s stopped) { s.Requeue(errors.New("no room")) }, said: "-NAK"},
		"ended":              {last: end, said: "+ACK"},
		"failed":             {last: func(s stopped) { s.Fail(nil) }, said: "+ACK"},
		"given back, lost":   {lost: true, last: func(s stopped) { s.r.verify(s.ctx); s.Requeue(nil) }},
		"ended, but lost":    {lost: true, last: end},
		"failed, but lost":   {lost: true, last: func(s stopped) { s.Fail(nil) }},
		"advanced, but lost": {lost: true, last: func(s stopped) { s.Requeue(s.Advance(state.PhaseAborted, nil)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, ctx, s := onItsWay(t, nil)
			js, err := natsjs.New(node.conn)
			if err != nil {
				t.Fatal(err)
			}
			// What it naks would be delivered to it again at once.
			if _, err := js.PauseConsumer(ctx, jetstream.StreamWork, "normal-agent=2Ex", time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			acks := make(chan *nats.Msg, 100)
			sub, err := node.conn.ChanSubscribe("$JS.ACK."+jetstream.StreamWork+".>", acks)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
			if test.lost {
				rec, err := s.cfg.States.Get(ctx, s.r.id)
				if err != nil {
					t.Fatal(err)
				}
				if err := claimedBy(ctx, s.cfg.States, rec, "another"); err != nil {
					t.Fatal(err)
				}
			}
			test.last(s)
			if err := node.conn.FlushWithContext(ctx); err != nil {
				t.Fatal(err)
			}
			said := ""
			for len(acks) > 0 {
				if verb := string((<-acks).Data[:4]); verb != "+WPI" {
					said += verb
				}
			}
			if said != test.said {
				t.Errorf("of the message it says %q, not %q", said, test.said)
			}
			if s.lane.run(s.r.id.Run) != nil || s.lane.busy() {
				t.Errorf("it has the run: %v, the message: %v", s.lane.run(s.r.id.Run) != nil, s.lane.busy())
			}
			if name != "parked" && name != "not written" && s.r.ended() == nil {
				t.Error("it may write the run's record")
			}
		})
	}
}

// The agent's timeout counts how long its handler has run: before the transfer, and not meanwhile.
func TestTheTimeOfATransferIsNoRunningTime(t *testing.T) {
	t.Parallel()
	_, ctx, s := onItsWay(t, func(r *Run) { r.ran = time.Hour })
	ran := func(when string) {
		rec, err := s.cfg.States.Get(ctx, s.r.id)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.records.read(rec)
		if err != nil {
			t.Fatal(err)
		}
		if c.Mesh.Ran < time.Hour || c.Mesh.Ran >= 10*time.Hour {
			t.Errorf("%s: the run has taken %v", when, c.Mesh.Ran)
		}
	}
	s.r.begun = time.Now().Add(-10 * time.Hour)
	if err := s.Advance(state.PhaseAsked, nil); err != nil {
		t.Fatal(err)
	}
	ran("on its way")
	s.r.begun = time.Now().Add(-10 * time.Hour)
	s.Fail(nil)
	ran("at its end")
}

// A transfer ends when another worker has claimed the run, and when this worker stops.
func TestATransferEndsWithTheRunOrTheWorker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end func(stopped)
		why error
	}{
		"lost":  {func(s stopped) { s.r.mu.Lock(); s.r.lose(); s.r.mu.Unlock() }, ErrLost},
		"stops": {func(s stopped) { s.lane.stopDrawing() }, errStopped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ctx, s := onItsWay(t, nil)
			owned, cancel := s.ownedContext(s.r)
			defer cancel()
			if owned.Err() != nil {
				t.Fatal(context.Cause(owned))
			}
			test.end(s)
			select {
			case <-owned.Done():
			case <-ctx.Done():
			}
			if why := context.Cause(owned); !errors.Is(why, test.why) {
				t.Errorf("it ends with %v", why)
			}
		})
	}
}

// A run whose transfer has failed goes on here. The worker knows all the time that it has it: its
// message does not begin it once more, and a cancel reaches it.
func TestARunThatDidNotMoveIsKnownHere(t *testing.T) {
	t.Parallel()
	known := make(chan bool, 10)
	lanes := make(chan *lane, 1)
	node, ctx, w, r := begunRun(t, func(cfg *Config) {
		cfg.Durable.Observe = func(at Point, id state.ID) {
			if at == PointBeforeMove+Point(state.PhaseAborted) {
				l := <-lanes
				known <- l.run(id.Run) != nil
			}
		}
	})
	lanes <- r.lane
	if err := capture(ctx, r, r.lane.host.id); err != nil { // it is there already
		t.Fatal(err)
	}
	r.lane.releaseParked(r, ErrParked)
	var again *Run
	select {
	case again = <-w.begun:
	case <-ctx.Done():
		t.Fatal("the run does not go on")
	}
	if !<-known {
		t.Error("on its way the worker does not know that it has the run")
	}
	if again.lane.run(again.id.Run) != again {
		t.Error("the worker does not know that it has the run")
	}
	if len(again.lane.host.running.Matching(func(t *Task) bool { return t == again.task })) != 1 {
		t.Error("the run's deadline would pass unnoticed")
	}
	out, err := node.Command(ctx, "agent.x", intents.CancelTask{ID: again.task.Envelope.ID})
	if err != nil || !out.Cancelled {
		t.Errorf("cancel: %+v, %v", out, err)
	}
	if len(w.begun) > 0 {
		t.Error("the run was begun once more")
	}
}

// A worker that takes over a run has it from the claim on, also while the run waits for a place. A
// claim that fails leaves nothing. A worker without a place takes none over.
func TestAnOfferedRunIsTheWorkersFromItsClaimOn(t *testing.T) {
	t.Parallel()
	node, ctx, w, first := begunRun(t) // the only place is taken
	l := first.lane
	if err := l.transfers.Room(); err == nil {
		t.Error("the worker has room")
	}
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.x", "x.y.z", json.RawMessage(`{}`))
	receipt, err := node.Submit(ctx, task, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := jetstream.WorkConsumer(subject.Map{}, "normal", "agent.x", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	// The worker that offers the run has drawn its message.
	now := l.clock.now()
	ack := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", jetstream.StreamWork, spec.Config.Durable, receipt.Seq, receipt.Seq, now.UnixNano())
	raw, err := task.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := state.New("agent.x", task.ID, l.host.AgentID)
	run.Describe(c, run.Task{Envelope: raw, Priority: envelope.PriorityNormal, Stored: now, Deadline: now.Add(time.Hour)}, now)
	c.Mesh.Epoch, c.Mesh.Claims, c.Mesh.Work = 1, 1, receipt.Seq
	c.Mesh.Migration = &state.Migration{ID: uuid.NewString(), To: intents.MigrateAny}
	run.Capture(c, "another", "", now)
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	rev, err := l.cfg.States.Put(ctx, c.ID(), 0, data)
	if err != nil {
		t.Fatal(err)
	}
	held := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.holds)
	}
	claim := func(rev uint64) (epoch uint64, err error) {
		c, rec := c.Clone(), state.Record{ID: c.ID(), Revision: rev, Data: data, Time: now}
		err = l.transfers.Claim(ctx, rec, c, ack, func(e uint64) { epoch = e })
		return epoch, err
	}
	if epoch, err := claim(rev + 1000); err == nil || epoch != 0 || held() != 1 || l.run(c.Doc.RunID) != nil {
		t.Errorf("a claim that fails: epoch %d, %v; it has %d messages", epoch, err, held())
	}
	if epoch, err := claim(rev); err != nil || epoch != 2 || held() != 2 {
		t.Errorf("the claim: epoch %d, %v; it has %d messages", epoch, err, held())
	}
	if mine := l.run(c.Doc.RunID); mine == nil || !mine.claimedEarly || mine.Epoch() != 2 {
		t.Errorf("the worker has the run: %v", mine != nil)
	}
	out, err := node.Command(ctx, "agent.x", intents.CancelTask{ID: task.ID})
	if err != nil || !out.Cancelled {
		t.Errorf("cancel: %+v, %v", out, err)
	}
	if len(w.begun) > 0 {
		t.Error("the run has begun")
	}
}
