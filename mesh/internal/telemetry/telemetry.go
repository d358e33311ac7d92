package telemetry

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
	"github.com/aeemesh/aeemesh/envelope/buckets"
	"github.com/aeemesh/aeemesh/mesh/internal/tracing"
)

// Scope names the mesh to OpenTelemetry.
const Scope = "github.com/aeemesh/aeemesh/mesh"

// Telemetry makes the spans and metrics of tasks. Without a provider it does nothing, and
// costs nothing.
type Telemetry struct {
	Tracer   trace.Tracer // nil: no spans
	duration metric.Float64Histogram
	waiting  metric.Float64Histogram
	refusals metric.Int64Counter
	metrics  bool
	Lane     *Lane // the metrics of the durable lanes
}

// New returns the telemetry of a node. Either provider may be nil.
func New(tp trace.TracerProvider, mp metric.MeterProvider) (*Telemetry, error) {
	lane, err := newLane(mp)
	if err != nil {
		return nil, err
	}
	tel := &Telemetry{Lane: lane}
	if tp != nil {
		tel.Tracer = tp.Tracer(Scope)
	}
	if mp == nil {
		return tel, nil
	}
	m := mp.Meter(Scope)
	tel.metrics = true
	var errs [3]error
	tel.duration, errs[0] = m.Float64Histogram("aee.task.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets.Durations()...),
		metric.WithDescription("From a task's arrival to its terminal envelope."))
	tel.waiting, errs[1] = m.Float64Histogram("aee.task.queue.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets.Durations()...),
		metric.WithDescription("From a task's arrival to its handler."))
	tel.refusals, errs[2] = m.Int64Counter("aee.messages.refused", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that never became tasks, by error code."))
	return tel, errors.Join(errs[:]...)
}

// Refused counts a message to an entity that did not become a task.
func (tel *Telemetry) Refused(entity, code string) {
	if tel.metrics {
		tel.refusals.Add(context.Background(), 1, metric.WithAttributes(attribute.String("aee.entity", entity), attribute.String("error.type", code)))
	}
}

// A Span is the span of one task; the zero value has none.
type Span struct {
	span trace.Span
	ctx  context.Context // holds the span, and the header's name, only
}

// Begun is a task that begins.
type Begun struct {
	Tracer  trace.Tracer // of the agent; nil: no span
	Entity  string       // the agent
	Subject string       // of the agent's live lane
	Name    string       // of the message header with the trace context
	Header  nats.Header  // of the task's message
	Task    *envelope.Envelope
}

// Start begins the span of one task. Its parent is in the trace header, or in
// field trace if there is no such header: senders write the same into both.
func Start(b Begun) Span {
	if b.Tracer == nil {
		return Span{}
	}
	e := b.Task
	ctx := tracing.WithHeader(context.Background(), b.Name)
	ctx = tracing.RemoteParent(ctx, tracing.HeaderValue(b.Header, b.Name), e)
	ctx, span := b.Tracer.Start(ctx, "aee.task "+b.Entity, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", b.Subject),
		attribute.String("messaging.message.id", e.ID), attribute.String("messaging.message.conversation_id", e.Corr),
		attribute.String("aee.intent", e.Intent), attribute.String("aee.from", e.From), attribute.String("aee.to", e.To),
		attribute.String("aee.type", string(e.Type)), attribute.String("aee.priority", string(e.Priority)),
	))
	return Span{span, ctx}
}

// Context gives the handler's context the span.
func (s Span) Context(ctx context.Context) context.Context {
	if s.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(tracing.WithHeader(ctx, tracing.Header(s.ctx)), s.span)
}

// Inject writes the span into an envelope's field trace.
func (s Span) Inject(e *envelope.Envelope) {
	if s.span == nil {
		return
	}
	tracing.Inject(s.span.SpanContext(), e)
}

// Traceparent returns the W3C header of the span, "" if there is no span.
func (s Span) Traceparent() string {
	if s.ctx == nil {
		return ""
	}
	return tracing.Traceparent(s.ctx)
}

// End ends the span without an outcome: another worker goes on with the task, in a span of
// its own.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Ended ends the span of a task of an entity, and records the metrics. waited is how long the task
// waited until it began; 0: it did not begin. problem is nil for a result.
func (tel *Telemetry) Ended(s Span, entity string, queued time.Time, waited time.Duration, problem *envelope.Error) {
	if s.span != nil && problem != nil {
		s.span.SetStatus(codes.Error, string(problem.Code))
		s.span.SetAttributes(attribute.String("error.type", string(problem.Code)))
	}
	s.End()
	if !tel.metrics {
		return
	}
	outcome := "ok"
	if problem != nil {
		outcome = string(problem.Code)
	}
	attrs := metric.WithAttributes(attribute.String("aee.entity", entity), attribute.String("aee.outcome", outcome))
	tel.duration.Record(context.Background(), time.Since(queued).Seconds(), attrs)
	if waited > 0 {
		tel.waiting.Record(context.Background(), waited.Seconds(), attrs)
	}
}
