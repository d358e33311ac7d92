package metrictest

import (
	"context"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// New returns a provider, and the function that collects what its instruments have recorded.
func New() (provider metric.MeterProvider, collect func(context.Context, *metricdata.ResourceMetrics) error) {
	reader := sdkmetric.NewManualReader()
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), reader.Collect
}
