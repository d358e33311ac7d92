package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/tracing"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/aeemesh/aeemesh/mesh"

// telemetry makes spans and metrics. Without a provider it does nothing, and costs
// nothing.
type telemetry struct {
	tracer   trace.Tracer // nil: no spans
	duration metric.Float64Histogram
	waiting  metric.Float64Histogram
	refusals metric.Int64Counter
	metrics  bool
	lane     *laneTelemetry
}

func newTelemetry(tp trace.TracerProvider, mp metric.MeterProvider) (*telemetry, error) {
	lane, err := newLaneTelemetry(mp)
	if err != nil {
		return nil, err
	}
	tel := &telemetry{lane: lane}
	if tp != nil {
		tel.tracer = tp.Tracer(scope)
	}
	if mp == nil {
		return tel, nil
	}
	m := mp.Meter(scope)
	tel.metrics = true
	var errs [3]error
	tel.duration, errs[0] = m.Float64Histogram("aee.task.duration", metric.WithUnit("s"),
		metric.WithDescription("From a task's arrival to its terminal envelope."))
	tel.waiting, errs[1] = m.Float64Histogram("aee.task.queue.duration", metric.WithUnit("s"),
		metric.WithDescription("From a task's arrival to its handler."))
	tel.refusals, errs[2] = m.Int64Counter("aee.messages.refused", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that never became tasks, by error code."))
	return tel, errors.Join(errs[:]...)
}

func (tel *telemetry) refused(h *host, code string) {
	if tel.metrics {
		tel.refusals.Add(context.Background(), 1, metric.WithAttributes(attribute.String("aee.entity", h.Entity), attribute.String("error.type", code)))
	}
}

// taskSpan is the span of one task; the zero value has none.
type taskSpan struct {
	span trace.Span
	ctx  context.Context // holds the span, and the header's name, only
}

// startTask begins the span of one task. Its parent is in the header traceparent, or in
// field trace if there is no such header: senders write the same into both.
func (tel *telemetry) startTask(t *Task, header nats.Header) taskSpan {
	if t.host.tracer == nil {
		return taskSpan{}
	}
	e := t.Envelope
	ctx := tracing.WithHeader(context.Background(), t.host.TraceHeader)
	ctx = tracing.RemoteParent(ctx, tracing.HeaderValue(header, t.host.TraceHeader), e)
	ctx, span := t.host.tracer.Start(ctx, "aee.task "+t.host.Entity, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", t.host.live),
		attribute.String("messaging.message.id", e.ID), attribute.String("messaging.message.conversation_id", e.Corr),
		attribute.String("aee.intent", e.Intent), attribute.String("aee.from", e.From), attribute.String("aee.to", e.To),
		attribute.String("aee.type", string(e.Type)), attribute.String("aee.priority", string(e.Priority)),
	))
	return taskSpan{span, ctx}
}

// context gives the handler's context the span.
func (s taskSpan) context(ctx context.Context) context.Context {
	if s.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(tracing.WithHeader(ctx, tracing.Header(s.ctx)), s.span)
}

// inject writes the span into an envelope's field trace.
func (s taskSpan) inject(e *envelope.Envelope) {
	if s.span == nil {
		return
	}
	tracing.Inject(s.span.SpanContext(), e)
}

// traceparent returns the W3C header of the span, "" if there is no span.
func (s taskSpan) traceparent() string {
	if s.ctx == nil {
		return ""
	}
	return tracing.Traceparent(s.ctx)
}

// endTask ends the span and records the metrics.
func (tel *telemetry) endTask(h *host, t *Task, problem *envelope.Error) {
	if s := t.span.span; s != nil {
		if problem != nil {
			s.SetStatus(codes.Error, string(problem.Code))
			s.SetAttributes(attribute.String("error.type", string(problem.Code)))
		}
		s.End()
	}
	if !tel.metrics {
		return
	}
	outcome := "ok"
	if problem != nil {
		outcome = string(problem.Code)
	}
	attrs := metric.WithAttributes(attribute.String("aee.entity", h.Entity), attribute.String("aee.outcome", outcome))
	tel.duration.Record(context.Background(), time.Since(t.queued).Seconds(), attrs)
	if waited := time.Duration(t.waited.Load()); waited > 0 {
		tel.waiting.Record(context.Background(), waited.Seconds(), attrs)
	}
}
