package mesh_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestMain(m *testing.M) {
	natstest.VerifyMain(natstest.AtOnce(m, 24))
}

const patience = natstest.Patience

const (
	ada      = "human.ada"
	reviewer = "agent.reviewer"
)

// rig is a server, and a plain NATS client that sees all of it.
type rig struct {
	t   *testing.T
	srv *natsd.Server
	nc  *nats.Conn
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigWith(t, natsd.Config{})
}

func rigWith(t *testing.T, cfg natsd.Config) *rig {
	t.Helper()
	srv := natstest.Run(t, cfg)
	return &rig{t, srv, natstest.Conn(t, srv)}
}

// node makes a node on a connection of its own.
func (r *rig) node(cfg mesh.Config) *mesh.Node {
	r.t.Helper()
	return r.nodeOn(natstest.Conn(r.t, r.srv), cfg)
}

func (r *rig) nodeOn(nc *nats.Conn, cfg mesh.Config) *mesh.Node {
	r.t.Helper()
	node, err := mesh.New(nc, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return node
}

// worker is an agent that is served.
type worker struct {
	t    *testing.T
	node *mesh.Node
	stop context.CancelFunc
	done chan error
}

// serve serves an agent until the test ends, and returns when it can be reached.
func (r *rig) serve(node *mesh.Node, agent mesh.Agent) *worker {
	r.t.Helper()
	if agent.Entity == "" {
		agent.Entity = reviewer
	}
	joined := r.listen(dot(node.Subjects().Prefix()) + "bus.mesh.agent")
	w, late := begin(r.t, node, agent), time.After(patience)
	for {
		select {
		case err := <-w.done:
			r.t.Fatalf("Serve returned at once: %v", err)
		case msg := <-joined:
			if e := parse(r.t, msg.Data); e.From == agent.Entity && e.Intent == intents.AgentJoined {
				return w
			}
		case <-late:
			r.t.Fatal("the agent did not join")
		}
	}
}

func dot(prefix string) string {
	if prefix == "" {
		return ""
	}
	return prefix + "."
}

func begin(t *testing.T, node *mesh.Node, agent mesh.Agent) *worker {
	agent.Steers = true // TestSteeringWithoutTurns of package agents tests those that are not
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{t: t, node: node, stop: cancel, done: make(chan error, 1)}
	go func() { w.done <- node.Serve(ctx, agent); close(w.done) }()
	t.Cleanup(func() {
		cancel()
		if g, ok := agent.Handler.(interface{ open() }); ok {
			g.open()
		}
		within(t, "Serve to return", w.done)
	})
	return w
}

// end stops the worker and returns what Serve returned.
func (w *worker) end() error {
	w.t.Helper()
	w.stop()
	return within(w.t, "Serve to return", w.done)
}

// within waits for a value.
func within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return natstest.Within(t, what, c)
}

// eventually polls until what holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	natstest.Eventually(t, what, holds)
}

// listen subscribes; what comes afterwards is in the channel.
func (r *rig) listen(subject string) chan *nats.Msg {
	r.t.Helper()
	return listenOn(r.t, r.nc, subject)
}

func listenOn(t testing.TB, nc *nats.Conn, subject string) chan *nats.Msg {
	t.Helper()
	c := make(chan *nats.Msg, 65536)
	if _, err := nc.ChanSubscribe(subject, c); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return c
}

// settle returns when all that was sent on nc, and answered on it at once, is
// where it belongs.
func settle(t testing.TB, nc *nats.Conn) {
	t.Helper()
	if err := nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
}

// ping makes sure that an agent has dealt with what came before.
func (r *rig) ping(entity string) {
	r.t.Helper()
	e := newTask(entity, intents.StatusPing, `{}`)
	if got := r.request(e); got.Type != envelope.TypeResult {
		r.t.Fatalf("ping of %s: %s", entity, got.Payload)
	}
}

// newTask returns a task of ada's. Its corr is not its id, as in a workflow that has begun: what
// takes one for the other is noticed.
func newTask(to, intent, payload string) *envelope.Envelope {
	e := envelope.New(envelope.TypeTask, ada, to, intent, json.RawMessage(payload))
	e.Corr = envelope.NewID()
	return e
}

func requiring(e *envelope.Envelope, requires string) *envelope.Envelope {
	e.Requires = json.RawMessage(requires)
	return e
}

// request sends an envelope with plain NATS and returns the first answer.
func (r *rig) request(e *envelope.Envelope) *envelope.Envelope {
	r.t.Helper()
	return parse(r.t, r.requestRaw(e.To, encode(r.t, e), nil).Data)
}

func (r *rig) requestRaw(to string, body []byte, header nats.Header) *nats.Msg {
	r.t.Helper()
	msg, err := r.nc.RequestMsg(&nats.Msg{Subject: to, Data: body, Header: header}, patience)
	if err != nil {
		r.t.Fatalf("request to %s: %v", to, err)
	}
	return msg
}

// send publishes an envelope whose answers go to the returned channel.
func (r *rig) send(e *envelope.Envelope) chan *nats.Msg {
	r.t.Helper()
	inbox := r.nc.NewInbox()
	answers := r.listen(inbox)
	if err := r.nc.PublishRequest(e.To, inbox, encode(r.t, e)); err != nil {
		r.t.Fatal(err)
	}
	settle(r.t, r.nc)
	return answers
}

func encode(t testing.TB, e *envelope.Envelope) []byte {
	t.Helper()
	data, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t testing.TB, data []byte) *envelope.Envelope {
	t.Helper()
	e, err := envelope.Parse(data)
	if err != nil {
		t.Fatalf("%v in %q", err, data)
	}
	return e
}

// errorOf is what an error envelope says.
func errorOf(t testing.TB, e *envelope.Envelope) *envelope.Error {
	t.Helper()
	if e.Type != envelope.TypeError {
		t.Fatalf("got a %s, not an error: %s", e.Type, e.Payload)
	}
	return envelope.ErrorOf(e)
}

func codeOf(err error) envelope.Code {
	var e *envelope.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// same compares what was made of a task with what should be, but for the id
// and the time, which only must be there.
func same(t testing.TB, got, want *envelope.Envelope) {
	t.Helper()
	g := *got
	if len(g.ID) != 26 || g.ID == want.ID {
		t.Errorf("id %q is no fresh ULID", g.ID)
	}
	if _, ok := g.Time(); !ok {
		t.Errorf("ts %q is no time", g.TS)
	}
	g.ID, g.TS = want.ID, want.TS
	if a, b := canonical(t, encode(t, &g)), canonical(t, encode(t, want)); a != b {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

func canonical(t testing.TB, raw []byte) string {
	t.Helper()
	b, err := envelope.Canonical(raw)
	if err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	return string(b)
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, show(got), show(want))
	}
}

func show(v any) string {
	if raw, ok := v.(json.RawMessage); ok {
		return string(raw)
	}
	return strings.TrimSpace(fmt.Sprintf("%+v", v))
}

// empty fails if anything is in a channel.
func empty(t testing.TB, what string, c <-chan *nats.Msg) {
	t.Helper()
	select {
	case msg := <-c:
		t.Errorf("%s: got %q with %v", what, msg.Data, msg.Header)
	default:
	}
}

// drained is what has come so far.
func drained(c <-chan *nats.Msg) (out []*nats.Msg) {
	for {
		select {
		case msg := <-c:
			out = append(out, msg)
		default:
			return out
		}
	}
}

// echo answers with what the task is about.
var echo = mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
	return task.Input(), nil
})

// gate is a handler whose tasks wait until the test lets them go.
type gate struct {
	entered chan *mesh.Task // each task as it begins
	release chan struct{}   // one receive lets one task go on; close lets all
	once    sync.Once
}

func newGate(t *testing.T) *gate {
	g := &gate{entered: make(chan *mesh.Task, 1024), release: make(chan struct{})}
	t.Cleanup(g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.release) }) }

// Handle ignores ctx: the stubborn kind of handler.
func (g *gate) Handle(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
	g.entered <- task
	<-g.release
	return task.Envelope.Payload, nil
}

// willing is a gate whose tasks also go when their context ends.
type willing struct{ *gate }

func (g willing) Handle(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
	g.entered <- task
	select {
	case <-g.release:
		return task.Envelope.Payload, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type syncBuffer = natstest.Buffer

func textLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func goexit() { runtime.Goexit() }

// untilBegun does something with more time each time, until what it did has begun
// before that was over: a busy machine may take it away before anything happens.
func untilBegun(do func(timeout time.Duration) (begun bool)) {
	for timeout := 20 * time.Millisecond; !do(timeout); timeout *= 2 {
	}
}

// timeout is a requires with so much time.
func timeout(d time.Duration, more string) string {
	return fmt.Sprintf(`{"timeout_ms":%d%s}`, d.Milliseconds(), more)
}

// streamFive emits five chunks and answers with the payload.
func streamFive(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
	for range 5 {
		if err := task.EmitText("chunk"); err != nil {
			return nil, err
		}
	}
	return task.Envelope.Payload, nil
}

// quiet is a log for servers of which a test cuts connections.
var quiet = log.New(io.Discard, "", 0)
