package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh"
)

// heldSeen is a replay window that answers for the first tasks at once, and for others when a test
// lets it.
type heldSeen struct {
	first          atomic.Int32
	asked, release chan struct{}
	once           sync.Once
}

func newHeldSeen(t *testing.T, first int32) *heldSeen {
	s := &heldSeen{asked: make(chan struct{}, 100), release: make(chan struct{})}
	s.first.Store(first)
	t.Cleanup(s.open)
	return s
}

func (s *heldSeen) open() { s.once.Do(func() { close(s.release) }) }

func (s *heldSeen) Claim(_ context.Context, _, _, by string) (string, error) {
	if s.first.Add(-1) < 0 {
		s.asked <- struct{}{}
		<-s.release
	}
	return by, nil
}

// handled returns when a worker of reviewer has handled the control messages that came before: it
// handles them one after another, and answers the cancel of a task that it has.
func (r *rig) handled(own *envelope.Envelope) {
	r.t.Helper()
	within(r.t, "the cancel of another task", r.control(cancelOf(own, fmt.Sprintf(`{"id":%q}`, own.ID))))
}

// endOf returns the terminal answer to a task, among the messages to all inboxes.
func endOf(t *testing.T, task *envelope.Envelope, inboxes chan *nats.Msg) *envelope.Envelope {
	t.Helper()
	for {
		msg := within(t, "the answer", inboxes)
		if e, err := envelope.Parse(msg.Data); err == nil && e.ReplyTo == task.ID && e.Type.Terminal() {
			return e
		}
	}
}

// A cancel comes over another subscription than its task, and may overtake it. The task ends with it all
// the same, if its sender may cancel it.
func TestACancelThatOvertakesItsTaskEndsIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task, cancel bool // signed
		from         string
		corr         bool // the cancel names the task by its corr
		caller       string
		ends         bool
	}{
		"unsigned":                    {from: ada, ends: true},
		"signed":                      {task: true, cancel: true, from: ada, ends: true},
		"a signed cancel":             {cancel: true, from: ada, ends: true},
		"of the agent":                {from: reviewer, ends: true},
		"an unsigned one of a signed": {task: true, from: ada},
		"of another sender":           {from: "human.eve"},
		"of this caller's task":       {from: ada, caller: ada, ends: true},
		"of another caller's task":    {from: ada, caller: "human.eve"},
		"by corr":                     {from: ada, corr: true}, // other tasks may have it, and come later
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, k, held := newRig(t), newKeys(t), newHeldSeen(t, 1)
			key := k.signer("ada", sign.Ed25519, ada)
			g := newGate(t)
			r.serve(r.node(mesh.Config{Verifier: k.verifier(), Seen: held, SeenUnsigned: true}), mesh.Agent{Concurrency: 2, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				if string(task.Envelope.Payload) == `{"own":true}` {
					return willing{g}.Handle(ctx, task)
				}
				return json.RawMessage(`{}`), nil
			})})
			own, task := newTask(reviewer, "code.review", `{"own":true}`), newTask(reviewer, "code.review", `{}`)
			if c.task {
				signed(t, key, task)
			}
			r.send(own)
			within(t, "the agent's other task", g.entered)
			inboxes := r.listen("_INBOX.>")
			r.send(task)
			within(t, "the question to the window", held.asked)
			cancel := cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID))
			if c.corr {
				cancel = cancelOf(task, fmt.Sprintf(`{"corr":%q}`, task.Corr))
			}
			if c.caller != "" {
				cancel = cancelOf(task, fmt.Sprintf(`{"id":%q,"from":%q}`, task.ID, c.caller))
			}
			if cancel.From = c.from; c.cancel {
				signed(t, key, cancel)
			}
			r.control(cancel)
			r.handled(own)
			held.open()
			answer := endOf(t, task, inboxes)
			if got := answer.Type == envelope.TypeError && envelope.ErrorOf(answer).Code == envelope.CodeCancelled; got != c.ends {
				t.Errorf("%s: %s", answer.Type, answer.Payload)
			}
		})
	}
}

// The task and its cancel wait for a connection, and are sent at once.
func TestATaskThatWaitedForAConnectionIsOvertakenByItsCancel(t *testing.T) {
	t.Parallel()
	r, k, held := newRig(t), newKeys(t), newHeldSeen(t, 0)
	own := newTask(reviewer, "code.review", `{"own":true}`)
	g, begun := newGate(t), make(chan string, 10)
	r.serve(r.node(mesh.Config{Verifier: k.verifier(), Seen: held}), mesh.Agent{Concurrency: 2, Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		if begun <- task.Envelope.ID; task.Envelope.ID == own.ID {
			return willing{g}.Handle(ctx, task)
		}
		return json.RawMessage(`{}`), nil
	})})
	r.send(own) // it is not signed: the window is not asked
	equal(t, "what begins", within(t, "the handler", begun), own.ID)
	inboxes := r.listen("_INBOX.>")
	line, nc := r.cord(nats.ReconnectWait(time.Hour))
	client := r.nodeOn(nc, mesh.Config{Entity: ada, Signer: k.signer("ada", sign.Ed25519, ada), Verifier: k.verifier()})
	line.sever()
	eventually(t, "the connection is gone", func() bool { return !nc.IsConnected() })
	task := newTask(reviewer, "code.review", `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := client.Send(ctx, requiring(task, `{"timeout_ms":600000}`), mesh.SendOptions{}); codeOf(err) != envelope.CodeTimeout {
		t.Fatalf("Send: %v", err)
	}
	line.mend()
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	within(t, "the question to the window", held.asked)
	settle(t, nc)
	r.handled(own)
	held.open()
	if answer := endOf(t, task, inboxes); answer.Type != envelope.TypeError || envelope.ErrorOf(answer).Code != envelope.CodeCancelled {
		t.Errorf("%s: %s", answer.Type, answer.Payload)
	}
	equal(t, "what else begins", len(begun), 0)
}
