package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

var sayOK = mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
	return json.RawMessage(`{"ok":true}`), nil
})

// config hosts Go handlers under these entities, on the live lane.
func config(srv *natsd.Server, entities ...string) worker.Config {
	cfg := worker.Config{NATS: natsconn.Config{URL: srv.ClientURL()}, Durable: worker.Off, Journal: worker.Off, Replay: worker.Off,
		Node: mesh.Config{Drain: time.Second, Heartbeat: -1}}
	for _, entity := range entities {
		cfg.Agents = append(cfg.Agents, worker.Agent{As: entity, Handler: sayOK})
	}
	return cfg
}

func newWorker(t testing.TB, cfg worker.Config) *worker.Worker {
	t.Helper()
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// start runs a worker and returns once it serves all its agents. The returned
// function stops it.
func start(t testing.TB, cfg worker.Config) (w *worker.Worker, stop func()) {
	t.Helper()
	ready, ended := make(chan struct{}), make(chan error, 1)
	cfg.Hooks.Ready = func([]string) { close(ready) }
	w = newWorker(t, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatal(err)
	}
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return w, stop
}

func client(t testing.TB, srv *natsd.Server) *mesh.Node {
	t.Helper()
	node, err := mesh.New(natstest.Conn(t, srv), mesh.Config{Entity: "human.ada"})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// A worker serves all its agents, and ends without an error when its context
// ends.
func TestAWorkerServesAndDrains(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	w, stop := start(t, config(srv, "agent.one", "agent.two"))
	for _, entity := range []string{"agent.one", "agent.two"} {
		task := envelope.New(envelope.TypeTask, "human.ada", entity, "agent.ask", nil)
		if _, err := client(t, srv).Send(t.Context(), task, mesh.SendOptions{}); err != nil {
			t.Errorf("%s: %v", entity, err)
		}
	}
	var names []string
	for _, c := range w.Health() {
		if names = append(names, c.Name); !c.OK {
			t.Errorf("%+v", c)
		}
	}
	if got := strings.Join(names, " "); got != "nats agent.one agent.two" {
		t.Errorf("the checks are of %s", got)
	}
	stop()
}

// One agent that cannot be served ends the worker, with its error.
func TestAWorkerEndsWithItsAgents(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"", write(t, "echo.yaml", echo)} {
		cfg := config(natstest.Run(t, natsd.Config{}), "agent.one")
		cfg.Agents = append(cfg.Agents, worker.Agent{As: "agent.wrong", File: file, Handler: mesh.HandlerFunc(nil)})
		if err := newWorker(t, cfg).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "a handler is needed") {
			t.Errorf("run: %v", err)
		}
	}
}

// A worker whose subscriptions are refused ends.
func TestAWorkerEndsWhenASubscriptionIsRefused(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{{Name: "w", Password: "w",
		Permissions: &natsd.Permissions{Subscribe: natsd.Subjects{Allow: []string{"$SRV.>"}}}}}})
	cfg := config(srv, "agent.one")
	cfg.NATS.User, cfg.NATS.Password = "w", "w"
	var denied *worker.DeniedError
	if err := newWorker(t, cfg).Run(t.Context()); !errors.Is(err, nats.ErrPermissionViolation) || !errors.As(err, &denied) || denied.Entity != "agent.one" {
		t.Errorf("run: %v", err)
	}
}

func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatal("waited a minute for " + what)
	}
	return v
}

// A subscription of the application, on a connection that it shares with the worker, is denied again
// when the connection is made again. The worker goes on.
func TestADeniedSubscriptionOfTheApplicationIsNotTheWorkers(t *testing.T) {
	t.Parallel()
	foreign := []string{"$SRV.PING.orders", "shop.agent.one"}
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{{Name: "w", Password: "w",
		Permissions: &natsd.Permissions{Subscribe: natsd.Subjects{Allow: []string{">"}, Deny: foreign}}}}})
	nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo("w", "w"), nats.ReconnectWait(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for _, s := range foreign {
		if _, err := nc.SubscribeSync(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	cfg := config(srv, "agent.one")
	ready, ended := make(chan struct{}), make(chan error, 1)
	cfg.Hooks.Ready = func([]string) { close(ready) }
	w := newWorker(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { ended <- w.Serve(ctx, nc) }()
	await(t, "the worker", ready)
	denials := make(chan denial.Denial, 16)
	defer denial.Listen(nc, func(d denial.Denial) { denials <- d })()
	for range 2 { // at the second one the worker has been told of the first
		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		for range foreign {
			await(t, "a denial", denials)
		}
	}
	stop()
	if err := await(t, "Serve", ended); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// Workers that serve one after the other on one connection leave nothing on it that grows.
func TestServeLeavesNothingOnItsConnection(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	apply(t, jsOf(t, srv))
	var lane mesh.Durable
	lane.SetStores(jetstream.Open(jsOf(t, srv), subject.Map{}))
	sender, err := mesh.New(natstest.Conn(t, srv), mesh.Config{Entity: "human.ada", Durable: &lane})
	if err != nil {
		t.Fatal(err)
	}
	nc := natstest.Conn(t, srv)
	serve := func() int {
		cfg := config(srv, "agent.one", "agent.two")
		cfg.Durable = worker.On
		cfg.Agents[0].Handler = mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			a, err := task.Call(ctx, mesh.Call{To: "agent.two", Key: "one", Payload: task.Envelope.Payload})
			if err != nil {
				return nil, err
			}
			return a.Envelope.Payload, nil
		})
		ready, ended := make(chan struct{}), make(chan error, 1)
		cfg.Hooks.Ready = func([]string) { close(ready) }
		w := newWorker(t, cfg)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- w.Serve(ctx, nc) }()
		await(t, "the worker", ready)
		task := func() *envelope.Envelope {
			return envelope.New(envelope.TypeTask, "human.ada", "agent.one", "agent.ask", json.RawMessage(`{"text":"hi"}`))
		}
		if _, err := sender.Send(t.Context(), task(), mesh.SendOptions{}); err != nil {
			t.Error(err)
		}
		if _, _, err := sender.Perform(t.Context(), task(), mesh.SubmitOptions{}, mesh.ResultOptions{}); err != nil {
			t.Error(err)
		}
		stop()
		if err := await(t, "Serve", ended); err != nil {
			t.Error(err)
		}
		return nc.NumSubscriptions()
	}
	first := serve()
	for range 3 {
		if n := serve(); n != first {
			t.Errorf("%d subscriptions are left, %d after the first worker", n, first)
		}
	}
}

// The keys of the agents are not written into the caller's slice, which another worker may share.
func TestAWorkerLeavesTheCallersSigningKeysAlone(t *testing.T) {
	t.Parallel()
	signer, _, err := sign.NewKey("one", sign.Ed25519, "agent.one")
	if err != nil {
		t.Fatal(err)
	}
	keys := make([]sign.Key, 0, 2)
	cfg := config(natstest.Run(t, natsd.Config{}), "agent.one")
	cfg.NATS.SigningKeys, cfg.Node.Signer = keys, signer
	_, stop := start(t, cfg)
	stop()
	if got := keys[:2]; got[0].KID != "" || got[1].KID != "" {
		t.Errorf("behind the end of the caller's keys: %q, %q", got[0].KID, got[1].KID)
	}
}

// What a worker began to say has been said when Serve returns.
func TestServeWaitsForItsHooks(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	cfg := config(srv, "agent.one")
	say := make(chan struct{})
	cfg.Hooks.Draining = func() { <-say }
	_, stop := start(t, cfg)
	nc, left := natstest.Conn(t, srv), make(chan *nats.Msg, 16)
	if _, err := nc.ChanSubscribe("bus.mesh.agent", left); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	returned := make(chan struct{})
	go func() {
		stop()
		close(returned)
	}()
	for !strings.Contains(string(natstest.Within(t, "the agent to leave", left).Data), intents.AgentLeft) {
	}
	select {
	case <-returned:
		t.Error("Serve returned while a hook was called")
	case <-time.After(100 * time.Millisecond): // nothing is left to do but to wait for the hook
	}
	close(say)
	natstest.Within(t, "Serve to return", returned)
}

func TestServeNeedsAConnection(t *testing.T) {
	t.Parallel()
	w := newWorker(t, worker.Config{Agents: []worker.Agent{{As: "agent.one", Handler: sayOK}}})
	if err := w.Serve(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "a NATS connection is needed") {
		t.Errorf("got %v", err)
	}
}

// Only a document that refers to agents has references to report.
func TestADocumentWithoutReferencesReportsNone(t *testing.T) {
	t.Parallel()
	cfg := config(natstest.Run(t, natsd.Config{}))
	const model = "model: {provider: custom, provider_id: builtin, preferred: echo}"
	cfg.Agents = []worker.Agent{
		{File: write(t, "chief.yaml", "sc_standard: SC-006\nagent: {name: Chief, goal: x, "+model+", orchestration: {role: synthesizer}}\n")},
		{File: write(t, "lead.yaml", "sc_standard: SC-006\nagent: {name: Lead, goal: x, orchestration: {role: orchestrator, subagents: [{ref: agent.chief, alias: chief}], pipeline: [chief]}}\n")},
	}
	reported := make(chan string, 2)
	cfg.Hooks.References = func(entity string, answered, of int, _ []aaif.Problem) {
		reported <- fmt.Sprintf("%s: %d of %d", entity, answered, of)
	}
	_, stop := start(t, cfg)
	defer stop()
	if got := <-reported; got != "agent.lead: 1 of 1" {
		t.Errorf("got %q", got)
	}
}

// The program of docs/signing.md, "Keys of a Go program": it verifies, and signs its answers.
func TestAProgramTakesItsKeysFromADirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	for kid, from := range map[string]string{"ada": "human.ada", "one": "agent.one"} {
		signer, key, err := sign.NewKey(kid, sign.Ed25519, from)
		if err == nil {
			err = sign.SaveKey(dir, signer, key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	keys, err := sign.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	ring := &sign.Ring{}
	if err := ring.Replace(sign.Local, keys.Trusted); err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{})
	cfg := config(srv, "agent.one")
	cfg.Node.Verifier = sign.Verifier{Ring: ring}
	cfg.Node.Signer, _ = keys.SignerFor("agent.one", time.Now())
	_, stop := start(t, cfg)
	defer stop()

	ada := mesh.Config{Entity: "human.ada", Verifier: cfg.Node.Verifier}
	ada.Signer, _ = keys.SignerFor("human.ada", time.Now())
	node, err := mesh.New(natstest.Conn(t, srv), ada)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := node.Send(t.Context(), envelope.New(envelope.TypeTask, "human.ada", "agent.one", "agent.ask", nil), mesh.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, kid, ok := sign.Describe(reply); !ok || kid != "one" {
		t.Errorf("the reply is signed with %q, %v", kid, ok)
	}
}
