package sdsi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

const trams = "agent.trams"

func tram(t testing.TB, id string) *template.Template {
	t.Helper()
	got, err := template.Parse([]byte(`{"schema_id":"` + id + `","scenario":"tram_ticket","language":"en","keys":[
		{"key_name":"stop_from","key_type":"string","required":true,"semantic_description":"Where the ride begins.","semantic_descriptions":{"de":"Wo die Fahrt beginnt."}},
		{"key_name":"zone_count","key_type":"integer","required":false,"default_value":1,"semantic_description":"How many zones.","value_schema":{"minimum":1,"maximum":6}}],
		"response_schema":{"type":"object","required":["ticket"],"properties":{"ticket":{"type":"string"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// rig is a server with a client.
type rig struct {
	testing.TB
	srv    *natsd.Server
	client *mesh.Node
}

func newRig(t testing.TB, js bool) *rig {
	t.Helper()
	cfg := natsd.Config{Port: natsd.RandomPort}
	if js {
		cfg.JetStream, cfg.StoreDir = true, t.TempDir()
	}
	r := &rig{TB: t, srv: natstest.Run(t, cfg)}
	r.client = r.node("human.ada")
	return r
}

func (r *rig) conn() *nats.Conn { return natstest.Conn(r.TB, r.srv) }

func (r *rig) node(entity string) *mesh.Node {
	r.Helper()
	n, err := mesh.New(r.conn(), mesh.Config{Entity: entity, Heartbeat: -1, Quotas: mesh.Quotas{UnknownRate: -1}})
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// serve serves the trams until the test ends, with a desk. change may be nil.
func (r *rig) serve(desk *sdsi.Desk, handler mesh.HandlerFunc, change func(*mesh.Agent)) {
	r.Helper()
	r.serveOn(r.node, desk, handler, change)
}

func (r *rig) serveOn(node func(entity string) *mesh.Node, desk *sdsi.Desk, handler mesh.HandlerFunc, change func(*mesh.Agent)) {
	r.Helper()
	agent := mesh.Agent{Entity: trams, Handler: handler}
	ready := make(chan struct{})
	agent.Ready = func() { close(ready) }
	if change != nil {
		change(&agent)
	}
	if err := desk.Attach(&agent); err != nil {
		r.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node(agent.Entity).Serve(ctx, agent) }()
	r.Cleanup(func() { stop(); natstest.Within(r.TB, "the end", done) })
	natstest.Within(r.TB, "the agent", ready)
}

func (r *rig) desk(cfg sdsi.DeskConfig, templates ...*template.Template) *sdsi.Desk {
	r.Helper()
	cfg.Entity, cfg.Templates = trams, templates
	d, err := sdsi.NewDesk(cfg)
	if err != nil {
		r.Fatal(err)
	}
	return d
}

// ask returns the payload of a result, or the code and text of an error.
func (r *rig) ask(intent, payload string) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	reply, err := r.client.Send(ctx, envelope.New(envelope.TypeTask, r.client.Entity(), trams, intent, json.RawMessage(payload)), mesh.SendOptions{})
	var failed *envelope.Error
	if errors.As(err, &failed) {
		return string(failed.Code) + " " + failed.Message
	}
	if err != nil {
		r.Fatal(err)
	}
	return string(reply.Payload)
}

func contains(t testing.TB, what, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%s: %s, has no %s", what, got, w)
		}
	}
}

// sells is a handler that sells a ticket, and returns the words of the request.
func sells(_ context.Context, t *mesh.Task) (json.RawMessage, error) {
	return json.Marshal(map[string]any{"ticket": "T1", "intent": t.Intent(), "input": t.Input()})
}

func TestNegotiation(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	one, err := template.Parse([]byte(`{"schema_id":"one_v1","scenario":"tram_ticket","keys":[{"key_name":"a","key_type":"string","required":false,"semantic_description":"A."}]}`))
	if err != nil {
		t.Fatal(err)
	}
	desk := r.desk(sdsi.DeskConfig{}, tram(t, "tram_v9"), tram(t, "tram_v10"), one)
	block := make(chan struct{})
	r.serve(desk, func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		<-block
		return nil, ctx.Err()
	}, nil)
	t.Cleanup(func() { close(block) })
	// Occupy its only place.
	if err := r.client.Conn().PublishMsg(&nats.Msg{Subject: trams, Reply: nats.NewInbox(), Data: mustJSON(t, envelope.New(envelope.TypeTask, "human.ada", trams, "tram.wait", json.RawMessage(`{}`)))}); err != nil {
		t.Fatal(err)
	}
	got := r.ask(intents.SchemaGet, `{"scenario":"tram_ticket","preferred_language":"de-CH"}`)
	contains(t, "the newest, in German", got, `"schema_id":"tram_v10"`, `"language":"de"`, "Wo die Fahrt", `"hash":"sha256:`, `"key_name":"other"`)
	answer, err := template.ParseGetResult([]byte(got))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "not modified", r.ask(intents.SchemaGet, `{"preferred_language":"de","if_hash":"`+answer.Hash+`"}`), `"not_modified":true`)
	contains(t, "modified", r.ask(intents.SchemaGet, `{"preferred_language":"en","if_hash":"`+answer.Hash+`"}`), `"keys":`)
	contains(t, "an old version", r.ask(intents.SchemaGet, `{"schema_id":"tram_v9"}`), `"schema_id":"tram_v9"`)
	contains(t, "a name in another case", r.ask(intents.SchemaGet, `{"schema_id":"tram_v9","SCHEMA_ID":"one_v1"}`), `"schema_id":"tram_v9"`)
	contains(t, "an unknown version", r.ask(intents.SchemaGet, `{"schema_id":"tram_v1"}`), "E_NOT_FOUND", "tram_v10")
	contains(t, "an unknown scenario", r.ask(intents.SchemaGet, `{"scenario":"bus"}`), "E_NOT_FOUND", "tram_ticket")
	contains(t, "a wrong type", r.ask(intents.SchemaGet, `{"scenario":1}`), "E_INPUT_SCHEMA")
	contains(t, "not modified since the list", r.ask(intents.SchemaGet, `{"schema_id":"one_v1","if_hash":"`+one.Hash()+`"}`), `"not_modified":true`)
	contains(t, "the list", r.ask(intents.SchemaList, `{}`), `"scenario":"tram_ticket"`, `"schema_id":"tram_v10"`, `"languages":["de","en"]`)
	contains(t, "the draft's form", r.ask("any.intent", `{"method":"get_schema_template","params":{"scenario":"tram_ticket"}}`), `"schema_id":"tram_v10"`)
	contains(t, "the draft's form without params", r.ask("any.intent", `{"method":"get_schema_template"}`), `"schema_id":"tram_v10"`)
	contains(t, "the draft's form with wrong params", r.ask("any.intent", `{"method":"get_schema_template","params":[]}`), "E_INPUT_SCHEMA")
	contains(t, "capabilities", r.ask(intents.CapabilityList, `{}`), `"scenarios":["tram_ticket"]`, intents.Exchange)
	text, err := r.client.Ask(t.Context(), trams, `{"method":"get_schema_template","params":{"scenario":"tram_ticket"}}`)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "as plain text", text, `"schema_id":"tram_v10"`)
}

// records is a slog.Handler that hands the records to a test.
type records chan slog.Record

func (r records) Enabled(context.Context, slog.Level) bool           { return true }
func (r records) Handle(_ context.Context, record slog.Record) error { r <- record; return nil }
func (r records) WithAttrs([]slog.Attr) slog.Handler                 { return r }
func (r records) WithGroup(string) slog.Handler                      { return r }

// Clients choose the keys that they send, so their payloads must not fill the log.
func TestUnknownKeysOfClientsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	logged := make(records, 100)
	r.serve(r.desk(sdsi.DeskConfig{Logger: slog.New(logged)}, tram(t, "tram_v1")), sells, nil)
	contains(t, "the result", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","x":1,"y":2,"z":3}}`), `"ticket":"T1"`)
	record := natstest.Within(t, "the record", logged)
	if record.Level >= slog.LevelWarn || len(logged) > 0 {
		t.Errorf("%d more records after %s %q", len(logged), record.Level, record.Message)
	}
}

func mustJSON(t testing.TB, e *envelope.Envelope) []byte {
	t.Helper()
	raw, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestExchange(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), sells, nil)
	for name, got := range map[string]string{
		"the intent":       r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Harbour","seat":"window"}}`),
		"the draft's form": r.ask("any.intent", `{"schema_id":"tram_v1","payload":{"stop_from":"Harbour","seat":"window"}}`),
	} {
		contains(t, name, got, `"ticket":"T1"`, `"input":{"stop_from":"Harbour","zone_count":1,"other":"seat: window"}`, `"intent":"sdsi.exchange.tram_v1"`)
	}
	contains(t, "a bad payload", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"zone_count":9}}`), "E_INPUT_SCHEMA", "stop_from is missing", "Where the ride begins.", "zone_count must be at most 6")
	contains(t, "an unknown version", r.ask(intents.Exchange, `{"schema_id":"tram_v2","payload":{}}`), "E_NOT_FOUND", "tram_v1")
	contains(t, "no payload", r.ask(intents.Exchange, `{"schema_id":"tram_v1"}`), "E_INPUT_SCHEMA")
	contains(t, "no payload in the draft's form", r.ask("any.intent", `{"schema_id":"tram_v1"}`), "E_INPUT_SCHEMA")
	contains(t, "another task", r.ask("tram.time", `{"a":1}`), `"input":{"a":1}`, `"intent":"tram.time"`)
}

func TestUnknownKeysAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.serve(r.desk(sdsi.DeskConfig{Unknown: template.UnknownRefused}, tram(t, "tram_v1")), sells, nil)
	contains(t, "an unknown key", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Harbour","seat":"window"}}`), "E_INPUT_SCHEMA", "seat")
}

func TestAResultIsHeldToTheResponseSchema(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), func(context.Context, *mesh.Task) (json.RawMessage, error) {
		return json.RawMessage(`{"ticket":1}`), nil
	}, nil)
	contains(t, "a result of another form", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"x"}}`), "E_OUTPUT_SCHEMA", "ticket")
}

// With the template that is made from an agent's own schema, the handler gets what that schema
// allows.
func TestATemplateOfTheAgentsOwnSchema(t *testing.T) {
	t.Parallel()
	output := json.RawMessage(`{"required":["ticket"]}`)
	for name, c := range map[string]struct {
		response json.RawMessage
		intent   string
	}{
		"of input alone":      {nil, "agent.trams.run"},
		"of input and output": {output, "sdsi.exchange.own_v1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ofOwnSchema(t, c.response, output, c.intent)
		})
	}
}

// stored has the versions of other workers.
type stored map[string]*template.Template

func (s stored) Create(context.Context, string, string, []byte) error { return nil }
func (s stored) Get(_ context.Context, _, schemaID string) ([]byte, error) {
	if s[schemaID] == nil {
		return nil, jetstream.ErrNotFound
	}
	return json.Marshal(s[schemaID])
}

func ofOwnSchema(t *testing.T, response, output json.RawMessage, intent string) {
	r := newRig(t, false)
	input := json.RawMessage(`{"type":"object","additionalProperties":false,"required":["stop"],"properties":{"stop":{"type":"string"},"zones":{"type":"integer"}},"dependentRequired":{"zones":["stop"]},"not":{"properties":{"stop":{"const":"nowhere"}}}}`)
	tpl, err := template.FromJSONSchema("own_v1", "trams", input, response)
	if err != nil {
		t.Fatal(err)
	}
	reg := intents.NewRegistry()
	if err := reg.Register(intents.FromIO(intents.RunIntent(trams), input, output)); err != nil {
		t.Fatal(err)
	}
	tpl.Description, tpl.Keys[0].Description = "Buy a ticket", "Where the ride begins."
	old, err := template.FromJSONSchema("own_v0", "trams", json.RawMessage(`{"properties":{"stop":{"type":"string"},"class":{"type":"string"}}}`), response)
	if err != nil {
		t.Fatal(err)
	}
	desk := r.desk(sdsi.DeskConfig{}, tpl, tram(t, "tram_v1"))
	desk.Use(stored{"own_v0": old})
	r.serve(desk, func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		if strings.Contains(string(task.Input()), "lost") {
			return json.RawMessage(`{}`), nil
		}
		return sells(nil, task)
	}, func(a *mesh.Agent) { a.Intents, a.DefaultIntent = reg, intents.RunIntent(trams) })
	contains(t, "an exchange", r.ask(intents.Exchange, `{"schema_id":"own_v1","payload":{"stop":"Harbour","other":"a seat"}}`), `"input":{"stop":"Harbour"}`, `"intent":"`+intent+`"`)
	contains(t, "a template with results of its own", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Harbour"}}`), `"input":{"stop_from":"Harbour","zone_count":1}`)
	contains(t, "what only the schema refuses, by an earlier version", r.ask(intents.Exchange, `{"schema_id":"own_v0","payload":{"stop":"nowhere"}}`), "E_INPUT_SCHEMA")
	contains(t, "what only the schema refuses", r.ask(intents.Exchange, `{"schema_id":"own_v1","payload":{"stop":"nowhere"}}`), "E_INPUT_SCHEMA")
	contains(t, "a result", r.ask(intents.Exchange, `{"schema_id":"own_v1","payload":{"stop":"lost"}}`), "E_OUTPUT_SCHEMA")
	contains(t, "the agent's own intent", r.ask(intents.RunIntent(trams), `{"stop":"Harbour","other":1}`), "E_INPUT_SCHEMA")
}

// A client may send everything that the agent's own schema accepts: a default that the schema does
// not allow is left out.
func TestADefaultIsNoReasonToRefuseAPayload(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	input := json.RawMessage(`{"type":"object","properties":{"stop":{"type":"string"},"zip":{"type":"string"},"maxRadius":{"type":"integer","default":5},"class":{"type":"string","default":"second"}},
		"additionalProperties":false,"oneOf":[{"required":["stop"]},{"required":["maxRadius","zip"]}]}`)
	tpl, err := template.FromJSONSchema("own_v1", "trams", input, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10}, "test")
	if err != nil {
		t.Fatal(err)
	}
	wished(t, p, tpl, "window_seat", []float32{1, 0, 0}, time.Now())
	desk := r.desk(sdsi.DeskConfig{}, tpl)
	desk.Learn(has{p.View()})
	r.serve(desk, func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		return json.Marshal(map[string]any{"input": task.Input(), "others": sdsi.Others(ctx)})
	}, func(a *mesh.Agent) {
		a.Intents, a.DefaultIntent = intents.NewRegistry(), intents.RunIntent(trams)
		if err := a.Intents.Register(intents.FromIO(a.DefaultIntent, input, nil)); err != nil {
			t.Error(err)
		}
	})
	for sent, want := range map[string]string{
		`{"stop":"Museum"}`:                                   `{"input":{"stop":"Museum","maxRadius":5,"class":"second"},"others":null}`,
		`{"stop":"Museum","zip":"8001"}`:                      `{"input":{"stop":"Museum","zip":"8001"},"others":null}`,
		`{"stop":"Museum","zip":"8001","max_radius":null}`:    `{"input":{"stop":"Museum","zip":"8001"},"others":null}`,
		`{"stop":"Museum","zip":"8001","window_seat":true}`:   `{"input":{"stop":"Museum","zip":"8001"},"others":["window_seat: true"]}`,
		`{"stop":"Museum","zip":"8001","other":"by the sea"}`: `{"input":{"stop":"Museum","zip":"8001"},"others":["by the sea"]}`,
		`{"stop":"Museum","zip":"8001","max_radius":5}`:       `E_INPUT_SCHEMA`,
		`{"zip":"8001"}`:                                      `{"input":{"zip":"8001","maxRadius":5,"class":"second"},"others":null}`,
	} {
		if got := r.ask(intents.Exchange, `{"schema_id":"own_v1","schema_updates":false,"payload":`+sent+`}`); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", sent, got, want)
		}
	}
}

// The handler gets an exchange under an intent that marks the payload as checked. A task with that
// intent is refused, and aee.capability.list does not list it.
func TestTheIntentOfAnExchangeInsideIsNoneOutside(t *testing.T) {
	t.Parallel()
	const inside = "sdsi.exchange.tram_v1"
	for name, change := range map[string]func(*mesh.Agent){
		"an agent without schemas": nil,
		"an agent with io schemas": func(a *mesh.Agent) {
			a.Intents, a.DefaultIntent = intents.NewRegistry(), intents.RunIntent(trams)
			if err := a.Intents.Register(intents.FromIO(a.DefaultIntent, json.RawMessage(`{"required":["stop"]}`), nil)); err != nil {
				t.Error(err)
			}
		},
		"an agent that refuses unknown intents": func(a *mesh.Agent) { a.RefuseUnknown = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), sells, change)
			contains(t, "an exchange", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Harbour"}}`), `"intent":"`+inside+`"`)
			contains(t, "its intent", r.ask(inside, `{"nonsense":1,"stop":1}`), "E_INTENT_UNKNOWN")
			contains(t, "that of another version", r.ask("sdsi.exchange.tram_v0", `{"nonsense":1,"stop":1}`), "E_INTENT_UNKNOWN")
			contains(t, "a check", r.ask(intents.ValidatePayload, `{"intent":"`+inside+`","payload_to_validate":{}}`), "E_INTENT_UNKNOWN")
			if got := r.ask(intents.CapabilityList, `{"include_schemas":true}`); strings.Contains(got, inside) {
				t.Errorf("others are told of it: %s", got)
			}
		})
	}
}

// The agent to which an exchange is delegated gets the values as a task of its own, also if it
// has a template of the same id.
func TestADelegatedExchangeIsATaskOfTheOtherAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		return task.Delegate(ctx, mesh.Delegation{To: helper})
	}, nil)
	r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), sells, func(a *mesh.Agent) { a.Entity = helper })
	contains(t, "an exchange", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Harbour"}}`), `"ticket":"T1"`, `"stop_from":"Harbour"`, `"intent":"`+intents.RunIntent(helper)+`"`)
}

func TestAnyWorkerKnowsTheVersionsOfTheOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	js, err := natsjs.New(r.conn())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	store := jetstream.NewTemplates(js, subject.Map{})
	old := r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1"))
	old.Use(store)
	for range 2 { // a second worker with the same template
		if _, err := old.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	changed := tram(t, "tram_v1")
	changed.Keys[0].Description = "Something else."
	other := r.desk(sdsi.DeskConfig{}, changed)
	other.Use(store)
	if _, err := other.Publish(t.Context()); !errors.Is(err, sdsi.ErrTaken) {
		t.Errorf("a changed template under the id of another: %v", err)
	}
	now := r.desk(sdsi.DeskConfig{}, tram(t, "tram_v2"))
	now.Use(store)
	if added, err := now.Publish(t.Context()); err != nil || len(added) != 1 || added[0].SchemaID != "tram_v2" {
		t.Errorf("added %v, %v", added, err)
	}
	r.serve(now, sells, nil)
	contains(t, "the old version", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Harbour"}}`), `"intent":"sdsi.exchange.tram_v1"`, `"ticket"`)
	contains(t, "its template", r.ask(intents.SchemaGet, `{"schema_id":"tram_v1"}`), `"schema_id":"tram_v1"`)
	contains(t, "a version of nobody", r.ask(intents.Exchange, `{"schema_id":"tram_v3","payload":{}}`), "E_NOT_FOUND")
	raw, err := json.Marshal(tram(t, "tram_v1"))
	if err == nil {
		err = store.Create(t.Context(), trams, "tram_v4", raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "a version that is stored as another", r.ask(intents.Exchange, `{"schema_id":"tram_v4","payload":{"stop_from":"Harbour"}}`), "E_UNAVAILABLE")
}
