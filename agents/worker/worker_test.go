package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// write writes a document, and returns its file.
func write(t testing.TB, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

const echo = "sc_standard: SC-006\nagent: {name: Echo, goal: x, version: 1.2.3, model: {provider: custom, provider_id: builtin, preferred: echo}}\n"

func apply(t testing.TB, js natsjs.JetStream) {
	t.Helper()
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
}

func jsOf(t testing.TB, srv *natsd.Server) natsjs.JetStream {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Each fault of a configuration names its field; faulty values are reported
// together.
func TestAConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	file := write(t, "echo.yaml", echo)
	handler := worker.Agent{As: "agent.one", Handler: sayOK}
	lint := tool.Func(tool.Definition{Name: "lint", Description: "Lints."}, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	for name, tt := range map[string]struct {
		cfg    worker.Config
		fields string
	}{
		"nothing":             {worker.Config{}, "Agents"},
		"values":              {worker.Config{Wait: -1, Replay: 7}, "Agents Wait Replay"},
		"no work":             {worker.Config{Agents: []worker.Agent{{As: "agent.one"}}}, "Agents"},
		"no entity":           {worker.Config{Agents: []worker.Agent{{Handler: sayOK}}}, "Agents"},
		"a person":            {worker.Config{Agents: []worker.Agent{{As: "human.bob", Handler: sayOK}}}, "Agents"},
		"one entity twice":    {worker.Config{Agents: []worker.Agent{handler, handler}}, "Agents"},
		"one document twice":  {worker.Config{Agents: []worker.Agent{{File: file}, {File: file}}}, "Agents"},
		"one tool twice":      {worker.Config{Agents: []worker.Agent{handler}, Tools: []tool.Tool{lint, lint}}, "Tools"},
		"a window for no ids": {worker.Config{Agents: []worker.Agent{handler}, Replay: worker.On, Node: mesh.Config{ReplayWindow: -1}}, "Replay"},
	} {
		_, err := worker.New(tt.cfg)
		var bad *worker.ConfigError
		if !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for field := range strings.SplitSeq(tt.fields, " ") {
			if !strings.Contains(err.Error(), field+": ") {
				t.Errorf("%s: %v names no %s", name, err, field)
			}
		}
	}
}

// AAIF allows zeros before the numbers of a version, SemVer and NATS do not. The agent is served; NATS
// is told the version without them.
func TestAVersionWithZeros(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	cfg := config(srv, "agent.one")
	cfg.Agents = append(cfg.Agents, worker.Agent{File: write(t, "echo.yaml", strings.Replace(echo, "1.2.3", "2026.01.00", 1))})
	_, stop := start(t, cfg)
	defer stop()
	found, err := client(t, srv).Discover(t.Context(), "agent.echo", time.Minute)
	if err != nil || len(found) != 1 || found[0].Info.Version != "2026.1.0" {
		t.Errorf("found %+v, %v", found, err)
	}
}

// A document of another kind hosts no agent; aaif.Parse reads it where no kind is given.
func TestAnAgentNeedsADefinition(t *testing.T) {
	t.Parallel()
	const file = "../../state/testdata/examples/night-porter.json"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := aaif.Parse(data, aaif.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = worker.New(worker.Config{Agents: []worker.Agent{{Document: doc, File: file}}})
	if err == nil || err.Error() != "Agents: "+file+": an agent definition is needed, not a document of kind \"agent-state\"" {
		t.Errorf("got %v", err)
	}
}

func TestAnAgentThatIsThereTwice(t *testing.T) {
	t.Parallel()
	one := worker.Agent{As: "agent.one", Handler: sayOK}
	if _, err := worker.New(worker.Config{Agents: []worker.Agent{one, one}}); err == nil || err.Error() != "Agents: agent.one is there twice" {
		t.Errorf("got %v", err)
	}
}

// A document that may be regulated and cannot be read is audit-logged.
func TestAnUnreadableDocumentIsRefused(t *testing.T) {
	t.Parallel()
	for text, audited := range map[string]bool{
		"sc_standard: SC-006\nagent: {name: }\n":                                false,
		"sc_standard: SC-006\nagent: {compliance: {safety_level: regulated}}\n": true,
	} {
		var log natstest.Buffer
		file := write(t, "broken.yaml", text)
		_, err := worker.New(worker.Config{Agents: []worker.Agent{{File: file}}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		var unread *worker.DocumentError
		if !errors.As(err, &unread) || unread.File != file {
			t.Errorf("%v", err)
		}
		if got := strings.Contains(log.String(), "audit=true"); got != audited {
			t.Errorf("audited: %v, for %q", got, text)
		}
	}
}

// A worker that starts before the streams exist takes durable tasks when they
// do. It registers its document.
func TestTheLaneIsAttachedWhenItComes(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js, m := jsOf(t, srv), subject.Map{}
	conn := natstest.Conn(t, srv)
	lacks, ready := make(chan error, 1), make(chan struct{})
	w := newWorker(t, worker.Config{
		Agents: []worker.Agent{{File: write(t, "echo.yaml", echo)}}, Node: mesh.Config{Drain: time.Second, Heartbeat: -1},
		Hooks: worker.Hooks{NoLane: func(_ string, err error) { lacks <- err }, Ready: func([]string) { close(ready) }},
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Serve(ctx, conn) }()
	<-ready
	var missing jetstream.MissingError
	if err := <-lacks; !errors.As(err, &missing) {
		t.Errorf("the lane lacks %v", err)
	}
	if health := w.Health(); health[len(health)-1].OK || health[len(health)-1].Detail["durable"] != "waiting" {
		t.Errorf("%+v", health)
	}
	apply(t, js)
	if err := conn.ForceReconnect(); err != nil { // the worker looks after each reconnect
		t.Fatal(err)
	}
	var lane mesh.Durable
	lane.SetStores(jetstream.Open(js, m))
	sender, err := mesh.New(natstest.Conn(t, srv), mesh.Config{Entity: "human.ada", Durable: &lane})
	if err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.echo", "agent.ask", json.RawMessage(`{"text":"hi"}`))
	if _, err := sender.Submit(within, task, mesh.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	if reply, err := sender.Result(within, task.To, task.ID, mesh.ResultOptions{Follow: true}); err != nil || !strings.Contains(string(reply.Payload), "hi") {
		t.Errorf("%v, %v", reply, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := w.Serve(t.Context(), conn); err == nil {
		t.Error("it serves twice")
	}
}

// A worker that starts before the journal exists uses it when it has come, and puts into it what was
// refuted until then.
func TestTheJournalIsUsedWhenItComes(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	conn := natstest.Conn(t, srv)
	cfg := config(srv, "agent.one")
	cfg.Durable, cfg.Journal = worker.Auto, worker.Auto
	ready, ended := make(chan struct{}), make(chan error, 1)
	cfg.Hooks.Ready = func([]string) { close(ready) }
	w := newWorker(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { ended <- w.Serve(ctx, conn) }()
	natstest.Within(t, "the agent", ready)
	ada := client(t, srv)
	refuted := func(why string) *envelope.Envelope {
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.one", "agent.ask", nil)
		if _, err := ada.Send(t.Context(), task, mesh.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		var answer intents.RefuteResult
		if _, err := ada.Query(t.Context(), "agent.one", intents.ContextRefute, intents.RefuteTask{ID: task.ID, Reason: why}, &answer); err != nil || !answer.Acknowledged {
			t.Fatalf("%+v, %v", answer, err)
		}
		return task
	}
	early := refuted("early")
	apply(t, jsOf(t, srv))
	if err := conn.ForceReconnect(); err != nil { // the worker looks after each reconnect
		t.Fatal(err)
	}
	natstest.Eventually(t, "the durable lane is there", func() bool {
		health := w.Health()
		return health[len(health)-1].Detail["durable"] == string(jetstream.LaneWorking)
	})
	late := refuted("late")
	stop()
	if err := natstest.Within(t, "the end", ended); err != nil {
		t.Error(err)
	}

	_, stop = start(t, cfg)
	defer stop()
	var found intents.FetchResult
	if _, err := ada.Query(t.Context(), "agent.one", intents.ContextFetch, intents.FetchTask{ID: late.ID}, &found); err != nil || !found.Found || len(found.Refutations) != 1 || found.Refutations[0].Reason != "late" {
		t.Errorf("another worker of the agent finds %+v, %v", found, err)
	}
	list, err := jetstream.NewRefutations(jsOf(t, srv), subject.Map{}).List(t.Context(), "agent.one", early.ID)
	if err != nil || len(list) != 1 || !strings.Contains(string(list[0]), `"early"`) {
		t.Errorf("of the time before there was a journal: %s, %v", list, err)
	}
}

// A worker that insists on what the mesh has not fails, and says which.
func TestAWorkerInsists(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	for field, change := range map[string]func(*worker.Config){
		"Durable":  func(c *worker.Config) { c.Durable = worker.On },
		"Journal":  func(c *worker.Config) { c.Journal = worker.On },
		"Replay":   func(c *worker.Config) { c.Replay = worker.On },
		"Register": func(c *worker.Config) { c.Register = true },
		"Node":     func(c *worker.Config) { c.Node.MaxHandoffs = -1 },
	} {
		cfg := config(srv, "agent.one")
		cfg.Agents[0] = worker.Agent{File: write(t, "echo.yaml", echo)}
		change(&cfg)
		var bad *worker.ConfigError
		if err := newWorker(t, cfg).Run(t.Context()); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A worker that is stopped while it waits for the server, before its agents are served, has failed at
// nothing.
func TestAWorkerThatIsStoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*worker.Config){
		"Durable":  func(c *worker.Config) { c.Durable = worker.On },
		"Journal":  func(c *worker.Config) { c.Journal = worker.On },
		"Replay":   func(c *worker.Config) { c.Replay = worker.On },
		"Register": func(c *worker.Config) { c.Register = true },
	} {
		srv := natstest.Run(t, natsd.Config{}) // its JetStream answers nothing
		cfg := config(srv, "agent.one")
		cfg.Agents[0] = worker.Agent{File: write(t, "echo.yaml", echo)}
		cfg.Durable, cfg.Journal, cfg.Replay = worker.Off, worker.Off, worker.Off
		change(&cfg)
		ctx, stop := context.WithCancel(t.Context())
		asked := natstest.Conn(t, srv)
		if _, err := asked.Subscribe("$JS.API.>", func(*nats.Msg) { stop() }); err != nil {
			t.Fatal(err)
		}
		if err := asked.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := newWorker(t, cfg).Run(ctx); err != nil || ctx.Err() == nil {
			t.Errorf("%s: %v", field, err)
		}
		stop()
	}
}

// The documents are registered, and a handler can do the work of one.
func TestDocumentsAreRegistered(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := jsOf(t, srv)
	apply(t, js)
	cfg := config(srv)
	cfg.Register = true
	cfg.Agents = []worker.Agent{{File: write(t, "echo.yaml", echo), As: "agent.eu.echo", Handler: sayOK}}
	served := make(chan worker.Serving, 1)
	cfg.Hooks.Serving = func(s worker.Serving) { served <- s }
	_, stop := start(t, cfg)
	defer stop()
	if s := <-served; s.Entity != "agent.eu.echo" || s.Version != "1.2.3" || s.Instance == "" || s.WorkSubject != "" || s.Server == "" {
		t.Errorf("%+v", s)
	}
	all, err := jetstream.Open(js, subject.Map{}).Agents.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Record.Entity != "agent.eu.echo" || all[0].Key != registry.KeyOf("", "agent.eu.echo") {
		t.Errorf("%+v, %v", all, err)
	}
	task := envelope.New(envelope.TypeTask, "human.ada", "agent.eu.echo", "agent.ask", json.RawMessage(`{"text":"hi"}`))
	if reply, err := client(t, srv).Send(t.Context(), task, mesh.SendOptions{}); err != nil || string(reply.Payload) != `{"ok":true}` {
		t.Errorf("%v, %v", reply, err)
	}
}

// together is a registry whose first lists wait for one another, so that all their readers find
// nothing registered.
type together struct {
	registry.Registry
	first atomic.Int32
	all   sync.WaitGroup
}

func (r *together) List(ctx context.Context) ([]registry.Entry, error) {
	list, err := r.Registry.List(ctx)
	if r.first.Add(-1) >= 0 {
		r.all.Done()
		r.all.Wait()
	}
	return list, err
}

// Workers that start together register the same documents.
func TestWorkersThatStartTogetherRegister(t *testing.T) {
	t.Parallel()
	const workers = 3
	r := &together{Registry: &registry.Mem{}}
	r.first.Store(workers)
	r.all.Add(workers)
	ended := make(chan error, workers)
	for range workers {
		cfg := worker.Config{Register: true, Agents: []worker.Agent{
			{File: write(t, "echo.yaml", echo)}, {File: write(t, "other.yaml", strings.Replace(echo, "Echo", "Other", 1))}}}
		w := newWorker(t, cfg)
		go func() { ended <- w.RegisterIn(t.Context(), r) }()
	}
	for range workers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	all, err := r.List(t.Context())
	if err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}
