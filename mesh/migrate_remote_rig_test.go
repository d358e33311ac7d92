package mesh_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// A voyage is a run that goes from one NATS system, berlin, to another, paris.
type voyage struct {
	t             *testing.T
	berlin, paris *durableRig
	source        *author
	target        *author
	sourceAt      *points
	sourceNC      *nats.Conn
	targetNC      *nats.Conn
	client        *mesh.Node // in berlin
	task          *envelope.Envelope
	heard         *hearing
	server        *httptest.Server
	gate          *httpGate
	receiverAt    func(phase state.Phase, done bool)
	trust         func(url string) (*handoff.Client, error)
	signer        *sign.Signer
	berlinKeys    *sign.Ring
	parisKeys     *sign.Ring
	targetEntity  string
	sourceHandler mesh.Handler // nil: source; it tells source.begun as well
	targetHandler mesh.Handler
	sweep         time.Duration // of the source's workers; 0: they sweep nothing
	sourceVersion string        // of the agent
	targetVersion string
	agentID       string // of both; "": the one that stands for the entity
	parisMode     sign.Mode
	cbor          bool            // the task is sent as CBOR
	payload       string          // of the task; "": {}
	limits        envelope.Limits // of the nodes in paris
}

// httpGate lets a test cut the way to the receiver.
type httpGate struct {
	next http.Handler
	down atomic.Bool
	mu   sync.Mutex
	cut  func(r *http.Request) bool                        // drop the connection of this one
	lie  func(w http.ResponseWriter, r *http.Request) bool // answers in the receiver's place
}

func (g *httpGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	cut, lie := g.cut, g.lie
	g.mu.Unlock()
	if g.down.Load() || cut != nil && cut(r) {
		panic(http.ErrAbortHandler)
	}
	if lie == nil || !lie(w, r) {
		g.next.ServeHTTP(w, r)
	}
}

func (g *httpGate) cutting(f func(*http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = f
}

// answering has the gate answer every request in the receiver's place.
func (g *httpGate) answering(status int, body string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lie = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

func newKey(t *testing.T, kid string, rings ...*sign.Ring) *sign.Signer {
	t.Helper()
	return newKeyFor(t, kid, reviewer, rings...)
}

func newKeyFor(t *testing.T, kid, from string, rings ...*sign.Ring) *sign.Signer {
	t.Helper()
	s, key, err := sign.NewKey(kid, sign.Ed25519, from)
	if err != nil {
		t.Fatal(err)
	}
	for _, ring := range rings {
		if err := ring.Put(sign.Local, key); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// shortLeases is for a test that waits until the lease of a message ends.
func shortLeases(v *voyage) {
	v.berlin.shortLeases()
	v.paris.shortLeases()
}

func newVoyage(t *testing.T, change ...func(*voyage)) *voyage {
	t.Helper()
	v := &voyage{
		t: t, berlin: newDurableRig(t), paris: newDurableRig(t), source: newAuthor("source"), target: newAuthor("target"),
		sourceAt: newPoints(t), berlinKeys: new(sign.Ring), parisKeys: new(sign.Ring),
	}
	v.signer = newKey(t, "berlin-1", v.berlinKeys, v.parisKeys)
	for _, f := range change {
		f(v)
	}
	v.serveParis()
	v.serveBerlin(v.source, v.sourceAt)
	v.client = v.berlin.lane(mesh.Config{Entity: ada, Verifier: sign.Verifier{Ring: v.berlinKeys}})
	v.task = requiring(newTask(reviewer, "code.review", cmp.Or(v.payload, `{}`)), `{"stream":true}`)
	v.heard = &hearing{done: make(chan struct{})}
	go func() {
		defer close(v.heard.done)
		_, v.heard.reply, v.heard.err = v.client.Perform(ctxFor(t), v.task, mesh.SubmitOptions{CBOR: v.cbor}, mesh.ResultOptions{OnStream: v.heard.hear})
	}()
	within(t, "the run to begin", v.source.begun)
	return v
}

func orElse(h mesh.Handler, a *author) mesh.Handler {
	if h != nil {
		return h
	}
	return a
}

// serveBerlin serves a worker of the source's.
func (v *voyage) serveBerlin(a *author, at *points) {
	v.t.Helper()
	nc := natstest.Conn(v.t, v.berlin.srv)
	if a == v.source {
		v.sourceNC = nc
	}
	cfg := mesh.Config{Drain: time.Millisecond, Signer: v.signer, Verifier: sign.Verifier{Ring: v.berlinKeys}}
	v.berlin.serve(v.berlin.laneOn(nc, cfg, observing(at), func(d *mesh.Durable) {
		d.Platform = "berlin"
		if v.sweep > 0 {
			d.Sweep = v.sweep
		}
		d.Remotes = func(url string) (*handoff.Client, error) {
			if v.trust != nil {
				return v.trust(url)
			}
			return handoff.NewClient(url, handoff.ClientOptions{TLS: v.trusting(), Idle: 5 * time.Second})
		}
	}), mesh.Agent{Handler: orElse(v.sourceHandler, a), AgentID: v.agentID, Version: v.sourceVersion})
}

func (v *voyage) trusting() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(v.server.Certificate())
	return &tls.Config{RootCAs: roots}
}

// serveParis serves the agent and a receiver at the target.
func (v *voyage) serveParis() {
	v.t.Helper()
	signer := newKey(v.t, "paris-1", v.parisKeys) // which berlin does not know
	v.targetNC = natstest.Conn(v.t, v.paris.srv)
	v.paris.serve(v.paris.laneOn(v.targetNC, mesh.Config{Drain: time.Millisecond, Signer: signer, Verifier: sign.Verifier{Ring: v.parisKeys, Mode: v.parisMode}, Limits: v.limits}), mesh.Agent{Entity: v.targetEntity, Handler: orElse(v.targetHandler, v.target), Concurrency: 4, AgentID: v.agentID, Version: v.targetVersion})
	nc := natstest.Conn(v.t, v.paris.srv)
	node := v.paris.laneOn(nc, mesh.Config{Entity: "service.handoff", Verifier: sign.Verifier{Ring: v.parisKeys, Mode: v.parisMode}, Limits: v.limits})
	receiver, err := node.Receiver(mesh.ReceiverOptions{
		Platform: "paris", Handoffs: jetstream.NewHandoffs(v.paris.js(nc), v.paris.m),
		Observe: func(_ context.Context, phase state.Phase, done bool) {
			if v.receiverAt != nil {
				v.receiverAt(phase, done)
			}
		},
	})
	if err != nil {
		v.t.Fatal(err)
	}
	v.gate = &httpGate{next: handoff.Handler(receiver, handoff.HandlerOptions{Beat: 50 * time.Millisecond})}
	v.server = httptest.NewUnstartedServer(v.gate)
	v.server.Config.ErrorLog = quiet
	v.server.StartTLS()
	v.t.Cleanup(v.server.Close)
}

// write lets the source write so many words, and waits for them.
func (v *voyage) write(n int) {
	v.t.Helper()
	v.source.speak(n)
	for range n {
		within(v.t, "a word", v.source.told)
	}
}

func (v *voyage) command(cmd intents.Command) (intents.CommandResult, error) {
	return v.client.Command(ctxFor(v.t), reviewer, cmd)
}

func (v *voyage) move() {
	v.t.Helper()
	result, err := v.command(intents.MigrateTask{Target: intents.Target{ID: v.task.ID}, To: v.server.URL})
	if err != nil || !result.Migrating {
		v.t.Fatalf("migrate: %+v, %v", result, err)
	}
}

// finish lets all participants write to the end, and compares what the caller in berlin received
// with what it should have received. by is the platform that ended the run; "": either.
func (v *voyage) finish(by string) {
	v.t.Helper()
	v.source.speak(100)
	v.target.speak(100)
	go func() {
		for {
			select {
			case c := <-v.target.tools:
				close(c)
			case c := <-v.source.tools:
				close(c)
			case <-v.heard.done:
				return
			}
		}
	}()
	within(v.t, "the reply", v.heard.done)
	if v.heard.err != nil {
		v.t.Fatalf("the reply: %v", v.heard.err)
	}
	if by != "" {
		equal(v.t, "by", string(v.heard.reply.Payload), `{"by":"`+by+`"}`)
	}
	equal(v.t, "text", v.heard.text, whole())
	for i, seq := range v.heard.seqs {
		if seq != fmt.Sprint(i+1) {
			v.t.Fatalf("numbers %v", v.heard.seqs)
		}
	}
	v.berlin.stored(v.task, v.heard.reply)
	v.berlin.drainedQueue()
	v.paris.drainedQueue()
	terminal := 0
	for _, e := range v.berlin.replies(v.task) {
		if e.Type != envelope.TypeStream {
			terminal++
		}
		if id, err := v.berlinKeys.Verify(e, time.Now()); err != nil || !id.Signed {
			v.t.Errorf("a reply that nobody in berlin can verify: %v", err)
		}
	}
	equal(v.t, "terminal replies", terminal, 1)
	equal(v.t, "status in berlin", v.berlin.record(v.task).Doc.Status, aaif.RunCompleted)
}

func (v *voyage) inParis() *state.Checkpoint {
	rec, err := jetstream.NewStates(v.paris.js(v.paris.nc), v.paris.m).Get(ctxFor(v.t), state.ID{Entity: reviewer, Run: state.RunID(reviewer, v.task.ID)})
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		v.t.Fatal(err)
	}
	c, err := state.Codec{}.Decode(rec.Data)
	if err != nil {
		v.t.Fatal(err)
	}
	return c
}

func (v *voyage) handoffStore() state.Store {
	return jetstream.NewHandoffs(v.paris.js(v.paris.nc), v.paris.m)
}

// handoffs are the phases of the handoffs that paris knows.
func (v *voyage) handoffs() string {
	var all []string
	for rec, err := range v.handoffStore().List(ctxFor(v.t), "") {
		if err != nil {
			v.t.Fatal(err)
		}
		c, err := state.Codec{}.Decode(rec.Data)
		if err != nil {
			v.t.Fatal(err)
		}
		all = append(all, string(c.Mesh.Migration.Phase))
	}
	return strings.Join(all, " ")
}

// known reports whether paris has refused the handoff.
func (v *voyage) known() bool {
	status, err := v.receiver().Get(ctxFor(v.t), v.berlin.record(v.task).Mesh.Migration.ID)
	return err == nil && status.Phase == state.PhaseRefused
}
