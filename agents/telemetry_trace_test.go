package agents

import (
	"context"
	"encoding/json"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// The trace of a task is passed on to the agent's tools, in the header that the
// document names, whether or not the agent or the mesh records spans.
func TestATraceGoesThroughAgentsThatMakeNoSpans(t *testing.T) {
	t.Parallel()
	const traceID, spanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	const hop = "00f067aa0ba902b7"
	for name, c := range map[string]struct {
		telemetry    string
		hop          bool // the mesh has begun a span
		header, want string
	}{
		"no telemetry":          {`{}`, false, "traceparent", "00-" + traceID + "-" + spanID + "-01"},
		"tracing off":           {`{"tracing": false}`, false, "traceparent", "00-" + traceID + "-" + spanID + "-01"},
		"tracing off, a hop":    {`{"tracing": false, "metrics": false}`, true, "traceparent", "00-" + traceID + "-" + hop + "-01"},
		"a header of their own": {`{"tracing": false, "trace_context_header": "x-trace"}`, false, "x-trace", "00-" + traceID + "-" + spanID + "-01"},
	} {
		var header, value string
		reg := new(tool.Registry)
		if err := reg.Add(tool.Raw(tool.Definition{Name: "look", Description: "Looks."}, func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			header, value = tool.TraceFrom(ctx)
			return json.RawMessage(`{}`), nil
		})); err != nil {
			t.Fatal(err)
		}
		doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent":{"name":"Clerk","goal":"Look.","telemetry":`+c.telemetry+`,"tools":[{"name":"look","description":"Looks."}]}}`), aaif.Options{Kind: aaif.KindAgent})
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(doc, Options{Tools: reg, Model: modeltest.New(modeltest.Turn{Calls: []model.ToolCall{wish("1", "look")}}, modeltest.Turn{Text: "done"})})
		if err != nil {
			t.Fatal(err)
		}
		e := envelope.New(envelope.TypeTask, "human.ada", a.Entity, "test.run", json.RawMessage(`{"text":"go"}`))
		e.SetTraceContext(envelope.TraceContext{TraceID: traceID, SpanID: spanID})
		ctx := t.Context()
		if c.hop {
			id, err1 := trace.TraceIDFromHex(traceID)
			span, err2 := trace.SpanIDFromHex(hop)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled}))
		}
		if _, err := a.Handler.Handle(ctx, &mesh.Task{Envelope: e}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if header != c.header || value != c.want {
			t.Errorf("%s: the tool is told %q: %q, want %q: %q", name, header, value, c.header, c.want)
		}
	}
}
