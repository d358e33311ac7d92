package sdsi_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// counted counts the answers to sdsi.schema.get, and those that have keys.
func (r *rig) counted() (asked, sent *atomic.Int32) {
	asked, sent = &atomic.Int32{}, &atomic.Int32{}
	conn := r.conn()
	if _, err := conn.Subscribe(trams, func(m *nats.Msg) {
		if e, err := envelope.Parse(m.Data); err == nil && e.Intent == intents.SchemaGet {
			asked.Add(1)
			if !strings.Contains(string(e.Payload), "if_hash") {
				sent.Add(1)
			}
		}
	}); err != nil {
		r.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		r.Fatal(err)
	}
	return asked, sent
}

func TestATemplateIsAskedForOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), sells, nil)
	asked, whole := r.counted()
	c := sdsi.NewClient(r.client)
	get := func() {
		t.Helper()
		got, err := c.Template(t.Context(), trams, "tram_ticket", "de")
		if err != nil {
			t.Fatal(err)
		}
		if got.SchemaID != "tram_v1" || got.Language != "de" || got.Key("zone_count") == nil {
			t.Fatalf("%+v", got)
		}
	}
	get()
	get()
	natstest.Eventually(t, "the question", func() bool { return asked.Load() == 1 && whole.Load() == 1 })
	// It requests a forgotten template again, even if that has not changed.
	c.Forget(trams)
	get()
	natstest.Eventually(t, "the second question", func() bool { return asked.Load() == 2 })
	if whole.Load() != 1 {
		t.Errorf("the template was sent %d times", whole.Load())
	}
	if _, err := c.Template(t.Context(), trams, "bus", ""); code(err) != envelope.CodeNotFound {
		t.Errorf("an unknown scenario: %v", err)
	}
}

// slow is a learner whose view blocks until the test releases it.
type slow struct {
	has
	asked, answer chan struct{}
}

func (s slow) View(ctx context.Context, scenario string, from sdsi.Sender) (v *evolve.View, cohort, client string) {
	s.asked <- struct{}{}
	<-s.answer
	return s.has.View(ctx, scenario, from)
}

// A template that is forgotten during its request is requested again, because the answer may be
// older.
func TestForgettingDuringAQuestionMakesTheClientAskAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	desk := r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1"))
	pool, err := evolve.New(evolve.Config{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	l := slow{has{pool.View()}, make(chan struct{}), make(chan struct{})}
	desk.Learn(l)
	r.serve(desk, sells, nil)
	c := sdsi.NewClient(r.client)
	got := make(chan error, 1)
	get := func() {
		_, err := c.Template(t.Context(), trams, "tram_ticket", "")
		got <- err
	}
	for round, forgets := range []string{trams, trams, "agent.other"} {
		go get()
		natstest.Within(t, "question "+strconv.Itoa(round+1), l.asked)
		c.Forget(forgets)
		l.answer <- struct{}{}
		if err := natstest.Within(t, "the template", got); err != nil {
			t.Fatal(err)
		}
	}
	if get(); <-got != nil { // the client has a fresh template and sends no request, which no agent would answer
		t.Error("no template")
	}
}

func code(err error) envelope.Code {
	if err == nil {
		return ""
	}
	return envelope.AsError(err).Code
}

func TestAnAgentWithoutTemplatesIsNotAskedForOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	var tasks atomic.Int32
	ready := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	agent := mesh.Agent{Entity: trams, Ready: func() { close(ready) }, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		tasks.Add(1)
		return json.RawMessage(`{}`), nil
	})}
	go func() { done <- r.node(trams).Serve(ctx, agent) }()
	t.Cleanup(func() { stop(); natstest.Within(t, "the end", done) })
	natstest.Within(t, "the agent", ready)
	c := sdsi.NewClient(r.client)
	if _, err := c.Template(t.Context(), trams, "tram_ticket", ""); !errors.Is(err, sdsi.ErrNone) {
		t.Error(err)
	}
	if _, err := c.Scenarios(t.Context(), trams); !errors.Is(err, sdsi.ErrNone) {
		t.Error(err)
	}
	if tasks.Load() != 0 {
		t.Error("its handler got the question")
	}
}

func TestFillAndExchange(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	tpl := tram(t, "tram_v1")
	tpl.Keys[0].Description = "Where the ride begins. Example: 'from the harbour' -> 'Harbour'."
	r.serve(r.desk(sdsi.DeskConfig{}, tpl), sells, nil)
	c := sdsi.NewClient(r.client)
	got, err := c.Template(t.Context(), trams, "", "")
	if err != nil {
		t.Fatal(err)
	}
	m, err := template.Fill(t.Context(), sdsi.Filler{Model: builtin.New(), Name: builtin.Filler}, got, "from the harbour, with a dog", template.FillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Exchange(t.Context(), trams, template.Payload{SchemaID: m.SchemaID, Payload: m.Payload}, sdsi.ExchangeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "the result", string(out.Envelope.Payload), `"stop_from":"Harbour"`, `"other":"dog"`)
	if _, err := c.Exchange(t.Context(), trams, template.Payload{SchemaID: "tram_v0", Payload: m.Payload}, sdsi.ExchangeOptions{}); code(err) != envelope.CodeNotFound {
		t.Errorf("an unknown version: %v", err)
	}
}

// The outcome of an exchange that fails names its task, and says whether it is stored.
func TestAFailedExchangeNamesItsTask(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	for _, durable := range []bool{false, true} { // the client has no durable lane, and the agent no worker
		out, err := sdsi.NewClient(r.client).Exchange(t.Context(), trams, template.Payload{SchemaID: "tram_v1", Payload: json.RawMessage(`{}`)}, sdsi.ExchangeOptions{Durable: durable})
		if err == nil || out == nil || out.Task == nil || out.Task.To != trams || out.Stored.TaskID != "" || out.Envelope != nil {
			t.Errorf("durable %t: %+v, %v", durable, out, err)
		}
	}
}

// A client tries again as its caller says: its questions, here before the agent has a worker, and
// the exchange.
func TestAClientTriesAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	var tried []envelope.Code
	var tasks atomic.Int32
	c := sdsi.NewClient(r.client)
	c.Retry(1, func(_ int, _ time.Duration, why *envelope.Error) {
		tried = append(tried, why.Code)
		r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			if tasks.Add(1) == 1 {
				return nil, envelope.Errorf(envelope.CodeBusy, "one moment").WithBackoff(time.Millisecond)
			}
			return sells(ctx, task)
		}, nil)
	})
	if _, err := c.Template(t.Context(), trams, "", ""); err != nil {
		t.Fatal(err)
	}
	p := template.Payload{SchemaID: "tram_v1", Payload: json.RawMessage(`{"stop_from":"Harbour"}`)}
	out, err := c.Exchange(t.Context(), trams, p, sdsi.ExchangeOptions{Send: mesh.SendOptions{Retries: 1, OnRetry: func(_ int, _ time.Duration, why *envelope.Error) {
		tried = append(tried, why.Code)
	}}})
	if err != nil || out.Envelope.Type != envelope.TypeResult || tasks.Load() != 2 || !slices.Equal(tried, []envelope.Code{envelope.CodeNoResponders, envelope.CodeBusy}) {
		t.Errorf("%+v, %v after %d tasks, %q", out, err, tasks.Load(), tried)
	}
}

// A model that answers in a code fence is understood.
func TestTheFillerTakesOffTheFence(t *testing.T) {
	t.Parallel()
	fenced := model.Func(func(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Response, error) {
		if req.Format.Type != model.FormatJSONSchema || len(req.Format.Schema) == 0 || req.Messages[0].Role != model.RoleSystem {
			t.Errorf("the request: %+v", req)
		}
		return &model.Response{Message: model.Assistant("```json\n{\"keys\":{}}\n```")}, nil
	})
	got, err := sdsi.Filler{Model: fenced}.Complete(t.Context(), template.Prompt{Instructions: "x", Text: "y", Schema: json.RawMessage(`{}`)})
	if err != nil || string(got) != `{"keys":{}}` {
		t.Errorf("%s, %v", got, err)
	}
}

// A client that requires signatures refuses an unsigned template (SDSI 7).
func TestAnUnsignedTemplateIsRefused(t *testing.T) {
	t.Parallel()
	signer, key, err := sign.NewKey("trams", sign.Ed25519, trams)
	if err != nil {
		t.Fatal(err)
	}
	ring := &sign.Ring{}
	if err := ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	for _, signed := range []bool{true, false} {
		r := newRig(t, false)
		r.serve(r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1")), sells, func(a *mesh.Agent) {
			if signed {
				a.Signer = signer
			}
		})
		node, err := mesh.New(r.conn(), mesh.Config{Entity: "human.ada", Heartbeat: -1, Verifier: sign.Verifier{Ring: ring, Mode: sign.Required}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := sdsi.NewClient(node).Template(ctx, trams, "", ""); (err == nil) != signed {
			t.Errorf("signed %v: %v", signed, err)
		}
	}
}
