package agents

import (
	"maps"
	"slices"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/aeemesh/aeemesh/envelope/buckets"
)

func TestHistogramsOfAgentsHaveTheBoundsOfTheirConvention(t *testing.T) {
	t.Parallel()
	reader, r := sdkmetric.NewManualReader(), &reporter{}
	if err := r.instruments(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))); err != nil {
		t.Fatal(err)
	}
	r.operations.Inst().Record(t.Context(), 1)
	r.firstChunk.Inst().Record(t.Context(), 1)
	r.tools.Record(t.Context(), 1)
	r.tokens.Inst().Record(t.Context(), 1)
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
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
