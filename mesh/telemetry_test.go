package mesh_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/metrictest"
)

// checkTrace holds a message's header against its envelope's trace.
func checkTrace(t *testing.T, msg *nats.Msg) (traceID, spanID string) {
	t.Helper()
	tc, ok := parse(t, msg.Data).TraceContext()
	if !ok {
		t.Fatalf("no trace in %s", msg.Data)
	}
	parts := strings.Split(msg.Header.Get("traceparent"), "-")
	if len(parts) != 4 || parts[1] != tc.TraceID || parts[2] != tc.SpanID {
		t.Errorf("traceparent %v, trace %+v", parts, tc)
	}
	return tc.TraceID, tc.SpanID
}

func TestTraceGoesOverTwoHopsAsOneTree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spans := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	lanes := r.listen("agent.>")
	inboxes := r.listen("_INBOX.>")
	a := r.node(mesh.Config{Entity: "agent.a", TracerProvider: tp})
	wb := r.serve(r.node(mesh.Config{TracerProvider: tp}), mesh.Agent{Entity: "agent.b", Handler: echo})
	wa := r.serve(a, mesh.Agent{Entity: "agent.a", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		sub := envelope.New(envelope.TypeTask, "agent.a", "agent.b", "code.review", task.Envelope.Payload)
		sub.Corr = task.Envelope.Corr
		reply, err := a.Send(ctx, sub, mesh.SendOptions{})
		if err != nil {
			return nil, err
		}
		return reply.Payload, nil
	})})
	client := r.node(mesh.Config{TracerProvider: tp})
	ctx, root := tp.Tracer("test").Start(t.Context(), "root")
	if _, err := client.Send(ctx, newTask("agent.a", "code.review", `{"n":1}`), mesh.SendOptions{}); err != nil {
		t.Fatal(err)
	}
	root.End()
	wa.end()
	wb.end()
	settle(t, r.nc)

	want := root.SpanContext().TraceID().String()
	n := 0
	for _, msg := range append(drained(lanes), drained(inboxes)...) {
		if e, err := envelope.Parse(msg.Data); err == nil && e.To != "bus.mesh.task" {
			n++
			if traceID, _ := checkTrace(t, msg); traceID != want {
				t.Errorf("%s has trace %s, want %s", msg.Subject, traceID, want)
			}
		}
	}
	equal(t, "messages with a trace", n, 4)

	parents, names := map[string]string{}, map[string]string{}
	for _, s := range spans.GetSpans() {
		equal(t, s.Name+": trace", s.SpanContext.TraceID().String(), want)
		id := s.SpanContext.SpanID().String()
		parents[id], names[id] = s.Parent.SpanID().String(), s.Name
	}
	var tree []string
	for id, name := range names {
		path := name
		for up := parents[id]; names[up] != ""; up = parents[up] {
			path = names[up] + " > " + path
		}
		tree = append(tree, path)
	}
	equal(t, "spans", len(tree), 5)
	const deepest = "root > aee.send agent.a > aee.task agent.a > aee.send agent.b > aee.task agent.b"
	if !strings.Contains(strings.Join(tree, "\n"), deepest) {
		t.Errorf("spans:\n%s\nwant %s", strings.Join(tree, "\n"), deepest)
	}
}

// A sender may have written only one of the two.
func TestTraceIsTakenFromTheHeaderOrTheEnvelope(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spans := tracetest.NewInMemoryExporter()
	r.serve(r.node(mesh.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}), mesh.Agent{Handler: echo})
	const traceID, spanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	header := nats.Header{"traceparent": {"00-" + traceID + "-" + spanID + "-01"}}
	for name, c := range map[string]struct {
		header nats.Header
		trace  string
		parent string
	}{
		"header":          {header, ``, spanID},
		"envelope":        {nil, `{"trace_id":"` + traceID + `","span_id":"` + spanID + `"}`, spanID},
		"broken header":   {nats.Header{"traceparent": {"00-nonsense"}}, `{"trace_id":"` + traceID + `","span_id":"` + spanID + `"}`, spanID},
		"somebody else's": {nil, `{"trace_id":"9f3c","span_id":"b77c"}`, "0000000000000000"},
	} {
		spans.Reset()
		task := newTask(reviewer, "code.review", `{}`)
		if c.trace != "" {
			task.Trace = json.RawMessage(c.trace)
		}
		checkTrace(t, r.requestRaw(reviewer, encode(t, task), c.header))
		eventually(t, "the span ends", func() bool { return len(spans.GetSpans()) == 1 })
		equal(t, name, spans.GetSpans()[0].Parent.SpanID().String(), c.parent)
	}
}

// AAIF telemetry.trace_context_header: a trace travels in the header that the
// agent names, to it and from it.
func TestTraceTravelsInTheHeaderThatTheAgentNames(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spans := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	const traceID, spanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	node := r.node(mesh.Config{Entity: reviewer, TracerProvider: tp})
	posted := r.listen("bus.told")
	r.serve(node, mesh.Agent{TraceHeader: "X-Trace", Handler: mesh.HandlerFunc(func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
		return nil, node.Post(ctx, envelope.New(envelope.TypeEvent, reviewer, "bus.told", "test.told", nil))
	})})
	for _, name := range []string{"X-Trace", "x-trace"} {
		spans.Reset()
		answer := r.requestRaw(reviewer, encode(t, newTask(reviewer, "code.review", `{}`)), nats.Header{name: {"00-" + traceID + "-" + spanID + "-01"}})
		eventually(t, "the span ends", func() bool { return len(spans.GetSpans()) == 1 })
		span := spans.GetSpans()[0]
		want := "00-" + traceID + "-" + span.SpanContext.SpanID().String() + "-01"
		equal(t, "parent", span.Parent.SpanID().String(), spanID)
		equal(t, "answer", answer.Header.Get("X-Trace")+answer.Header.Get("traceparent"), want)
		equal(t, "sent", within(t, "what was sent", posted).Header.Get("X-Trace"), want)
	}
	for _, name := range []string{"Nats-Msg-Id", "Aee-Run", "two words", "a:b", "content-type"} {
		if err := node.Serve(t.Context(), mesh.Agent{Entity: reviewer, Handler: echo, TraceHeader: name}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("header %q: %v", name, err)
		}
	}
}

func TestTelemetryOffPassesForeignTraceThrough(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	events := r.listen("bus.mesh.task")
	r.serve(r.node(mesh.Config{}), mesh.Agent{Handler: echo})
	task := newTask(reviewer, "code.review", `{}`)
	task.Trace = json.RawMessage(`{"span_id":"b77c", "trace_id":"9f3c","mine":[1.0]}`)
	answer := r.requestRaw(reviewer, encode(t, task), nil)
	equal(t, "trace", string(parse(t, answer.Data).Trace), string(task.Trace))
	equal(t, "header", len(answer.Header), 0)
	equal(t, "event's trace", string(parse(t, within(t, "started", events).Data).Trace), string(task.Trace))
}

func TestFailedTaskHasAFailedSpan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spans := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	r.serve(r.node(mesh.Config{TracerProvider: tp}), mesh.Agent{Handler: failing(envelope.Errorf("E_MINE", "secret text"))})
	r.node(mesh.Config{TracerProvider: tp}).Send(t.Context(), newTask(reviewer, "code.review", `{}`), mesh.SendOptions{})
	eventually(t, "both spans end", func() bool { return len(spans.GetSpans()) == 2 })
	for _, s := range spans.GetSpans() {
		equal(t, s.Name, s.Status.Description, "E_MINE")
	}
}

func TestMetricsAreRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	meter, collect := metrictest.New()
	r.serve(r.node(mesh.Config{MeterProvider: meter}), mesh.Agent{Handler: mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		if string(task.Envelope.Payload) == `{"fail":true}` {
			return nil, envelope.Errorf("E_MINE", "no luck")
		}
		return nil, nil
	})})
	for _, payload := range []string{`{}`, `{}`, `{"fail":true}`} {
		r.request(newTask(reviewer, "code.review", payload))
	}
	r.requestRaw(reviewer, []byte("{"), nil)
	stale := newTask(reviewer, "code.review", `{}`)
	stale.TS = "2001-01-01T00:00:00Z"
	r.request(stale)
	got := func() map[string]float64 {
		var data metricdata.ResourceMetrics
		if err := collect(t.Context(), &data); err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		label := func(set attribute.Set) string {
			v, ok := set.Value("aee.outcome")
			if !ok {
				v, _ = set.Value("error.type")
			}
			return " " + v.AsString()
		}
		for _, m := range data.ScopeMetrics[0].Metrics {
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					out[m.Name+label(p.Attributes)] = float64(p.Count)
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					out[m.Name+label(p.Attributes)] = float64(p.Value)
				}
			}
		}
		return out
	}
	want := map[string]float64{
		"aee.task.duration ok": 2, "aee.task.duration E_MINE": 1,
		"aee.task.queue.duration ok": 2, "aee.task.queue.duration E_MINE": 1,
		"aee.messages.refused malformed": 1, "aee.messages.refused E_STALE": 1,
	}
	eventually(t, "all is recorded", func() bool { return len(got()) == len(want) })
	equal(t, "metrics", got(), want)
}
