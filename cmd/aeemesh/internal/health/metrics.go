package health

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// Metrics collects the process's OpenTelemetry metrics for Prometheus, and those
// of the Go runtime and of the process.
type Metrics struct {
	registry *prometheus.Registry
	reader   sdkmetric.Reader
}

// NewMetrics makes a Metrics; its reader must be given to one meter provider.
func NewMetrics(version string) (*Metrics, error) {
	registry := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "aeemesh_build_info", Help: "The program that runs here; the value is 1.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	reader, err := otelprom.New(otelprom.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	return &Metrics{registry, reader}, nil
}

// Reader returns the reader for a meter provider.
func (m *Metrics) Reader() sdkmetric.Reader { return m.reader }

// Handler serves /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
