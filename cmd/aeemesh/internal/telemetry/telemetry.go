package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
)

// Exporters send traces and metrics where the standard OTEL_* variables say.
// Nothing is exported unless an exporter or an endpoint is set. The exporters
// themselves read the variables for headers, certificates, timeouts, sampling
// and batching.
type Exporters struct {
	Tracer   trace.TracerProvider // nil: none
	Meter    metric.MeterProvider // nil: none
	app      *session.App
	shutdown []func(context.Context) error

	off      error  // why agents cannot use collectors of their own; nil: they can
	protocol string // of those collectors: grpc or http/protobuf
	resource *resource.Resource
	mu       sync.Mutex
	own      map[string]*collector // by endpoint
}

// flushTimeout bounds how long a command waits for exporters at its end.
const flushTimeout = 5 * time.Second

// Start reads the variables and starts the exporters. Metrics go to readers too.
// The caller must stop the exporters.
func Start(ctx context.Context, a *session.App, readers ...sdkmetric.Reader) (*Exporters, error) {
	out := &Exporters{app: a}
	if strings.EqualFold(a.Env("OTEL_SDK_DISABLED"), "true") {
		out.off = errors.New("OTEL_SDK_DISABLED is set")
		return out, nil
	}
	traces, err1 := exporter(a, "TRACES")
	metrics, err2 := exporter(a, "METRICS")
	if err1 != nil && err2 != nil && err1.Error() == err2.Error() {
		err2 = nil // one wrong variable is reported once
	}
	var usage *outcome.UsageError
	if err := errors.Join(err1, err2); errors.As(err, &usage) {
		return nil, usage
	} else if err != nil {
		return nil, &outcome.UsageError{Err: err, Hint: "OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER take none, otlp or console; OTEL_EXPORTER_OTLP_PROTOCOL takes grpc or http/protobuf."}
	}
	otel.SetLogger(logr.FromSlogHandler(a.Log.Handler()))
	otel.SetErrorHandler(notExported(a.Log))
	var err error
	// Each process is an instance of its own: the sums of several would look like one that is
	// reset again and again.
	out.resource, err = resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(attribute.String("service.name", "aeemesh"), attribute.String("service.version", a.Version), attribute.String("service.instance.id", envelope.NewID())),
		resource.WithFromEnv())
	if err != nil {
		a.Log.Warn("telemetry resource is incomplete", "err", err)
	}
	out.protocol, out.own = a.Env("OTEL_EXPORTER_OTLP_PROTOCOL"), make(map[string]*collector)
	res := out.resource
	if err := out.startTraces(ctx, traces, a.Term.Words, res); err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	if err := out.startMetrics(ctx, metrics, a.Term.Words, res, readers); err != nil {
		return nil, errors.Join(fmt.Errorf("export metrics: %w", err), out.shut())
	}
	return out, nil
}

// exporter returns the exporter of one signal: none, console, grpc or
// http/protobuf.
func exporter(a *session.App, signal string) (string, error) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if v := strings.TrimSpace(a.Env(name)); v != "" && !strings.Contains(v, "://") {
			return "", &outcome.UsageError{Err: fmt.Errorf("%s %q has no scheme", name, v), Hint: "Write http://" + v + " or https://" + v + "."}
		}
	}
	first := func(names ...string) string {
		for _, n := range names {
			if v := strings.TrimSpace(a.Env(n)); v != "" {
				return v
			}
		}
		return ""
	}
	name := "OTEL_" + signal + "_EXPORTER"
	kind := first(name)
	if kind == "" {
		if first("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
			return "none", nil
		}
		kind = "otlp"
	}
	switch kind {
	case "none", "console":
		return kind, nil
	case "otlp":
	default:
		return "", fmt.Errorf("%s %q is unknown", name, kind)
	}
	protocol := first("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	switch protocol {
	case "":
		return "http/protobuf", nil
	case "grpc", "http/protobuf":
		return protocol, nil
	}
	return "", fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL %q is unknown", protocol)
}

func (t *Exporters) startTraces(ctx context.Context, kind string, console io.Writer, res *resource.Resource) error {
	var exporter sdktrace.SpanExporter
	var err error
	switch kind {
	case "none":
		return nil
	case "console":
		exporter = consoleSpans{console}
	case "grpc":
		exporter, err = otlptracegrpc.New(ctx)
	default:
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return err
	}
	provider := tracerOf(exporter, res)
	t.Tracer = provider
	t.shutdown = append(t.shutdown, provider.Shutdown)
	return nil
}

func (t *Exporters) startMetrics(ctx context.Context, kind string, console io.Writer, res *resource.Resource, readers []sdkmetric.Reader) error {
	var exporter sdkmetric.Exporter
	var err error
	switch kind {
	case "none":
		if len(readers) == 0 {
			return nil
		}
	case "console":
		exporter = consoleMetrics{console}
	case "grpc":
		exporter, err = otlpmetricgrpc.New(ctx)
	default:
		exporter, err = otlpmetrichttp.New(ctx)
	}
	if err != nil {
		return err
	}
	provider := meterOf(exporter, res, readers)
	t.Meter = provider
	t.shutdown = append(t.shutdown, provider.Shutdown)
	return nil
}

func tracerOf(exporter sdktrace.SpanExporter, res *resource.Resource) *sdktrace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
}

// meterOf returns a provider whose metrics go to an exporter, unless it is nil, and to readers.
func meterOf(exporter sdkmetric.Exporter, res *resource.Resource, readers []sdkmetric.Reader) *sdkmetric.MeterProvider {
	options := []sdkmetric.Option{sdkmetric.WithResource(res)}
	if exporter != nil {
		readers = append(readers, sdkmetric.NewPeriodicReader(exporter))
	}
	for _, r := range readers {
		options = append(options, sdkmetric.WithReader(r))
	}
	return sdkmetric.NewMeterProvider(options...)
}

// shut exports what is left and stops the exporters. It may be called twice.
func (t *Exporters) shut() error {
	t.mu.Lock()
	shutdown := t.shutdown
	t.shutdown = nil
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	bad := make([]error, len(shutdown))
	var wait sync.WaitGroup
	for i, end := range shutdown { // at the same time, so that a collector that does not answer does not use up the time of the others
		wait.Go(func() { bad[i] = end(ctx) })
	}
	wait.Wait()
	return errors.Join(bad...)
}

// notExported logs that telemetry was not exported, at most once a minute: without the collector
// every export fails, and there is one every few seconds.
func notExported(log *slog.Logger) otel.ErrorHandler {
	sometimes := &rate.Sometimes{Interval: time.Minute}
	return otel.ErrorHandlerFunc(func(err error) {
		sometimes.Do(func() { log.Warn("telemetry not exported", "err", err) })
	})
}

// Stop exports what is left and stops the exporters. A failure is logged: it is
// not an error of the command.
func (t *Exporters) Stop() {
	if err := t.shut(); err != nil {
		t.app.Log.Warn("telemetry not exported", "err", err)
	}
}

// OfNode returns the exporters in the form that a node needs.
func (t *Exporters) OfNode() *session.Telemetry {
	return &session.Telemetry{Tracer: t.Tracer, Meter: t.Meter, Stop: t.Stop}
}
