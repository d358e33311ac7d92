package mesh_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// Who is handed a task back by a worker that stops, and sends it again at once, does
// not get the same worker: by then the server sends it nothing any more. Fault 17 of
// the operator's tour.
func TestATaskThatIsHandedBackFindsAnotherWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	w := r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: g})
	const tasks = 200
	var twice, gone atomic.Int64
	done := make(chan struct{}, tasks+1)
	ask := func(handle nats.MsgHandler) {
		inbox := r.nc.NewInbox()
		if _, err := r.nc.Subscribe(inbox, handle); err != nil {
			t.Error(err)
		}
		if err := r.nc.PublishRequest(reviewer, inbox, encode(t, newTask(reviewer, "code.review", `{}`))); err != nil {
			t.Error(err)
		}
	}
	ask(func(*nats.Msg) { done <- struct{}{} })
	within(t, "the first task", g.entered)
	for range tasks {
		ask(func(msg *nats.Msg) {
			if e := parse(t, msg.Data); e.Type != envelope.TypeError || errorOf(t, e).Code != envelope.CodeDraining {
				t.Errorf("%s %s", e.Type, e.Payload)
			}
			ask(func(msg *nats.Msg) {
				if msg.Header.Get("Status") == "503" {
					gone.Add(1)
				} else {
					twice.Add(1)
				}
				done <- struct{}{}
			})
		})
	}
	r.ping(reviewer)
	w.stop()
	deadline := time.After(patience)
	for range tasks {
		select {
		case <-done:
		case <-deadline:
			t.Fatalf("%d answers of none, %d of the same worker", gone.Load(), twice.Load())
		}
	}
	g.open()
	if twice.Load() > 0 {
		t.Errorf("%d of %d tasks came to the same worker again", twice.Load(), tasks)
	}
}

// A task that has not begun is sent again, as text too, and finds the worker that has come
// meanwhile.
func TestWhatNobodyHasBegunIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(*mesh.Node, func(int, time.Duration, *envelope.Error)) (string, error){
		"a task": func(n *mesh.Node, told func(int, time.Duration, *envelope.Error)) (string, error) {
			reply, err := n.Send(t.Context(), newTask(reviewer, "code.review", `{"text":"hi"}`), mesh.SendOptions{Retries: 2, OnRetry: told})
			if err != nil {
				return "", err
			}
			return string(reply.Payload), nil
		},
		"text": func(n *mesh.Node, told func(int, time.Duration, *envelope.Error)) (string, error) {
			answer, err := n.AskRetrying(t.Context(), reviewer, "hi", mesh.SendOptions{Retries: 2, OnRetry: told})
			return `{"text":"` + answer + `"}`, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var tries []int
			got, err := send(r.node(mesh.Config{}), func(attempt int, _ time.Duration, why *envelope.Error) {
				tries = append(tries, attempt)
				if why.Code != envelope.CodeNoResponders {
					t.Errorf("tried again because of %v", why)
				}
				r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
			})
			if err != nil || got != `{"text":"hi"}` || len(tries) != 1 {
				t.Errorf("%s, %v, after tries %v", got, err, tries)
			}
		})
	}
}
