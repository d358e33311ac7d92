package agents

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/buckets"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/metrictest"
)

// AAIF, Telemetry: tracing and metrics are on by default, and a document switches each off.
func TestADocumentSwitchesTelemetryOff(t *testing.T) {
	t.Parallel()
	type made struct{ spans, metrics bool }
	for telemetry, want := range map[string]made{
		`{}`: {true, true}, `{"tracing": false}`: {false, true}, `{"metrics": false}`: {true, false}, `{"tracing": false, "metrics": false}`: {},
	} {
		doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent":{"name":"Clerk","goal":"Look.","telemetry":`+telemetry+`}}`), aaif.Options{})
		if err != nil {
			t.Fatal(err)
		}
		spans := tracetest.NewInMemoryExporter()
		meter, collect := metrictest.New()
		opts := Options{Model: modeltest.New(modeltest.Turn{Text: "done"})}
		opts.Telemetry.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		opts.Telemetry.Meter = meter
		a, err := New(doc, opts)
		if err != nil {
			t.Fatal(err)
		}
		task := &mesh.Task{Envelope: envelope.New(envelope.TypeTask, "human.ada", a.Entity, "test.run", json.RawMessage(`{"text":"go"}`))}
		if _, err := a.Handler.Handle(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		var all metricdata.ResourceMetrics
		if err := collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		if got := (made{len(spans.GetSpans()) > 0, len(all.ScopeMetrics) > 0}); got != want {
			t.Errorf("%s: made %+v, want %+v", telemetry, got, want)
		}
	}
}

func TestHistogramsOfAgentsHaveTheBoundsOfTheirConvention(t *testing.T) {
	t.Parallel()
	meter, collect := metrictest.New()
	r := &reporter{}
	if err := r.instruments(meter); err != nil {
		t.Fatal(err)
	}
	r.operations.Inst().Record(t.Context(), 1)
	r.firstChunk.Inst().Record(t.Context(), 1)
	r.tools.Record(t.Context(), 1)
	r.tokens.Inst().Record(t.Context(), 1)
	var all metricdata.ResourceMetrics
	if err := collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			got[m.Name] = data.DataPoints[0].Bounds
		case metricdata.Histogram[int64]:
			got[m.Name] = data.DataPoints[0].Bounds
		}
	}
	want := map[string][]float64{"gen_ai.client.operation.duration": buckets.ModelCalls(), "gen_ai.client.operation.time_to_first_chunk": buckets.ModelCalls(),
		"gen_ai.client.token.usage": buckets.Tokens(), "aaif.agent.tool_call.duration": buckets.Durations()}
	if !maps.EqualFunc(got, want, slices.Equal[[]float64]) {
		t.Errorf("the bounds are %v, want %v", got, want)
	}
}
