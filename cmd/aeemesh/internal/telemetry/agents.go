package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// collector holds the exporters for one collector that documents name
// (telemetry.otlp_endpoint). All agents that name it share them. It names no types of the
// SDK: each package that uses Exporters would compile the generic ones again, 300 kB of code.
type collector struct {
	tracer   trace.TracerProvider
	meter    metric.MeterProvider
	shutdown []func(context.Context) error
}

// Collector returns the exporters for a collector; they are made once.
func (t *Exporters) Collector(u *url.URL) (trace.TracerProvider, metric.MeterProvider, error) {
	if t.off != nil {
		return nil, nil, t.off
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.own[u.String()]; c != nil {
		return c.tracer, c.meter, nil
	}
	c, err := t.newCollector(u)
	if err != nil {
		return nil, nil, err
	}
	t.own[u.String()] = c
	t.shutdown = append(t.shutdown, c.shutdown...)
	return c.tracer, c.meter, nil
}

// newCollector makes exporters that ignore the headers and certificates in OTEL_* variables:
// those are meant for the operator's own collector. The exporters read them all the same, and
// prefer a certificate to the scheme http, so that each option is set here. They connect when
// there is something to export.
func (t *Exporters) newCollector(u *url.URL) (*collector, error) {
	ctx, none := context.Background(), map[string]string{}
	base := *u
	overGRPC := t.protocol == "grpc"
	switch u.Scheme {
	case "grpc":
		base.Scheme, overGRPC = "http", true
	case "grpcs":
		base.Scheme, overGRPC = "https", true
	}
	var traces sdktrace.SpanExporter
	var metrics sdkmetric.Exporter
	var err1, err2 error
	if overGRPC {
		creds := insecure.NewCredentials()
		if base.Scheme == "https" {
			creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
		}
		traces, err1 = otlptracegrpc.New(ctx, otlptracegrpc.WithHeaders(none), otlptracegrpc.WithEndpoint(u.Host), otlptracegrpc.WithTLSCredentials(creds))
		metrics, err2 = otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithHeaders(none), otlpmetricgrpc.WithEndpoint(u.Host), otlpmetricgrpc.WithTLSCredentials(creds))
	} else {
		client := collectorClient()
		traces, err1 = otlptracehttp.New(ctx, otlptracehttp.WithHeaders(none), otlptracehttp.WithEndpointURL(signalURL(base, "traces")), otlptracehttp.WithTLSClientConfig(nil), otlptracehttp.WithHTTPClient(client))
		metrics, err2 = otlpmetrichttp.New(ctx, otlpmetrichttp.WithHeaders(none), otlpmetrichttp.WithEndpointURL(signalURL(base, "metrics")), otlpmetrichttp.WithTLSClientConfig(nil), otlpmetrichttp.WithHTTPClient(client))
	}
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("report to %s: %w", u, err)
	}
	tracer, meter := tracerOf(traces, t.resource), meterOf(metrics, t.resource, nil)
	return &collector{tracer, meter, []func(context.Context) error{tracer.Shutdown, meter.Shutdown}}, nil
}

// signalURL is the URL of one signal below an endpoint, as the OTLP exporter
// specification forms it: a document's endpoint is the base of all signals.
func signalURL(u url.URL, signal string) string {
	path := strings.TrimRight(u.Path, "/")
	for _, s := range []string{"traces", "metrics", "logs"} {
		path = strings.TrimSuffix(path, "/v1/"+s)
	}
	u.Path = path + "/v1/" + signal
	return u.String()
}

// collectorClient follows no redirects.
func collectorClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &http.Client{
		Transport: transport, Timeout: 10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
