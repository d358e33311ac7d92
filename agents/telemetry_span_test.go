package agents

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Mutation M3 of the traceability review.
func TestTelemetryShowsEndpointsWithoutSecrets(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"":                                      "",
		"https://x.example":                     "https://x.example",
		"https://x.example:8443/a/":             "https://x.example:8443/a/",
		"https://ada:pw@x.example/a?key=1#frag": "https://x.example/a",
		"https://ada:p@ss@x.example?key=1":      "https://x.example",
		"https://x.example/a?next=https://u:p@other": "https://x.example/a",
		"https://x.example/~ada@home":                "https://x.example/~ada@home",
		"https://x.example#token=1":                  "https://x.example",
		"ada:pw@x.example/a":                         "x.example/a",
		"mcp://ada:pw@shelf/*":                       "mcp://shelf/*",
	} {
		if got := redactEndpoint(endpoint); got != want {
			t.Errorf("%s is shown as %s, want %s", endpoint, got, want)
		}
	}
}

// spansOf runs a task at an agent of this document, and returns its spans by name.
func spansOf(t *testing.T, document string, opts Options, begun func(*loop, *mesh.Task) *run) map[string]tracetest.SpanStub {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	opts.Telemetry.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	doc, err := aaif.Parse([]byte(document), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(doc, opts)
	if err != nil {
		t.Fatal(err)
	}
	task := &mesh.Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", a.Entity, "test.run", json.RawMessage(`{"text":"go"}`))}
	h := a.Handler.(reported)
	if begun != nil {
		l := h.Handler.(*loop)
		r := begun(l, task)
		h.Handler = mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
			return l.work(ctx, task, r, r.journal.(*paper).last)
		})
	}
	if _, err := h.Handle(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	out := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		out[s.Name] = s
	}
	return out
}

func hasAttributes(t *testing.T, span tracetest.SpanStub, want ...attribute.KeyValue) {
	t.Helper()
	for _, kv := range want {
		if !slices.Contains(span.Attributes, kv) {
			t.Errorf("span %q has no %s = %s: %v", span.Name, kv.Key, kv.Value.Emit(), span.Attributes)
		}
	}
}

// AAIF, Telemetry: the spans of a run, with the attributes that the draft lists.
// (Mutations M3, E2 and E3 of the traceability review.)
func TestSpansOfARun(t *testing.T) {
	t.Parallel()
	m := modeltest.New(
		modeltest.Turn{Calls: []model.ToolCall{wish("1", "look")}, Usage: model.Usage{InputTokens: 5, OutputTokens: 3}},
		modeltest.Turn{Text: "done", Usage: model.Usage{InputTokens: 7, OutputTokens: 2}},
	)
	spans := spansOf(t, `{"sc_standard":"SC-006","agent_id":"0b5c7f0e-8d0d-4f0e-9d52-0d3f3c1a7c11","agent":{"name":"Clerk","version":"1.2.3","goal":"Look.",
		"model":{"provider":"openai","preferred":"m-1"},
		"tools":[{"name":"look","description":"Looks.","protocol":"http","endpoint":"https://x.example/a?page=1#top"}]}}`, Options{
		Model: m, Offer: aaif.Offer{Capabilities: aaif.SetOf(aaif.CapToolHTTP)},
		Open: func(*aaif.Tool) (tool.Source, error) {
			return tool.Static(tool.Raw(tool.Definition{Name: "look"}, func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`{}`), nil })), nil
		},
	}, nil)
	hasAttributes(t, spans["aaif.agent.run"], attribute.String("agent.id", "0b5c7f0e-8d0d-4f0e-9d52-0d3f3c1a7c11"), attribute.String("agent.name", "Clerk"),
		attribute.String("agent.version", "1.2.3"), attribute.String("model.provider", "openai"), attribute.String("model.name", "m-1"))
	hasAttributes(t, spans["aaif.agent.llm_call"], attribute.String("llm.provider", "openai"), attribute.String("llm.model", "m-1"),
		attribute.Int("llm.input_tokens", 7), attribute.Int("llm.output_tokens", 2))
	hasAttributes(t, spans["aaif.agent.tool_call"], attribute.String("tool.name", "look"), attribute.String("tool.protocol", "http"), attribute.String("tool.endpoint", "https://x.example/a"))
	for name, span := range spans {
		for _, kv := range span.Attributes {
			if strings.Contains(kv.Value.Emit(), "page=1") {
				t.Errorf("span %s: %s tells the query of an endpoint", name, kv.Key)
			}
		}
	}
}

// AAIF, Telemetry: memories that are handed to where they are kept.
// (Mutation M12 of the traceability review.)
func TestRestoredMemoriesHaveASpan(t *testing.T) {
	t.Parallel()
	spans := spansOf(t, `{"sc_standard":"SC-006","agent":{"name":"Clerk","goal":"Look.",
		"memory":[{"scope":"user","backend":"redis","content":"x"},{"scope":"long_term","backend":"qdrant","content":"y"}]}}`, Options{
		Model: modeltest.New(modeltest.Turn{Text: "done"}), Memory: new(memories),
	}, func(_ *loop, task *mesh.Task) *run {
		cp := state.New(task.Envelope.To, task.Envelope.ID, "")
		cp.Doc.Conversation = []aaif.Message{{Role: aaif.MessageUser, Content: "go"}}
		cp.Doc.MemorySnapshot = []aaif.MemoryItem{{Scope: aaif.ScopeUser, Key: "a", Content: "1"}, {Scope: aaif.ScopeLongTerm, Key: "b", Content: "2"}, {Scope: aaif.ScopeUser, Key: "c", Content: "3"}}
		return &run{journal: newPaper(t, cp), input: task.Envelope.Payload}
	})
	hasAttributes(t, spans["aaif.agent.memory_write"], attribute.String("memory.scope", "long_term,user"), attribute.String("memory.backend", "redis,qdrant"), attribute.Int("aee.memory.items", 3))
}
