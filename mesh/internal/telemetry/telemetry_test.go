package telemetry

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/buckets"
	"github.com/aeemesh/aeemesh/mesh/metrictest"
)

var denied = envelope.Errorf(envelope.CodeDenied, "no")

func newTask() *envelope.Envelope {
	return envelope.New(envelope.TypeTask, "human.ada", "agent.a", "x.y.z", json.RawMessage(`{}`))
}

// Without a provider nothing is recorded, and nothing fails.
func TestWithoutAProviderNothingIsRecorded(t *testing.T) {
	t.Parallel()
	tel, err := New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := newTask()
	span := Start(Begun{Tracer: tel.Tracer, Entity: "agent.a", Task: e})
	span.Inject(e)
	tel.Refused("agent.a", "E_DENIED")
	tel.Ended(span, "agent.a", time.Now(), time.Second, denied)
	tel.Lane.Recovered("agent.a")
	if span.Traceparent() != "" || len(e.Trace) != 0 || span.Context(t.Context()) != t.Context() {
		t.Errorf("a span: %q, %v", span.Traceparent(), e.Trace)
	}
}

// A task has one span, which is an error if the task ends with one, and its place in the metrics.
func TestATaskHasASpanAndItsMetrics(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	meter, collect := metrictest.New()
	tel, err := New(trace.NewTracerProvider(trace.WithSpanProcessor(spans)), meter)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range []*envelope.Error{nil, denied} {
		span := Start(Begun{Tracer: tel.Tracer, Entity: "agent.a", Subject: "aee.task.a", Name: "traceparent", Task: newTask()})
		if span.Traceparent() == "" {
			t.Error("the span has no header")
		}
		tel.Ended(span, "agent.a", time.Now(), time.Second, problem)
	}
	tel.Refused("agent.a", "E_DENIED")
	tel.Lane.Recovered("agent.a")
	ended := spans.Ended()
	if len(ended) != 2 || ended[0].Status().Code == codes.Error || ended[1].Status().Code != codes.Error || ended[0].Name() != "aee.task agent.a" {
		t.Errorf("the spans are %v", ended)
	}
	var all metricdata.ResourceMetrics
	if err := collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					outcome, _ := p.Attributes.Value(attribute.Key("aee.outcome"))
					got[m.Name+" "+outcome.AsString()] += p.Count
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[m.Name] += uint64(p.Value)
				}
			}
		}
	}
	for _, name := range []string{"aee.task.duration ok", "aee.task.duration E_DENIED", "aee.task.queue.duration ok", "aee.task.queue.duration E_DENIED", "aee.messages.refused", "aee.run.recoveries"} {
		if got[name] != 1 {
			t.Errorf("%s: %d, want 1; all are %v", name, got[name], got)
		}
	}
}

// Durations are in seconds and sizes in bytes, which OpenTelemetry's default bounds do not suit.
func TestNoHistogramHasTheDefaultBounds(t *testing.T) {
	t.Parallel()
	meter, collect := metrictest.New()
	tel, err := New(nil, meter)
	if err != nil {
		t.Fatal(err)
	}
	tel.Ended(Span{}, "agent.a", time.Now(), time.Second, nil)
	tel.Lane.Checkpoint("agent.a", 2000, time.Millisecond)
	var all metricdata.ResourceMetrics
	if err := collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				got[m.Name] = data.DataPoints[0].Bounds
			case metricdata.Histogram[int64]:
				got[m.Name] = data.DataPoints[0].Bounds
			}
		}
	}
	want := map[string][]float64{"aee.task.duration": buckets.Durations(), "aee.task.queue.duration": buckets.Durations(),
		"aee.checkpoint.duration": buckets.Writes(), "aee.checkpoint.size": buckets.Sizes()}
	if !maps.EqualFunc(got, want, slices.Equal[[]float64]) {
		t.Errorf("the bounds are %v, want %v", got, want)
	}
}
