package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
)

// handoffs are an orchestration block with one rule.
func handoffs(condition, more string) string {
	return `"orchestration": {"subagents": [{"ref": "agent.billing", "alias": "billing", "pass_memory_keys": ["customer"]}],
		"handoff": [{"condition": ` + condition + `, "target_agent": "billing"` + more + `}]}`
}

const saidBilling = `{"lang": "cel", "expr": "has(output.text) && output.text.contains('BILLING')"}`

// always says the same, whatever was said before: the fake takes its turns by how
// often the assistant has spoken.
func always(text string) (turns []modeltest.Turn) {
	for range 8 {
		turns = append(turns, says(text))
	}
	return turns
}

// spoken is a conversation without its first system prompt, one message a line.
func spoken(req *model.Request) string {
	var out []string
	for _, m := range req.Messages[1:] {
		line := string(m.Role) + ": " + m.Content
		for _, c := range m.ToolCalls {
			line += " " + c.Name + string(c.Arguments)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// hosted is an agent with a scripted model on the lane.
func (l *lane) hosted(as, text string, opts agents.Options, turns ...modeltest.Turn) *modeltest.Fake {
	l.t.Helper()
	fake := modeltest.New(turns...)
	opts.As, opts.Model = as, fake
	a := newAgent(l.t, doc(l.t, text), opts)
	l.serve(a)
	return fake
}

// serve hosts an agent, and returns when it can be reached.
func (l *lane) serve(a *agents.Agent) {
	l.t.Helper()
	ready := make(chan struct{})
	a.Ready = func() { close(ready) }
	l.host(a, nil)
	select {
	case <-ready:
	case <-time.After(patience):
		l.t.Fatalf("%s is not ready", a.Entity)
	}
	until(l.t, "its durable lane is there", func() bool {
		served, err := jetstream.NewQueue(l.js(l.conn), subject.Map{}).Served(l.ctx(), a.Entity)
		return err == nil && served
	})
}

// ask sends a task over one of the lanes, and returns the answer.
func (l *lane) ask(durable bool, to, payload string) (*envelope.Envelope, error) {
	l.t.Helper()
	task := l.task(to, payload, "")
	if durable {
		_, reply, err := l.client.Perform(l.ctx(), task, mesh.SubmitOptions{}, mesh.ResultOptions{})
		return reply, err
	}
	return l.client.Send(l.ctx(), task, mesh.SendOptions{})
}

func TestARuleHandsTheConversationOn(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			triage := l.hosted("agent.triage", handoffs(saidBilling, "")+`, "constraints": ["Be brief."]`, agents.Options{}, says("This is for BILLING."))
			billing := l.hosted("agent.billing", `"constraints": ["Never promise money."]`, agents.Options{}, always("You will get an invoice.")...)
			reply, err := l.ask(durable, "agent.triage", `{"text":"I was charged twice."}`)
			if err != nil {
				t.Fatal(err)
			}
			if got := []string{reply.From, reply.To, string(reply.Payload)}; !slices.Equal(got, []string{"agent.billing", "human.ada", `{"text":"You will get an invoice."}`}) {
				t.Errorf("reply %q", got)
			}
			if len(triage.Requests()) != 1 || len(billing.Requests()) != 1 {
				t.Fatalf("%d and %d turns", len(triage.Requests()), len(billing.Requests()))
			}
			req := billing.Requests()[0]
			system := req.Messages[0].Content
			if !strings.Contains(system, "Never promise money.") || strings.Contains(system, "Be brief.") || !strings.Contains(system, "begun by agent.triage, who has handed it over") {
				t.Errorf("system prompt: %s", system)
			}
			if got, want := spoken(req), "user: I was charged twice.\nassistant: This is for BILLING.\nuser: The conversation is yours from here on. Go on with it."; got != want {
				t.Errorf("conversation:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// A rule sees what the agent sees: of a payload of a schema template the values, as of any other.
func TestARuleSeesTheInputOfAPayloadOfATemplate(t *testing.T) {
	t.Parallel()
	tpl, err := template.Parse([]byte(`{"schema_id":"v1","scenario":"desk","keys":[{"key_name":"topic","key_type":"string","required":true,"semantic_description":"A topic."}]}`))
	if err != nil {
		t.Fatal(err)
	}
	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: "agent.triage", Templates: []*template.Template{tpl}})
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, doc(t, handoffs(`{"lang": "cel", "expr": "has(input.topic) && input.topic == 'bills' && topic == 'bills'"}`, "")),
		agents.Options{As: "agent.triage", Model: modeltest.New(always("I cannot help.")...)})
	if err := desk.Attach(&a.Agent); err != nil {
		t.Fatal(err)
	}
	l := newLane(t)
	l.serve(&agents.Agent{Agent: mesh.Agent{Entity: "agent.billing", Handler: answering(`{"text":"paid"}`)}})
	l.serve(a)
	for _, durable := range []bool{false, true} {
		for _, payload := range []string{`{"topic":"bills"}`, `{"schema_id":"v1","payload":{"topic":"bills"}}`} {
			reply, err := l.ask(durable, "agent.triage", payload)
			if err != nil {
				t.Errorf("durable=%v %s: %v", durable, payload, err)
			} else if reply.From != "agent.billing" {
				t.Errorf("durable=%v %s: %s answers %s", durable, payload, reply.From, reply.Payload)
			}
		}
	}
}

// A steering message that arrives while the model generates the turn after which a rule delegates the
// task is in the conversation of the receiver's first turn.
func TestASteeringMessageGoesOnWithTheTask(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	s := newSpeech()
	l.serve(newAgent(t, doc(t, handoffs(saidBilling, "")), agents.Options{As: "agent.triage", Model: s}))
	billing := l.hosted("agent.billing", ``, agents.Options{}, always("Vous aurez une facture.")...)
	task := l.task("agent.triage", `{"text":"go"}`, `{"stream":true}`)
	l.submit(task)
	<-s.asked
	s.words <- "BILLING"
	got, err := l.client.Command(l.ctx(), task.To, intents.SteerTask{Target: intents.Target{ID: task.ID}, Text: "in French"})
	if err != nil || !got.Steered {
		t.Fatalf("%+v, %v", got, err)
	}
	close(s.words)
	if got := l.result(task); got != `{"text":"Vous aurez une facture."}` {
		t.Errorf("result %s", got)
	}
	if got, want := spoken(billing.Requests()[0]), "user: go\nassistant: BILLING\nuser: The conversation is yours from here on. Go on with it.\nuser: in French"; got != want {
		t.Errorf("conversation:\n%s\nwant\n%s", got, want)
	}
}

func TestARuleIsAskedAfterToolCallsAndBeforeThem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		condition string
		tools     string // of the receiver
		called    bool
		want      string
	}{
		"after a call": {`{"lang": "cel", "expr": "has(output.tool) && tool.name == 'look' && output.tool == 'look'"}`, lookTool, true,
			"user: Help.\nassistant: Let me see. look{\"id\":1}\ntool: {\"tool\":\"look\"}"},
		"after a call, to one without tools": {`{"lang": "jmespath", "expr": "tool.arguments.id == ` + "`1`" + `"}`, "", true,
			"user: Help.\nassistant: Let me see.\n(I called the tool look with {\"id\":1}.)\nassistant: (The tool look said: {\"tool\":\"look\"})\nuser: The conversation is yours from here on. Go on with it."},
		"before the calls": {`{"lang": "jmespath", "expr": "tool == null && state.iteration == ` + "`1`" + `"}`, lookTool, false, // the payload's member tool is not the call
			"user: {\"text\":\"Help.\",\"tool\":\"look\"}\nassistant: Let me see.\nuser: The conversation is yours from here on. Go on with it."},
		"by the payload": {`{"lang": "jsonpath", "expr": "$.urgent"}`, lookTool, false,
			"user: {\"text\":\"Help.\",\"urgent\":true}\nassistant: Let me see.\nuser: The conversation is yours from here on. Go on with it."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			reg := registry(t, "look")
			turn := modeltest.Turn{Text: "Let me see.", Calls: []model.ToolCall{call("1", "look", `{"id":1}`)}}
			triage, billing := modeltest.New(turn, says("never")), modeltest.New(always("done")...)
			w.host(newAgent(t, doc(t, lookTool+`,`+handoffs(c.condition, "")), agents.Options{As: "agent.triage", Model: triage, Tools: reg}))
			text := c.tools
			w.host(newAgent(t, doc(t, text), agents.Options{As: "agent.billing", Model: billing, Tools: reg}))
			payload := `{"text":"Help."}`
			switch {
			case strings.Contains(c.condition, "tool == null"):
				payload = `{"text":"Help.","tool":"look"}`
			case strings.Contains(c.condition, "urgent"):
				payload = `{"text":"Help.","urgent":true}`
			}
			if got := w.send("agent.triage", payload, sending{}); got.err != nil || got.payload != `{"text":"done"}` {
				t.Fatalf("got %+v", got)
			}
			if n := len(triage.Requests()); n != 1 {
				t.Errorf("%d turns", n)
			}
			if got := spoken(billing.Requests()[0]); got != c.want {
				t.Errorf("conversation:\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

const lookTool = `"tools": [{"name": "look", "description": "Looks."}]`

func TestARuleThatDoesNotHoldChangesNothing(t *testing.T) {
	t.Parallel()
	for _, condition := range []string{
		`"the customer is angry"`, `{"lang": "never"}`, `{"lang": "cel", "expr": "output.missing == 1"}`, saidBilling,
	} {
		w := newWorld(t)
		a := newAgent(t, doc(t, handoffs(condition, "")), agents.Options{As: "agent.triage", Model: modeltest.New(says("fine"))})
		w.host(a)
		if got := w.send(a.Entity, `{"text":"x"}`, sending{}); got.payload != `{"text":"fine"}` {
			t.Errorf("%s: %+v", condition, got)
		}
	}
}

// A rule's confidence is what the agent's model says of its own output: not what the sender writes
// into the payload, and not what a tool says.
func TestARuleSeesTheAgentsConfidence(t *testing.T) {
	t.Parallel()
	turn := func(text string) modeltest.Turn {
		return modeltest.Turn{Text: text, Calls: []model.ToolCall{call("1", "look", `{"id":1}`)}}
	}
	for name, c := range map[string]struct {
		payload, tool string
		turns         []modeltest.Turn
		over          bool
	}{
		"none, and the payload's": {`{"text":"x","confidence":0.1}`, `{}`, []modeltest.Turn{says("fine")}, false},
		"low":                     {`{"text":"x"}`, `{}`, []modeltest.Turn{says(`{"answer":"fine","confidence":0.3}`)}, true},
		"low, in its evidence":    {`{"text":"x"}`, `{}`, []modeltest.Turn{says(`{"answer":"fine","decision_evidence":{"decision":"d","confidence":0.3}}`)}, true},
		"high":                    {`{"text":"x","confidence":0.1}`, `{}`, []modeltest.Turn{says(`{"answer":"fine","confidence":0.9}`)}, false},
		"in percent":              {`{"text":"x"}`, `{}`, []modeltest.Turn{says(`{"answer":"fine","confidence":-3}`)}, false},
		"no number":               {`{"text":"x"}`, `{}`, []modeltest.Turn{says(`{"answer":"fine","confidence":"low"}`)}, false},
		"a tool's":                {`{"text":"x"}`, `{"confidence":0.1}`, []modeltest.Turn{turn("Let me see."), says("fine")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, expr := range []string{"confidence < 0.5", "state.confidence < 0.5"} {
				w := newWorld(t)
				reg := new(tool.Registry)
				if err := reg.Add(tool.Raw(tool.Definition{Name: "look", Description: "Looks."}, func(context.Context, json.RawMessage) (json.RawMessage, error) {
					return json.RawMessage(c.tool), nil
				})); err != nil {
					t.Fatal(err)
				}
				w.host(newAgent(t, doc(t, lookTool+`,`+handoffs(`{"lang": "cel", "expr": "`+expr+`"}`, "")), agents.Options{As: "agent.triage", Model: modeltest.New(c.turns...), Tools: reg}))
				w.host(newAgent(t, doc(t, ""), agents.Options{As: "agent.billing", Model: modeltest.New(always("delegated")...)}))
				got := w.send("agent.triage", c.payload, sending{})
				if over := got.payload == `{"text":"delegated"}`; got.err != nil || over != c.over {
					t.Errorf("%s: %+v", expr, got)
				}
			}
		})
	}
}

func TestWithoutContextTheReceiverBeginsWithTheInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	billing := modeltest.New(always("done")...)
	w.host(newAgent(t, doc(t, handoffs(`{"lang": "always"}`, `, "pass_context": false`)), agents.Options{As: "agent.triage", Model: modeltest.New(says("secret thoughts"))}))
	w.host(newAgent(t, doc(t, ""), agents.Options{As: "agent.billing", Model: billing}))
	if got := w.send("agent.triage", `{"text":"Help."}`, sending{}); got.payload != `{"text":"done"}` {
		t.Fatalf("got %+v", got)
	}
	if got := spoken(billing.Requests()[0]); got != "user: Help." {
		t.Errorf("conversation:\n%s", got)
	}
}

func TestMemoryGoesAlongAsTheRuleAndTheScopesSay(t *testing.T) {
	t.Parallel()
	items := []aaif.MemoryItem{
		{Scope: aaif.ScopeLongTerm, Key: "facts", Content: "1"}, {Scope: aaif.ScopeUser, Key: "customer", Content: "2"},
		{Scope: aaif.ScopeUser, Key: "other", Content: "3"}, {Scope: aaif.ScopeTask, Key: "customer", Content: "4"}, {Scope: aaif.ScopeLongTerm, Key: "customer", Content: "5"},
	}
	byAlias := handoffs(saidBilling, "")
	for text, want := range map[string]string{
		byAlias: "2 5", handoffs(saidBilling, `, "pass_memory": true`): "1 2 5",
		strings.ReplaceAll(byAlias, `"target_agent": "billing"`, `"target_agent": "agent.billing"`): "2 5",
	} {
		for _, durable := range []bool{false, true} {
			l := newLane(t)
			l.serve(&agents.Agent{Agent: mesh.Agent{Entity: "agent.first", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				c := state.New("agent.first", task.Envelope.ID, "")
				c.Doc.MemorySnapshot = items
				c.Append(model.User("Help."), time.Now(), 0)
				return task.Delegate(ctx, mesh.Delegation{To: "agent.triage", State: c})
			})}})
			l.hosted("agent.triage", text, agents.Options{}, always("BILLING")...)
			l.serve(&agents.Agent{Agent: mesh.Agent{Entity: "agent.billing", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				c, err := task.HandedState(ctx)
				if err != nil {
					return nil, err
				}
				var got []string
				for _, m := range c.Doc.MemorySnapshot {
					got = append(got, m.Content)
				}
				return json.Marshal(map[string]string{"memory": strings.Join(got, " ")})
			})}})
			reply, err := l.ask(durable, "agent.first", `{"text":"Help."}`)
			if err != nil || string(reply.Payload) != fmt.Sprintf(`{"memory":%q}`, want) {
				t.Errorf("%s durable=%v: %v, %v", text, durable, reply, err)
			}
		}
	}
}

func TestASealedConversationOpensOnlyWithItsKey(t *testing.T) {
	t.Parallel()
	key := func(id string, b byte) *state.Keyring {
		k, err := state.NewKeyring(state.Key{ID: id, Secret: []byte(strings.Repeat(string(b), 32))})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	ring := key("k1", 'a')
	for name, c := range map[string]struct {
		keys *state.Keyring
		want envelope.Code
	}{"the same key": {ring, ""}, "no key": {nil, envelope.CodeDenied}, "another key": {key("k2", 'b'), envelope.CodeDenied}} {
		l := newLane(t)
		l.hosted("agent.triage", handoffs(saidBilling, ""), agents.Options{StateKeys: ring}, says("BILLING"))
		l.hosted("agent.billing", "", agents.Options{StateKeys: c.keys}, always("done")...)
		_, err := l.ask(true, "agent.triage", `{"text":"Help."}`)
		if got := envelope.AsError(err); err == nil && c.want != "" || err != nil && got.Code != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An agent whose state must be encrypted, and that has no key, is served live. Its conversation goes
// along with no task where the mesh would store it.
func TestAConversationThatMustBeSealedIsNotStoredInTheClear(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	a := newAgent(t, doc(t, handoffs(saidBilling, "")+`, "compliance": {"pii_handling": "encrypt"}`), agents.Options{As: "agent.triage", Model: modeltest.New(says("BILLING"))})
	ready := make(chan struct{})
	l.hosted("agent.billing", "", agents.Options{}, always("done")...)
	coming := make(chan struct{})
	a.Ready = func() { close(ready) }
	l.host(a, func(d *mesh.Durable) { d.Ready = coming })
	natstest.Within(t, "the agent", ready)
	close(coming)
	_, err := l.ask(false, a.Entity, `{"text":"Help."}`)
	if got := envelope.AsError(err); err == nil || got.Code != envelope.CodeDenied {
		t.Errorf("%v", err)
	}
	states, err := l.js(l.conn).KeyValue(l.ctx(), jetstream.BucketState)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := states.ListKeys(l.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for key := range keys.Keys() {
		if e, err := states.Get(l.ctx(), key); err != nil || strings.Contains(string(e.Value()), "Help.") {
			t.Errorf("stored as %s: %s, %v", key, e.Value(), err)
		}
	}
}

func TestAHandOverHasASpan(t *testing.T) {
	t.Parallel()
	program := newProgram(t, "serve", nil)
	handler := mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		c := state.New("agent.triage", task.Envelope.ID, "")
		c.Append(model.User("Help."), time.Now(), 0)
		return task.Delegate(ctx, mesh.Delegation{To: "agent.billing", State: c})
	})
	for name, c := range map[string]struct {
		document, payload string
		opts              agents.Options
		context           bool
	}{
		"by a rule":       {handoffs(`{"lang": "always"}`, ""), `{"text":"Help."}`, agents.Options{Model: modeltest.New(says("x"))}, true},
		"by a Go handler": {"", `{"text":"Help."}`, agents.Options{Handler: handler}, true},
		"by a program":    {"", do("handoff", `{"to":"agent.billing"}`), agents.Options{Program: program}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			spans := tracetest.NewInMemoryExporter()
			c.opts.As, c.opts.Telemetry = "agent.triage", agents.Telemetry{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}
			w.host(newAgent(t, doc(t, c.document), c.opts))
			w.host(newAgent(t, doc(t, ""), agents.Options{As: "agent.billing", Model: modeltest.New(always("done")...)}))
			if got := w.send("agent.triage", c.payload, sending{}); got.err != nil || got.payload != `{"text":"done"}` {
				t.Fatalf("got %+v", got)
			}
			find := func(name string) (found []tracetest.SpanStub) {
				for _, s := range spans.GetSpans() {
					if s.Name == name {
						found = append(found, s)
					}
				}
				return found
			}
			until(t, "the run's span", func() bool { return len(find("aaif.agent.run")) == 1 })
			run, handed := find("aaif.agent.run")[0], find("aaif.agent.handoff")
			if len(handed) != 1 {
				t.Fatalf("%d spans of the delegation", len(handed))
			}
			span := handed[0]
			if span.Parent.SpanID() != run.SpanContext.SpanID() {
				t.Error("the span is no child of the run's")
			}
			for _, want := range []attribute.KeyValue{attribute.String("target_agent.id", "agent.billing"), attribute.Bool("pass_context", c.context)} {
				if !slices.Contains(span.Attributes, want) {
					t.Errorf("no %v in %v", want, span.Attributes)
				}
			}
			for _, s := range []tracetest.SpanStub{run, span} {
				if s.Status.Code.String() == "Error" {
					t.Errorf("%s seems to have failed: %v", s.Name, s.Status)
				}
			}
		})
	}
}

func TestNobodyToHandOnToIsToldToTheCaller(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"agent.billing", "nobody-knows"} {
		w := newWorld(t)
		text := strings.ReplaceAll(handoffs(`{"lang": "always"}`, ""), `"target_agent": "billing"`, `"target_agent": "`+target+`"`)
		w.host(newAgent(t, doc(t, text), agents.Options{As: "agent.triage", Model: modeltest.New(says("x"))}))
		want := envelope.CodeUnavailable
		if target != "agent.billing" {
			want = envelope.CodeNotFound
		}
		if got := w.send("agent.triage", `{"text":"Help."}`, sending{}); got.err == nil || got.err.Code != want {
			t.Errorf("%s: got %+v", target, got)
		}
	}
}

// A run that is delegated to a person waits without a worker; the model is not
// called again, and the person's answer is the task's.
func TestARuleHandsTheTaskToAPerson(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	text := strings.ReplaceAll(handoffs(saidBilling, ""), "agent.billing", "human.boss")
	triage := l.hosted("agent.triage", text, agents.Options{}, says("This is for BILLING."))
	task := l.task("agent.triage", `{"text":"I was charged twice."}`, "")
	l.submit(task)
	l.until(task, "it waits", func(cp *state.Checkpoint) bool { return cp.Doc.Status == aaif.RunAwaitingApproval })
	asks, err := l.client.PersonTasks(l.ctx(), "human.boss")
	if err != nil || len(asks) != 1 {
		t.Fatalf("%d asks, %v", len(asks), err)
	}
	var shown struct {
		Text string
		Over struct {
			By           string
			Conversation []struct{ Role, Content string }
		} `json:"handed_over"`
	}
	if err := json.Unmarshal(asks[0].Task.Payload, &shown); err != nil || shown.Text != "I was charged twice." || shown.Over.By != "agent.triage" || len(shown.Over.Conversation) != 2 {
		t.Errorf("shown %s, %v", asks[0].Task.Payload, err)
	}
	answer := asks[0].Task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"I pay it back."}`))
	if err := l.client.AnswerPersonTask(l.ctx(), asks[0], answer); err != nil {
		t.Fatal(err)
	}
	if got := l.result(task); got != `{"text":"I pay it back."}` {
		t.Errorf("result %s", got)
	}
	if n := len(triage.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
}

// If the receiver must be called, and the worker crashes meanwhile, the next
// worker waits for the same call: neither the model nor the receiver is called
// again.
func TestTheNextWorkerWaitsForACalledReceiver(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	l := newLane(t).shortLeases()
	entered, release := make(chan struct{}, 4), make(chan struct{})
	l.serve(&agents.Agent{Agent: mesh.Agent{Entity: "agent.billing", Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
		entered <- struct{}{}
		<-release
		return json.RawMessage(`{"text":"done"}`), nil
	})}})
	fake := modeltest.New(says("This is for BILLING."))
	host := func() *worker {
		return l.host(newAgent(t, doc(t, handoffs(saidBilling, "")), agents.Options{As: "agent.triage", Model: fake}), nil)
	}
	first := host()
	task := l.task("agent.triage", `{"text":"I was charged twice."}`, `{"handoff":false}`)
	l.submit(task)
	within := func(c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(patience):
			t.Fatal("never")
		}
	}
	within(entered)
	first.kill()
	host()
	l.until(task, "another has the run", func(cp *state.Checkpoint) bool { return cp.Mesh.Epoch == 2 })
	close(release)
	if got := l.result(task); got != `{"text":"done"}` {
		t.Errorf("result %s", got)
	}
	if n := len(fake.Requests()); n != 1 || len(entered) != 0 {
		t.Errorf("the model was asked %d times, the receiver %d times more", n, len(entered))
	}
}

// A plain text needs an answer in plain text, so the receiver is called; it
// gets the conversation nevertheless.
func TestARuleHandsTheConversationOnForPlainText(t *testing.T) {
	t.Parallel()
	for _, streams := range []bool{false, true} { // with JetStream: by reference
		var node *mesh.Node
		var host func(*agents.Agent)
		if streams {
			l := newLane(t)
			node, host = l.client, l.serve
		} else {
			w := newWorld(t)
			node, host = w.node, func(a *agents.Agent) { w.host(a) }
		}
		billing := modeltest.New(always("You will get an invoice.")...)
		host(newAgent(t, doc(t, handoffs(saidBilling, "")), agents.Options{As: "agent.triage", Model: modeltest.New(says("This is for BILLING."))}))
		host(newAgent(t, doc(t, ""), agents.Options{As: "agent.billing", Model: billing}))
		if text, err := node.Ask(t.Context(), "agent.triage", "I was charged twice."); err != nil || text != "You will get an invoice." {
			t.Fatalf("ask: %q, %v", text, err)
		}
		if got, want := spoken(billing.Requests()[0]), "user: I was charged twice.\nassistant: This is for BILLING.\nuser: The conversation is yours from here on. Go on with it."; got != want {
			t.Errorf("conversation:\n%s\nwant\n%s", got, want)
		}
	}
}

// The rules of a swarm that its model merges are evaluated after the model's turn. A receiver that
// had to be called has answered then, and is not called again with its own answer.
func TestARuleOfASwarmCallsTheReceiverOnce(t *testing.T) {
	t.Parallel()
	const crew = `"orchestration": {"parallel_execution": true, "subagents": [{"ref": "agent.one", "alias": "one"}], "handoff": [{"condition": {"lang": "always"}, "target_agent": "agent.billing"}]}`
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			t.Parallel()
			l := newLane(t)
			one := &member{name: "one"}
			l.serve(one.agent())
			l.hosted("agent.triage", crew, agents.Options{}, always("merged")...)
			billing := l.hosted("agent.billing", "", agents.Options{}, always("You will get an invoice.")...)
			const want = "You will get an invoice."
			if plain {
				if text, err := l.client.Ask(l.ctx(), "agent.triage", "I was charged twice."); err != nil || text != want {
					t.Errorf("ask: %q, %v", text, err)
				}
			} else {
				task := l.task("agent.triage", `{"text":"I was charged twice."}`, `{"handoff":false}`)
				reply, err := l.client.Send(l.ctx(), task, mesh.SendOptions{})
				if err != nil || !strings.Contains(string(reply.Payload), want) {
					t.Errorf("%+v, %v", reply, err)
				}
			}
			if n := len(billing.Requests()); n != 1 || one.calls.Load() != 1 {
				t.Errorf("the receiver took %d turns, the member was called %d times; want 1 of each", n, one.calls.Load())
			}
		})
	}
}

func TestAProgramHandsItsTaskOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host(newAgent(t, doc(t, ""), agents.Options{As: "agent.program", Program: newProgram(t, "run", nil)}))
	w.host(newAgent(t, doc(t, echoModel), agents.Options{As: "agent.billing"}))
	do := func(payload string) sent {
		raw, err := json.Marshal(map[string]string{"do": "handoff", "text": payload})
		if err != nil {
			t.Fatal(err)
		}
		return w.send("agent.program", string(raw), sending{})
	}
	if got := do(`{"to":"agent.billing","payload":{"text":"yours"}}`); !strings.HasPrefix(got.payload, `{"text":"yours"`) {
		t.Errorf("got %+v", got)
	}
	for _, bad := range []string{`{}`, `{"to":"agent.billing","payload":1}`, `{"to":1}`} {
		if got := do(bad); got.err == nil || got.err.Code != envelope.CodeAgent {
			t.Errorf("%s: got %+v", bad, got)
		}
	}
	// Only the program's author can correct the name of a receiver.
	for to, want := range map[string]string{
		"billing":    `the agent's program delegated the task to "billing", which is no entity`,
		"bus.orders": "the agent's program delegated the task to bus.orders, where no worker answers",
	} {
		if got := do(`{"to":"` + to + `"}`); got.err == nil || got.err.Code != envelope.CodeAgent || !strings.HasPrefix(got.err.Message, want) {
			t.Errorf("to %s: got %+v, want %s", to, got.err, want)
		}
	}
	// A member that is not read would be lost.
	got := do(`{"to":"agent.billing","text":"mine","intend":"x"}`)
	const want = `the agent's program delegated the task with "intend", "text", which is not read: the members are to, reason, intent and payload, and the receiver's data belongs into the payload`
	if got.err == nil || got.err.Code != envelope.CodeAgent || got.err.Message != want {
		t.Errorf("got %v, %s", got.err, got.payload)
	}
}
