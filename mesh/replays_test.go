package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh"
	headers "github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// proven is a mesh whose worker requires signatures and asks the mesh's replay window,
// as a worker does by default where the bucket is there.
type proven struct {
	*durableRig
	k      *keys
	signer *sign.Signer
}

func newProven(t *testing.T) *proven {
	k := newKeys(t)
	return &proven{newDurableRig(t), k, k.signer("ada-1", sign.Ed25519, ada)}
}

func (p *proven) replica() *worker {
	p.t.Helper()
	node := p.lane(mesh.Config{Verifier: sign.Verifier{Ring: p.k.ring, Mode: sign.Required}, Seen: seen.New(p.js(p.nc), p.m, 10*time.Minute)})
	return p.serve(node, mesh.Agent{Handler: echo, Signer: p.k.signer(fmt.Sprint("reviewer-", time.Now().UnixNano()), sign.Ed25519, reviewer)})
}

// queued is aged for the durable lane.
func (p *proven) queued(e *envelope.Envelope, age time.Duration) *envelope.Envelope {
	p.t.Helper()
	return p.aged(durably(p.t, e), age)
}

// durably names the durable lane in a task, for one that is signed by hand.
func durably(t *testing.T, e *envelope.Envelope) *envelope.Envelope {
	t.Helper()
	if err := mesh.BindTask(e, "", true); err != nil {
		t.Fatal(err)
	}
	return e
}

func (p *proven) aged(e *envelope.Envelope, age time.Duration) *envelope.Envelope {
	p.t.Helper()
	e.TS = time.Now().Add(-age).UTC().Format(time.RFC3339Nano)
	return signed(p.t, p.signer, e)
}

// work publishes captured bytes to the durable lane, and waits for what comes of them.
func (p *proven) work(priority string, e *envelope.Envelope, header nats.Header) envelope.Code {
	p.t.Helper()
	to, err := p.m.Work(priority, reviewer)
	if err == nil {
		err = p.nc.PublishMsg(&nats.Msg{Subject: to, Data: encode(p.t, e), Header: header})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = p.lane(mesh.Config{Entity: ada, Verifier: p.k.verifier()}).Result(ctxFor(p.t), reviewer, e.ID, mesh.ResultOptions{Follow: true})
	return codeOf(err)
}

// Finding 2 of the security review: an unsigned header turned the check of ts
// off, for tasks and for commands.
func TestAHeaderMakesNoOldTaskFresh(t *testing.T) {
	t.Parallel()
	p := newProven(t)
	p.replica()
	for _, age := range []time.Duration{3 * 24 * time.Hour, 29 * 24 * time.Hour} {
		for _, header := range []nats.Header{nil, {jetstream.HeaderRetry: {"1"}}, {jetstream.HeaderRetry: {"any text"}}, {headers.HeaderRun: {"none"}}} {
			name := fmt.Sprint(age, " ", header)
			equal(t, "a task, "+name, p.work("normal", p.queued(newTask(reviewer, "code.review", `{}`), age), header), envelope.CodeStale)
			for _, payload := range []string{`{"id":"a-task-of-adas","durable":true}`, `{"corr":"all-of-adas"}`} {
				command := envelope.New(envelope.TypeTask, ada, reviewer, intents.TaskCancel, json.RawMessage(payload))
				equal(t, "a command, "+name, p.work("urgent", p.aged(command, age), header), envelope.CodeStale)
			}
		}
	}
	equal(t, "a fresh one", p.work("normal", p.queued(newTask(reviewer, "code.review", `{}`), 0), nil), envelope.Code(""))
}

// Finding 6 of the security review: a signed task ran once live and once durable, and
// its result went to the reply subject of the second one.
func TestASignedTaskRunsOnOneLane(t *testing.T) {
	t.Parallel()
	p := newProven(t)
	p.replica()
	p.hears(reviewer)
	live := func() *envelope.Envelope { return newTask(reviewer, "code.review", `{"secret":1}`) }
	task := p.aged(live(), 0)
	equal(t, "live", p.request(task).Type, envelope.TypeResult)
	equal(t, "then durable", p.work("normal", task, nil), envelope.CodeRequires)
	equal(t, "durable, of no lane", p.work("normal", p.aged(live(), 0), nil), envelope.CodeRequires)
	equal(t, "durable, of the live lane", p.work("normal", p.aged(requiring(live(), `{"lane":"live"}`), 0), nil), envelope.CodeRequires)
	equal(t, "durable, of another lane", p.work("normal", p.aged(requiring(live(), `{"lane":"fast"}`), 0), nil), envelope.CodeRequires)
	equal(t, "live, of the live lane", p.request(p.aged(requiring(live(), `{"lane":"live"}`), 0)).Type, envelope.TypeResult)

	node := p.lane(mesh.Config{})
	p.serve(node, mesh.Agent{Entity: helper, Handler: echo})
	unsigned := requiring(newTask(helper, "code.review", `{}`), `{"lane":"live"}`)
	p.submit(node, unsigned)
	_, err := p.result(node, unsigned)
	equal(t, "unsigned and durable, of the live lane", codeOf(err), envelope.CodeRequires)

	task = p.queued(live(), 0)
	equal(t, "durable", p.work("normal", task, nil), envelope.Code(""))
	equal(t, "then live", errorOf(t, p.request(task)).Code, envelope.CodeRequires)
}

// The same, where the window has forgotten what was done live before the queue's copy is
// drawn.
func TestACapturedTaskThatIsDrawnLateIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	k := newKeys(t)
	adas := k.signer("ada", sign.Ed25519, ada)
	r := newDurableRig(t)
	var runs atomic.Int32
	const window = 2 * time.Second
	serve := func() *worker {
		node := r.lane(mesh.Config{Verifier: sign.Verifier{Ring: k.ring, Mode: sign.Required}, ReplayWindow: window, Skew: window / 2, Seen: seen.New(r.js(r.nc), r.m, window)})
		return r.serve(node, mesh.Agent{Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
			runs.Add(1)
			return json.RawMessage(`{}`), nil
		})})
	}
	w := serve()
	task := signed(t, adas, newTask(reviewer, "code.review", `{}`))
	equal(t, "live", r.request(task).Type, envelope.TypeResult)
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	if err := r.nc.Publish("aee.work.normal."+reviewer, encode(t, task)); err != nil {
		t.Fatal(err)
	}
	seen, err := r.js(r.nc).Stream(ctxFor(t), "KV_"+jetstream.BucketSeen)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the window has forgotten it", func() bool {
		i, err := seen.Info(ctxFor(t))
		return err == nil && i.State.Msgs == 0
	})
	serve()
	_, err = r.result(r.client(), task)
	equal(t, "durable", codeOf(err), envelope.CodeRequires)
	equal(t, "runs", int(runs.Load()), 1)
}

// Finding 16 of the security review: a signed task ran once in each replica, and once
// more after a restart.
func TestASignedTaskRunsInOneReplicaAndBeforeARestart(t *testing.T) {
	t.Parallel()
	p := newProven(t)
	first := p.replica()
	second := p.replica()
	task := p.aged(newTask(reviewer, "code.review", `{}`), 0)
	equal(t, "once", p.request(task).Type, envelope.TypeResult)
	for range 8 { // whichever replica gets it
		equal(t, "again", errorOf(t, p.request(task)).Code, envelope.CodeReplay)
	}
	for _, w := range []*worker{first, second} {
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
	}
	p.replica()
	equal(t, "after a restart", errorOf(t, p.request(task)).Code, envelope.CodeReplay)
}

// Finding 15 of the security review: by default any sender could fetch any envelope by its id,
// which is on the bus.
func TestAnEnvelopeIsFetchedByItsPartiesOnly(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	adas := k.signer("ada-1", sign.Ed25519, ada)
	r := newRig(t)
	r.serve(r.node(mesh.Config{Verifier: k.verifier()}), mesh.Agent{Handler: echo})
	plain, proven := newTask(reviewer, "code.review", `{"secret":1}`), signed(t, adas, newTask(reviewer, "code.review", `{"secret":2}`))
	for _, task := range []*envelope.Envelope{plain, proven} {
		r.request(task)
	}
	fetch := func(from string, s *sign.Signer, of *envelope.Envelope) bool {
		e := newTask(reviewer, intents.ContextFetch, fmt.Sprintf(`{"id":%q}`, of.ID))
		e.From = from
		if s != nil {
			signed(t, s, e)
		}
		var found struct{ Found bool }
		if err := json.Unmarshal(r.request(e).Payload, &found); err != nil {
			t.Fatal(err)
		}
		return found.Found
	}
	mallorys := k.signer("mallory-1", sign.Ed25519, "human.mallory")
	equal(t, "a stranger", fetch("human.mallory", nil, plain), false)
	equal(t, "a stranger with a key", fetch("human.mallory", mallorys, plain), false)
	equal(t, "a stranger, what is signed", fetch("human.mallory", mallorys, proven), false)
	equal(t, "who says to be its sender, what is signed", fetch(ada, nil, proven), false)
	equal(t, "its sender", fetch(ada, nil, plain), true)
	equal(t, "its sender, what is signed", fetch(ada, adas, proven), true)
}
