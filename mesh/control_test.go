package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// cancelOf is what the sender of a task sends to end it.
func cancelOf(task *envelope.Envelope, payload string) *envelope.Envelope {
	return envelope.New(envelope.TypeTask, task.From, task.To, intents.TaskCancel, json.RawMessage(payload))
}

// control sends an envelope to aee.ctl and returns where its answers come.
func (r *rig) control(e *envelope.Envelope) chan *nats.Msg {
	r.t.Helper()
	inbox := r.nc.NewInbox()
	answers := r.listen(inbox)
	if err := r.nc.PublishRequest("aee.ctl."+e.To, inbox, encode(r.t, e)); err != nil {
		r.t.Fatal(err)
	}
	settle(r.t, r.nc)
	return answers
}

// A cancel names a task as its schema says: id, not ID.
func TestACancelNamesItsTaskAsTheSchemaSays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: willing{g}})
	task := newTask(reviewer, "code.review", `{}`)
	reply := r.send(task)
	within(t, "the task", g.entered)
	r.control(cancelOf(task, fmt.Sprintf(`{"id":"another-task","ID":%q,"Corr":%q,"reason":"first"}`, task.ID, task.Corr)))
	within(t, "the cancel's result", r.control(cancelOf(task, fmt.Sprintf(`{"id":%q,"reason":"second"}`, task.ID))))
	want := task.ReplyError(envelope.Errorf(envelope.CodeCancelled, "cancelled by human.ada: second"))
	same(t, parse(t, within(t, "the task's end", reply).Data), want)
}

func TestSenderCancelsQueuedAndRunningTasks(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"id", "corr"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g := newGate(t)
			events := r.listen("bus.mesh.task")
			r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: willing{g}})
			running, queued, other := newTask(reviewer, "code.review", `{"n":1}`), newTask(reviewer, "code.review", `{"n":2}`), newTask(reviewer, "code.review", `{"n":3}`)
			a := r.send(running)
			within(t, "the first task", g.entered)
			b, c := r.send(queued), r.send(other)
			r.ping(reviewer)
			for i, task := range []*envelope.Envelope{queued, running} {
				name := task.ID
				if by == "corr" {
					name = task.Corr
				}
				cancel := cancelOf(task, fmt.Sprintf(`{%q:%q,"reason":"changed my mind"}`, by, name))
				same(t, parse(t, within(t, "the cancel's result", r.control(cancel)).Data), cancel.Reply(envelope.TypeResult, json.RawMessage(`{"cancelled":true}`)))
				want := task.ReplyError(envelope.Errorf(envelope.CodeCancelled, "cancelled by human.ada: changed my mind"))
				same(t, parse(t, within(t, "the task's end", []chan *nats.Msg{b, a}[i]).Data), want)
			}
			equal(t, "the next task", string(within(t, "the third task", g.entered).Envelope.Payload), `{"n":3}`)
			g.open()
			equal(t, "the third", parse(t, within(t, "its result", c).Data).Type, envelope.TypeResult)
			r.ping(reviewer)
			empty(t, "after the end", a)
			empty(t, "after the end", b)
			var told []string
			for range 5 { // the last one comes behind the result
				var p struct{ Task string }
				e := parse(t, within(t, "an event", events).Data)
				json.Unmarshal(e.Payload, &p)
				told = append(told, e.Intent+" "+map[string]string{running.ID: "1", queued.ID: "2", other.ID: "3"}[p.Task])
			}
			equal(t, "events", told, []string{"mesh.task.started 1", "mesh.task.failed 2", "mesh.task.failed 1", "mesh.task.started 3", "mesh.task.finished 3"})
		})
	}
}

func TestForeignersCancelDoesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: willing{g}})
	running, queued := newTask(reviewer, "code.review", `{}`), newTask(reviewer, "code.review", `{}`)
	a := r.send(running)
	within(t, "the first task", g.entered)
	b := r.send(queued)
	for _, task := range []*envelope.Envelope{running, queued} {
		foreign := cancelOf(task, fmt.Sprintf(`{"id":%q,"corr":%q}`, task.ID, task.Corr))
		foreign.From = "human.eve"
		answer := r.control(foreign)
		r.ping(reviewer)
		empty(t, "a foreigner's cancel", answer)
	}
	g.open()
	equal(t, "running", parse(t, within(t, "a result", a).Data).Type, envelope.TypeResult)
	equal(t, "queued", parse(t, within(t, "a result", b).Data).Type, envelope.TypeResult)
}

// Every client that reads ids on the bus can claim any from; a signed task ends by a
// signed command only.
func TestUnsignedCancelDoesNotEndSignedTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	keys := newKeys(t)
	signer := keys.signer("ada", sign.Ed25519, ada)
	r.serve(r.node(mesh.Config{Verifier: keys.verifier()}), mesh.Agent{Handler: willing{g}})
	task := newTask(reviewer, "code.review", `{}`)
	answers := r.send(signed(t, signer, task))
	within(t, "the task", g.entered)
	for _, from := range []string{ada, reviewer} {
		cancel := cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID))
		cancel.From = from
		r.control(cancel)
	}
	r.ping(reviewer)
	empty(t, "after the unsigned cancel", answers)
	r.control(signed(t, signer, cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID))))
	equal(t, "after the signed cancel", errorOf(t, parse(t, within(t, "the task's end", answers).Data)).Code, envelope.CodeCancelled)
}

// Every replica hears a control message, so that no replica's hearing may
// count as the first for all of them.
func TestCancelReachesTheReplicaThatHasTheTask(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]mesh.Seen{"window per process": nil, "window per mesh": &memSeen{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g := newGate(t)
			alerts := r.listen("bus.mesh.alert")
			one := r.node(mesh.Config{Seen: shared, SeenUnsigned: true})
			for _, node := range []*mesh.Node{one, one, r.node(mesh.Config{Seen: shared, SeenUnsigned: true}), r.node(mesh.Config{Seen: shared, SeenUnsigned: true})} {
				r.serve(node, mesh.Agent{Handler: willing{g}})
			}
			for range 12 {
				task := newTask(reviewer, "code.review", `{}`)
				answers := r.send(task)
				within(t, "the task", g.entered)
				r.control(cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID)))
				equal(t, "code", errorOf(t, parse(t, within(t, "the task's end", answers).Data)).Code, envelope.CodeCancelled)
			}
			empty(t, "alerts", alerts)
		})
	}
}

func TestReplayedCancelIsRefusedByTheReplicaThatHeardIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	alerts := r.listen("bus.mesh.alert")
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: willing{g}})
	task := newTask(reviewer, "code.review", `{}`)
	first := r.send(task)
	within(t, "the task", g.entered)
	cancel := cancelOf(task, fmt.Sprintf(`{"corr":%q}`, task.Corr))
	r.control(cancel)
	within(t, "the end", first)
	again := newTask(reviewer, "code.review", `{}`)
	again.Corr = task.Corr
	second := r.send(again)
	within(t, "the second task", g.entered)
	r.control(cancel)
	equal(t, "alert", alertOf(t, parse(t, within(t, "an alert", alerts).Data)).Code, envelope.CodeReplay)
	r.ping(reviewer)
	empty(t, "the second task", second)
}

func TestControlMessagesThatAreNoneAreIgnored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: willing{g}})
	task := newTask(reviewer, "code.review", `{}`)
	answers := r.send(task)
	within(t, "the task", g.entered)
	cancel := func(change func(*envelope.Envelope)) *envelope.Envelope {
		e := cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID))
		change(e)
		return e
	}
	for name, e := range map[string]*envelope.Envelope{
		"event":        cancel(func(e *envelope.Envelope) { e.Type = envelope.TypeEvent }),
		"other intent": cancel(func(e *envelope.Envelope) { e.Intent = "mesh.task.pause" }),
		"plain task":   cancel(func(e *envelope.Envelope) { e.Intent = "code.review" }),
	} {
		answer := r.control(e)
		r.ping(reviewer)
		empty(t, name, answer)
	}
	wrong := cancel(func(e *envelope.Envelope) { e.To = "agent.other" })
	r.nc.Publish("aee.ctl."+reviewer, encode(t, wrong))
	for _, body := range []string{"", "{", "[]", "\xff\xfe"} {
		r.nc.PublishRequest("aee.ctl."+reviewer, r.nc.NewInbox(), []byte(body))
	}
	bad := cancel(func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{"id":7}`) })
	equal(t, "a cancel that says nothing", errorOf(t, parse(t, within(t, "an error", r.control(bad)).Data)).Code, envelope.CodeInputSchema)
	r.ping(reviewer)
	empty(t, "the task", answers)
	// On the live lane one replica would hear it; say so.
	equal(t, "on the live lane", errorOf(t, r.request(cancel(func(*envelope.Envelope) {}))).Code, envelope.CodeUnexpectedType)
}

func TestCancelledReasonIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: willing{g}})
	task := newTask(reviewer, "code.review", `{}`)
	answers := r.send(task)
	within(t, "the task", g.entered)
	r.control(cancelOf(task, fmt.Sprintf(`{"id":%q,"reason":%q}`, task.ID, strings.Repeat("x", 900<<10))))
	if n := len(within(t, "the end", answers).Data); n > 4096 {
		t.Errorf("the error has %d bytes", n)
	}
}

func TestContextCancelOfSendCancelsRemotely(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"", ada} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("from %q stream %t", from, stream), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				g := newGate(t)
				ended := make(chan error, 1)
				r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
					g.entered <- task
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return nil, ctx.Err()
				})})
				client := r.node(mesh.Config{})
				task := newTask(reviewer, "code.review", `{}`)
				task.From = client.Entity()
				if from != "" {
					task.From = from
				}
				ctx, cancel := context.WithCancel(t.Context())
				sent := make(chan error, 1)
				opts := mesh.SendOptions{}
				if stream {
					opts.OnStream = func(*envelope.Envelope) error { return nil }
				}
				go func() {
					_, err := client.Send(ctx, task, opts)
					sent <- err
				}()
				within(t, "the task", g.entered)
				cancel()
				equal(t, "what Send says", codeOf(within(t, "Send", sent)), envelope.CodeCancelled)
				equal(t, "what the handler hears", codeOf(within(t, "the handler's end", ended)), envelope.CodeCancelled)
			})
		}
	}
}

func TestNoCancelLeavesTheTaskRunning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	finished := r.listen("bus.mesh.task")
	control := r.listen("aee.ctl.>")
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: willing{g}})
	client := r.node(mesh.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		_, err := client.Send(ctx, newTask(reviewer, "code.review", `{}`), mesh.SendOptions{NoCancel: true})
		sent <- err
	}()
	within(t, "the task", g.entered)
	cancel()
	equal(t, "what Send says", codeOf(within(t, "Send", sent)), envelope.CodeCancelled)
	g.open()
	within(t, "started", finished)
	equal(t, "event", parse(t, within(t, "finished", finished).Data).Intent, intents.TaskFinished)
	empty(t, "control", control)
}

func TestErrorFromOnStreamGivesTheTaskUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ended := make(chan error, 1)
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		task.EmitText("one")
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	})})
	client := r.node(mesh.Config{Entity: ada})
	enough := errors.New("enough")
	_, err := client.Send(t.Context(), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{OnStream: func(*envelope.Envelope) error { return enough }})
	if !errors.Is(err, enough) {
		t.Errorf("Send: %v", err)
	}
	equal(t, "what the handler hears", codeOf(within(t, "the handler's end", ended)), envelope.CodeCancelled)
}

// memSeen is a replay window that several nodes of a test share.
type memSeen struct {
	mu   sync.Mutex
	seen map[string]string
	err  error
}

func (s *memSeen) Claim(_ context.Context, entity, id, by string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return "", s.err
	}
	if s.seen == nil {
		s.seen = map[string]string{}
	}
	key := entity + " " + id
	if s.seen[key] == "" {
		s.seen[key] = by
	}
	return s.seen[key], nil
}

// alert is the payload of an event on bus.mesh.alert.
type alert struct {
	Code       envelope.Code `json:"code"`
	Message    string        `json:"message"`
	ID         string        `json:"id"`
	Sender     string        `json:"sender"`
	Intent     string        `json:"intent"`
	Instance   string        `json:"instance"`
	Suppressed int           `json:"suppressed"`
}

func alertOf(t testing.TB, e *envelope.Envelope) (a alert) {
	t.Helper()
	equal(t, "where an alert goes", [3]string{string(e.Type), e.To, e.Intent}, [3]string{"event", "bus.mesh.alert", intents.AlertRaised})
	if err := json.Unmarshal(e.Payload, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// keys is a ring that a test fills.
type keys struct {
	t    *testing.T
	ring *sign.Ring
}

func newKeys(t *testing.T) *keys { return &keys{t, &sign.Ring{}} }

func (k *keys) signer(kid string, alg sign.Alg, from ...string) *sign.Signer {
	k.t.Helper()
	s, key, err := sign.NewKey(kid, alg, from...)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.ring.Put(sign.Local, key); err != nil {
		k.t.Fatal(err)
	}
	return s
}

// change changes what is known of a key.
func (k *keys) change(kid string, change func(*sign.Key)) {
	k.t.Helper()
	key, known := k.ring.Lookup(kid)
	change(&key)
	if err := k.ring.Put(sign.Local, key); !known || err != nil {
		k.t.Fatal(known, err)
	}
}

func (k *keys) verifier() sign.Verifier { return sign.Verifier{Ring: k.ring} }

func signed(t testing.TB, s *sign.Signer, e *envelope.Envelope) *envelope.Envelope {
	t.Helper()
	if err := s.Sign(e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestCancelIsHeardWhileTheWorkerDrains(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := newGate(t)
	w := r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: willing{g}})
	task := newTask(reviewer, "code.review", `{}`)
	a := r.send(task)
	within(t, "the task", g.entered)
	w.stop()
	// New tasks are not taken any more, so the drain has begun.
	eventually(t, "the live lane to close", func() bool {
		_, err := r.nc.Request(reviewer, encode(t, newTask(reviewer, intents.StatusPing, `{}`)), time.Second)
		return errors.Is(err, nats.ErrNoResponders)
	})
	cancel := cancelOf(task, fmt.Sprintf(`{"id":%q}`, task.ID))
	equal(t, "cancelled", string(parse(t, within(t, "the cancel's result", r.control(cancel)).Data).Payload), `{"cancelled":true}`)
	equal(t, "the task", envelope.ErrorOf(parse(t, within(t, "the task's end", a).Data)).Code, envelope.CodeCancelled)
	equal(t, "drained", within(t, "Serve to return", w.done), nil)
}
