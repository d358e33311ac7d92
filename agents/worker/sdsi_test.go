package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A document that is sound, of which no schema template can be made, or whose description a
// template cannot have, keeps no worker from starting. The log says why.
func TestADocumentWithoutATemplateIsServed(t *testing.T) {
	t.Parallel()
	long := "agent." + strings.Repeat("a", 120)
	object, large := `{"type":"object"}`, `{"type":"object","properties":{"n":{"type":"integer","maximum":9223372036854775807}}}`
	for name, tt := range map[string]struct{ entity, description, output, published, warns string }{
		"sound":                {"agent.greeter", "Greets.", object, "Greets.", ""},
		"a large number":       {"agent.greeter", "Greets.", large, "none", "/response_schema"},
		"line ends of Windows": {"agent.greeter", "Greets\r\nguests.", object, "Greets\nguests.", ""},
		"a soft hyphen":        {"agent.greeter", "Gre\u00adets.", object, "", "/description"},
		"as much as may be":    {"agent.greeter", strings.Repeat("ü", 4_000), object, strings.Repeat("ü", 4_000), ""},
		"one character more":   {"agent.greeter", strings.Repeat("ü", 4_001), object, strings.Repeat("ü", 3_999) + "…", ""},
		"a long name":          {long, "Greets.", object, "none", "/schema_id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, natsd.Config{})
			var log natstest.Buffer
			cfg := config(srv)
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			text, err := json.Marshal(tt.description)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Agents = []worker.Agent{{As: tt.entity, File: write(t, "greeter.json", `{"sc_standard":"SC-006","agent":{"name":"Greeter","goal":"x","description":`+string(text)+`,
				"model":{"provider":"custom","provider_id":"builtin","preferred":"echo"},
				"io":{"input_schema":{"type":"object","properties":{"name":{"type":"string"}}},"output_schema":`+tt.output+`}}}`)}}
			_, stop := start(t, cfg)
			defer stop()
			published := "none"
			var list template.ListResult
			if _, err = client(t, srv).Query(t.Context(), tt.entity, intents.SchemaList, struct{}{}, &list); err == nil && len(list.Scenarios) == 1 {
				published = list.Scenarios[0].Description
			}
			if published != tt.published {
				t.Errorf("the template's description is %q, want %q (%v)", published, tt.published, err)
			}
			said := ""
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "level=WARN") && strings.Contains(line, "schema template") {
					said += line
				}
			}
			if (said != "") != (tt.warns != "") || !strings.Contains(said, tt.warns) {
				t.Errorf("the log warns %q", said)
			}
		})
	}
}

// A program without adapters of its own has those that allow nothing, and learns with them.
func TestAnAgentLearnsWithoutAdapters(t *testing.T) {
	t.Parallel()
	file := write(t, "greeter.json", `{"sc_standard":"SC-006","agent":{"name":"Greeter","goal":"x",
		"model":{"provider":"custom","provider_id":"builtin","preferred":"echo"},
		"io":{"input_schema":{"type":"object","properties":{"name":{"type":"string"}}}}}}`)
	if _, err := worker.New(worker.Config{Agents: []worker.Agent{{File: file}}, Learn: true}); err != nil {
		t.Error(err)
	}
}

// listing is a server that lists tools as soon as it is there.
type listing struct {
	tools []tool.Tool
	there *atomic.Bool
}

func (l listing) Tools(context.Context) ([]tool.Tool, error) {
	if !l.there.Load() {
		return nil, tool.ErrUnavailable
	}
	return l.tools, nil
}
func (listing) Close() error { return nil }

// A key that may expose one of an agent's capabilities waits for an operator (SDSI 7): a tool that
// a server lists under a name of its own, and a member of its team. No key is made before the server
// has listed its tools: it would wait for an operator, whatever its name.
func TestKeysThatNameACapabilityWait(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := jsOf(t, srv)
	apply(t, js)
	cfg := config(srv)
	cfg.Learn = true
	var there atomic.Bool
	cfg.Options.Open = func(*aaif.Tool) (tool.Source, error) {
		does := func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`1`), nil }
		return listing{[]tool.Tool{tool.Raw(tool.Definition{Name: "merge_pull_request"}, does), tool.Raw(tool.Definition{Name: "close_issue"}, does)}, &there}, nil
	}
	cfg.Agents = []worker.Agent{{File: write(t, "coder.json", `{"sc_standard":"SC-006","agent":{"name":"Coder","goal":"x",
		"model":{"provider":"custom","provider_id":"builtin","preferred":"echo"},
		"tools":[{"name":"github","description":"Changes.","protocol":"mcp","endpoint":"mcp://github/*"}],
		"orchestration":{"subagents":[{"ref":"agent.deployer","alias":"deployer"}]},
		"io":{"input_schema":{"type":"object","properties":{"name":{"type":"string"}}}}}}`)}}
	_, stop := start(t, cfg)
	defer stop()

	now := time.Now()
	pool, err := evolve.New(evolve.Config{}, ngrams.Embedder{}.Name())
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"merge pull request", "close issue", "deployer", "window seat"}
	vectors, err := ngrams.Embedder{}.Embed(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		for n := range 6 {
			pool.Observe(evolve.Observation{Client: evolve.Client(fmt.Sprint("agent.c", n)), Fragments: []evolve.Fragment{{Text: text, Vector: vectors[i]}}}, now)
		}
	}
	raw, err := pool.Encode(now)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := subject.Map{}.Bus(sdsi.Topic("agent.coder"))
	if err != nil {
		t.Fatal(err)
	}
	nc, events := natstest.Conn(t, srv), make(chan *nats.Msg, 100)
	if _, err := nc.ChanSubscribe(topic, events); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.NewPools(js, subject.Map{}).Swap(t.Context(), "agent.coder", learn.PoolID("coder", ""), raw, 0); err != nil {
		t.Fatal(err)
	}
	// A payload has the worker read the pool.
	c := sdsi.NewClient(client(t, srv))
	tpl, err := c.Template(t.Context(), "agent.coder", "", "")
	if err != nil {
		t.Fatal(err)
	}
	exchange := func() error {
		_, err := c.Exchange(t.Context(), "agent.coder", template.Payload{SchemaID: tpl.SchemaID, Payload: json.RawMessage(`{"other":"a kayak"}`)}, sdsi.ExchangeOptions{})
		return err
	}
	for range 3 {
		if err := exchange(); err == nil || !strings.Contains(err.Error(), string(envelope.CodeUnavailable)) {
			t.Fatalf("an agent whose tools are not known has worked: %v", err)
		}
	}
	there.Store(true)
	for range 2 { // after the first one the agent's tools are known
		if err := exchange(); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for len(got) < len(texts) {
		var e struct {
			Payload struct {
				Kind, Why string
				Key       string `json:"key_name"`
			}
		}
		if err := json.Unmarshal(natstest.Within(t, "an event", events).Data, &e); err != nil {
			t.Fatal(err)
		}
		if e.Payload.Key != "" { // the event of the template itself has none
			got[e.Payload.Key] = e.Payload.Kind + ": " + e.Payload.Why
		}
	}
	for name, capability := range map[string]string{"merge_pull_request": "merge_pull_request", "close_issue": "close_issue", "deployer": "deployer", "window_seat": ""} {
		want := evolve.KindTrial + ": "
		if capability != "" {
			want = evolve.KindProposed + ": it may expose the agent's capability " + capability
		}
		if got[name] != want {
			t.Errorf("%s is %s, want %s", name, got[name], want)
		}
	}
}

const tram = `{"schema_id":"tram_v1","scenario":"tram_ticket","keys":[{"key_name":"stop","key_type":"string","required":true,"semantic_description":"A stop."}]}`

// A version never changes. A worker that finds out only after it has started, because JetStream
// was away, that another one has published another template under the same schema_id, ends.
func TestAVersionThatIsTakenEndsTheWorkerLater(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := jsOf(t, srv)
	cfg := config(srv, "agent.trams")
	cfg.Templates = filepath.Dir(write(t, "tram.sdsi.json", tram))
	ready, ended := make(chan struct{}), make(chan error, 1)
	cfg.Hooks.Ready = func([]string) { close(ready) }
	w := newWorker(t, cfg)
	again := make(chan struct{})
	w.PublishAgain(func(ctx context.Context) bool {
		select {
		case <-again:
		case <-ctx.Done():
		}
		return ctx.Err() == nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- w.Run(ctx) }()
	natstest.Within(t, "the agent", ready)
	apply(t, js)
	if err := jetstream.NewTemplates(js, subject.Map{}).Create(t.Context(), "agent.trams", "tram_v1", []byte(`{"schema_id":"tram_v1"}`)); err != nil {
		t.Fatal(err)
	}
	close(again)
	var conflict *worker.ConfigError
	if err := natstest.Within(t, "the end", ended); !errors.As(err, &conflict) || !errors.Is(err, sdsi.ErrTaken) {
		t.Errorf("the worker ended with %v", err)
	}
}

// While the templates of the other workers cannot be read, an agent does not say that it has no such
// version: its client would send the payload again. A mesh without durable tasks, or without the bucket
// for templates, has none: there the client has to learn that it knows an old version.
func TestAVersionThatCannotBeReadIsNotUnknown(t *testing.T) {
	t.Parallel()
	away := func(ctx context.Context, js natsjs.JetStream) error { // it does not answer what is stored
		s, err := js.Stream(ctx, "KV_"+jetstream.BucketSDSI)
		if err != nil {
			return err
		}
		cfg := s.CachedInfo().Config
		cfg.Subjects = []string{"$KV.away.>"}
		_, err = js.UpdateStream(ctx, cfg)
		return err
	}
	deleted := func(ctx context.Context, js natsjs.JetStream) error {
		return js.DeleteKeyValue(ctx, jetstream.BucketSDSI)
	}
	for name, tt := range map[string]struct {
		use    worker.Use
		bucket func(context.Context, natsjs.JetStream) error
		want   envelope.Code
	}{
		"away":             {worker.On, away, envelope.CodeUnavailable},
		"deleted":          {worker.On, deleted, envelope.CodeNotFound},
		"no durable tasks": {worker.Off, away, envelope.CodeNotFound},
	} {
		srv := natstest.Run(t, natsd.Config{JetStream: true})
		js := jsOf(t, srv)
		apply(t, js)
		if err := tt.bucket(t.Context(), js); err != nil {
			t.Fatal(err)
		}
		cfg := config(srv)
		cfg.Durable = tt.use
		cfg.Agents = []worker.Agent{{As: "agent.greeter", File: write(t, "greeter.json", `{"sc_standard":"SC-006","agent":{"name":"Greeter","goal":"x",
			"model":{"provider":"custom","provider_id":"builtin","preferred":"echo"},
			"io":{"input_schema":{"type":"object","properties":{"text":{"type":"string"}}}}}}`)}}
		w := newWorker(t, cfg)
		failed, ended := make(chan struct{}), make(chan error, 1)
		w.PublishAgain(func(ctx context.Context) bool {
			close(failed)
			<-ctx.Done()
			return false
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { ended <- w.Run(ctx) }()
		natstest.Within(t, "the failure", failed)
		_, err := client(t, srv).Query(t.Context(), "agent.greeter", intents.SchemaGet, template.GetTask{SchemaID: "greeter_v0"}, nil)
		if got := envelope.AsError(err); err == nil || got.Code != tt.want {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
		cancel()
		natstest.Within(t, "the end", ended)
	}
}

// heldBucket is a mesh whose bucket of templates never answers: it returns what the worker sends there.
func heldBucket(t *testing.T, srv *natsd.Server) <-chan *nats.Msg {
	t.Helper()
	nc, held := natstest.Conn(t, srv), make(chan *nats.Msg, 64)
	if _, err := nc.ChanSubscribe("$KV."+jetstream.BucketSDSI+".>", held); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return held
}

// The template that a document's io.input_schema makes is published beside the work: a worker of many
// agents serves them all though no publishing has ended, and stops at once.
func TestAgentsAreServedWhileTheirTemplatesArePublished(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	held := heldBucket(t, srv)
	cfg := config(srv)
	cfg.Wait = time.Hour
	for i := range 20 {
		cfg.Agents = append(cfg.Agents, worker.Agent{As: fmt.Sprint("agent.greeter_", i), File: write(t, "greeter.json", `{"sc_standard":"SC-006","agent":{"name":"Greeter","goal":"x",
			"model":{"provider":"custom","provider_id":"builtin","preferred":"echo"},
			"io":{"input_schema":{"type":"object","properties":{"text":{"type":"string"}}}}}}`)})
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	cfg.Hooks.Ready = func([]string) { close(ready) }
	w := newWorker(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- w.Run(ctx) }()
	natstest.Within(t, "the agents", ready)
	natstest.Within(t, "a template", held)
	cancel()
	if err := natstest.Within(t, "the end", ended); err != nil {
		t.Error(err)
	}
}

// The templates of an operator's folder are published before the agents are served, those of several
// agents at the same time. A worker that is stopped meanwhile ends at once.
func TestAnOperatorsTemplatesArePublishedTogether(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	held := heldBucket(t, srv)
	cfg := config(srv, "agent.trams", "agent.ferries")
	cfg.Wait = time.Hour
	cfg.Templates = t.TempDir()
	for _, a := range cfg.Agents {
		folder := filepath.Join(cfg.Templates, a.As)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "ticket.sdsi.json"), []byte(tram), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	cfg.Hooks.Ready = func([]string) { t.Error("the agents are served before it is known whether their templates are taken") }
	w := newWorker(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- w.Run(ctx) }()
	for range cfg.Agents {
		natstest.Within(t, "a template", held)
	}
	cancel()
	if err := natstest.Within(t, "the end", ended); err != nil {
		t.Error(err)
	}
}
