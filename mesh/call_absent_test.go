package mesh_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// inVain waits until a durable task has called an agent without a worker.
func (r *durableRig) inVain(task *envelope.Envelope) {
	r.t.Helper()
	eventually(r.t, "somebody is called", func() bool {
		c := r.begun(task)
		return c != nil && len(c.Mesh.Calls) == 1 && c.Mesh.Calls[0].Live
	})
}

// A durable task waits for a worker of whom it calls, though there never was one,
// on whichever lane that has then.
func TestADurableCallWaitsForTheFirstWorker(t *testing.T) {
	t.Parallel()
	for lane, liveOnly := range map[string]bool{"live": true, "durable": false} {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			r := newDurableRig(t)
			answers := make(chan *mesh.Answer, 1)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one"}, func(a *mesh.Answer, _ error) { answers <- a })})
			client, task := r.client(), newTask(lead, "lead.work", `{"n":1}`)
			r.submit(client, task)
			r.inVain(task)
			r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: echo, LiveOnly: liveOnly})
			reply, err := r.result(client, task)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "result", canonical(t, reply.Payload), `{"n":1}`)
			if a := within(t, "the answer", answers); liveOnly && a.Durable {
				t.Errorf("answer %+v of one without a durable lane", a)
			}
		})
	}
}

// A run that waits for an agent's first worker obeys commands meanwhile.
func TestADurableCallThatWaitsForAWorkerIsInterrupted(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	ended := make(chan error, 1)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one"}, func(_ *mesh.Answer, err error) { ended <- err })})
	client, task := r.client(), newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	r.inVain(task)
	if _, err := client.Command(ctxFor(t), lead, intents.PauseTask{Target: target(task)}); err != nil {
		t.Fatal(err)
	}
	if err := within(t, "the end of the call", ended); !isErr(err, mesh.ErrInterrupted) {
		t.Errorf("the call ended with %v", err)
	}
}

func TestAnImpatientCallOfADurableTaskDoesNotWait(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	r := newDurableRig(t)
	ended := make(chan error, 1)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one", FailFast: true}, func(_ *mesh.Answer, err error) { ended <- err })})
	r.submit(r.client(), newTask(lead, "lead.work", `{}`))
	equal(t, "code", codeOf(within(t, "the end of the call", ended)), envelope.CodeNoResponders)
}

// A live call that has waited for a worker is one of the run's as before: it is cancelled with it.
func TestACallThatWaitedForAWorkerIsCancelledWithItsRun(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: lead, Handler: calling(mesh.Call{To: helper, Key: "one"}, nil)})
	client, task := r.client(), newTask(lead, "lead.work", `{}`)
	r.submit(client, task)
	r.inVain(task)
	l := newLeaf()
	r.serve(r.lane(mesh.Config{}), mesh.Agent{Entity: helper, Handler: l, LiveOnly: true})
	began := within(t, "the call", l.began)
	if _, err := client.Command(ctxFor(t), lead, intents.CancelTask{ID: task.ID}); err != nil {
		t.Fatal(err)
	}
	equal(t, "stopped", within(t, "the called task to stop", l.stopped), began)
}
