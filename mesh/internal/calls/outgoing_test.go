package calls

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/internal/bounds"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/sender"
	"github.com/aeemesh/aeemesh/state"
)

// stoppedTask is a task whose context has ended. Its other methods must not be called.
type stoppedTask struct{ TaskPort }

func (stoppedTask) Stopped() bool { return true }

// The worker that ends the run cancels its calls. Another worker that continues it waits for them.
func TestACallOfADurableTaskThatIsStoppedIsNotCancelled(t *testing.T) {
	t.Parallel()
	_, r := newFakeRun()
	o := &outgoing{Task: &Task{Port: stoppedTask{}, Run: r, Envelope: &envelope.Envelope{}}} // no agent: a cancel would panic
	o.cancel(state.Call{ID: "task-0002", To: "agent.helper", Live: true})
	if len(r.Record.over) != 0 {
		t.Error("the call is said to have ended")
	}
}

// unheardTask is a task whose server does not answer.
type unheardTask struct{ TaskPort }

func (unheardTask) Inherit(map[string]json.RawMessage) error { return nil }
func (unheardTask) Persist(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// A call that is not known to be one for the live lane is not sent over it: the next owner of the
// run would make it again.
func TestACallIsNotSentLiveWhileItsLaneIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, r := newFakeRun()
		agent := &Agent{Node: &Node{Sender: &sender.Sender{}}} // no client: a live call would panic
		e, tree := envelope.New(envelope.TypeTask, "human.ada", "agent.lead", "lead.work", nil), &bounds.Position{}
		if err := tree.Join(bounds.NewKeeper(bounds.Limits{}, func() bounds.Counters { return nil }, nil), "agent.lead", e, nil); err != nil {
			t.Fatal(err)
		}
		task := &Task{Agent: agent, Port: unheardTask{}, Run: r, Envelope: e, Deadline: time.Now().Add(time.Hour), Tree: tree}
		_, err := task.Call(t.Context(), Call{To: "agent.helper", Key: "one"})
		if !fault.IsCode(err, envelope.CodeUnavailable) || !fault.ForPeer(err).Retryable {
			t.Errorf("got %v", err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := task.Call(ctx, Call{To: "agent.helper", Key: "one"}); !fault.IsCode(err, envelope.CodeTimeout) || time.Since(began) != time.Second {
			t.Errorf("with a second left: %v after %v", err, time.Since(began))
		}
	})
}

// fencedTask is a task whose user may not look at the queues of others.
type fencedTask struct{ TaskPort }

func (fencedTask) Persist(context.Context, func() error) error { return jetstream.ErrDenied }

func TestACallIsSentLiveIfItsLaneMayNotBeLookedUp(t *testing.T) {
	t.Parallel()
	_, r := newFakeRun()
	o := &outgoing{Task: &Task{Agent: &Agent{Log: slog.New(slog.DiscardHandler)}, Port: fencedTask{}, Run: r}, c: &Call{To: "agent.helper", Key: "one"}}
	if durable, err := o.hasLane(t.Context()); durable || err != nil {
		t.Errorf("durable: %v, %v", durable, err)
	}
}

// triedTask is a task whose JetStream does not answer for a while. It calls each after a try.
type triedTask struct {
	TaskPort
	each func()
}

func (p triedTask) Persist(_ context.Context, f func() error) error {
	_ = f()
	p.each()
	time.Sleep(time.Hour)
	defer p.each()
	return f()
}

// signs returns a signer of the lead, and a ring with its key.
func signs(t *testing.T) (*sign.Signer, *sign.Ring) {
	t.Helper()
	signer, key, err := sign.NewKey("lead", sign.Ed25519, "agent.lead")
	ring := &sign.Ring{}
	if err == nil {
		err = ring.Put(sign.Local, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer, ring
}

// A person's client refuses a signed task whose ts is far from the time at which it was stored, by the
// server's clock, from which the worker's may differ.
func TestATaskForAPersonThatWaitsForJetStreamIsNotStale(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"the server's clock": 0, "a clock that is an hour slow": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				signer, ring := signs(t)
				_, r := newFakeRun()
				server := func() time.Time { return time.Now().Add(off) }
				r.Deadline = server().Add(5 * time.Hour)
				agent := &Agent{Node: &Node{Sender: &sender.Sender{}, Now: server}, Entity: "agent.lead", Signer: signer} // no inbox
				task := envelope.New(envelope.TypeTask, "agent.lead", "human.bob", "human.ask", nil)
				tries := 0
				tried := triedTask{each: func() {
					tries++
					if err := sign.CheckTime(task, server(), time.Minute); err != nil {
						t.Errorf("try %d: %v", tries, err)
					}
					if _, err := (sign.Verifier{Ring: ring, Mode: sign.Required}).Verify(task, server()); err != nil {
						t.Errorf("try %d: %v", tries, err)
					}
				}}
				o := &outgoing{Task: &Task{Agent: agent, Port: tried, Run: r, Envelope: &envelope.Envelope{}, Deadline: r.Deadline}, c: &Call{To: "human.bob", Key: "one"}}
				if _, err := o.sendToPerson(t.Context(), task, server()); !fault.IsCode(err, envelope.CodeUnavailable) || tries != 2 {
					t.Errorf("%v, after %d tries", err, tries)
				}
			})
		})
	}
}
