package telemetry

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// consoleSpans prints spans, one JSON object per line.
type consoleSpans struct{ w io.Writer }

func (c consoleSpans) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		attributes := map[string]string{}
		for _, kv := range s.Attributes() {
			attributes[string(kv.Key)] = kv.Value.Emit()
		}
		parent := ""
		if s.Parent().IsValid() {
			parent = s.Parent().SpanID().String()
		}
		err := consoleLine(c.w, map[string]any{
			"span": s.Name(), "trace_id": s.SpanContext().TraceID().String(), "span_id": s.SpanContext().SpanID().String(),
			"parent": parent, "kind": s.SpanKind().String(), "start": s.StartTime().UTC().Format(time.RFC3339Nano),
			"ms": float64(s.EndTime().Sub(s.StartTime()).Microseconds()) / 1000, "status": s.Status().Code.String(), "attributes": attributes,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (consoleSpans) Shutdown(context.Context) error { return nil }

// consoleMetrics prints metrics, one JSON object per line.
type consoleMetrics struct{ w io.Writer }

func (consoleMetrics) Temporality(k sdkmetric.InstrumentKind) metricdata.Temporality {
	return sdkmetric.DefaultTemporalitySelector(k)
}

func (consoleMetrics) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

func (c consoleMetrics) Export(_ context.Context, rm *metricdata.ResourceMetrics) error {
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			if err := consoleLine(c.w, map[string]any{"metric": m.Name, "unit": m.Unit, "data": m.Data}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (consoleMetrics) ForceFlush(context.Context) error { return nil }
func (consoleMetrics) Shutdown(context.Context) error   { return nil }

func consoleLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
