package tracing

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
)

// localOrRemote continues the trace of ctx. If ctx has none, it continues the trace that
// the task carries.
func localOrRemote(ctx context.Context, task *envelope.Envelope) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return RemoteParent(ctx, "", task)
}

type traceHeaderKey struct{}

// Header returns the name of the trace header of the agent to whose task ctx
// belongs.
func Header(ctx context.Context) string {
	if name, ok := ctx.Value(traceHeaderKey{}).(string); ok {
		return name
	}
	return wire.HeaderTraceParent
}

// WithHeader returns a context for which [Header] returns name.
func WithHeader(ctx context.Context, name string) context.Context {
	if name == wire.HeaderTraceParent {
		return ctx
	}
	return context.WithValue(ctx, traceHeaderKey{}, name)
}

// HeaderValue finds a header. Names of NATS headers are case-sensitive, those of HTTP are
// not; HeaderValue accepts any case, because senders may follow either rule.
func HeaderValue(header nats.Header, name string) string {
	if v := header.Get(name); v != "" {
		return v
	}
	if name == wire.HeaderTraceParent {
		return ""
	}
	for key, values := range header {
		if len(values) > 0 && strings.EqualFold(key, name) {
			return values[0]
		}
	}
	return ""
}

// CheckHeader returns an error unless a name is a valid header name that neither NATS nor this binding
// uses.
func CheckHeader(name string) error {
	lower := strings.ToLower(name)
	if name == "" || len(name) > 64 || strings.HasPrefix(lower, "nats-") || strings.HasPrefix(lower, "aee-") || lower == "content-type" ||
		strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == ':' }) {
		return fmt.Errorf("trace header %q is not a valid header name, or is reserved", clip.Text(name, 128))
	}
	return nil
}

// RemoteParent puts the sender's span into ctx.
func RemoteParent(ctx context.Context, traceparent string, e *envelope.Envelope) context.Context {
	if traceparent != "" {
		out := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{wire.HeaderTraceParent: traceparent})
		if trace.SpanContextFromContext(out).IsValid() {
			return out
		}
	}
	tc, ok := e.TraceContext()
	if !ok {
		return ctx
	}
	traceID, err1 := trace.TraceIDFromHex(tc.TraceID)
	spanID, err2 := trace.SpanIDFromHex(tc.SpanID)
	if err1 != nil || err2 != nil {
		return ctx // not W3C ids: they are passed on in the envelope unchanged
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}

// Inject writes a span into an envelope's field trace, if it is valid.
func Inject(sc trace.SpanContext, e *envelope.Envelope) {
	if sc.IsValid() {
		e.SetTraceContext(envelope.TraceContext{TraceID: sc.TraceID().String(), SpanID: sc.SpanID().String()})
	}
}

// Traceparent returns the W3C header of the span in ctx, "" if there is none.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[wire.HeaderTraceParent]
}

// StartSend begins the span of a task that is sent; a nil tracer makes none.
func StartSend(tracer trace.Tracer, ctx context.Context, task *envelope.Envelope) (context.Context, trace.Span) {
	if tracer == nil {
		return ctx, nil
	}
	return tracer.Start(localOrRemote(ctx, task), "aee.send "+task.To, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("messaging.system", "nats"), attribute.String("messaging.destination.name", task.To),
		attribute.String("messaging.message.conversation_id", task.Corr), attribute.String("aee.intent", task.Intent),
	))
}

// EndSend ends a span of [StartSend].
func EndSend(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, string(fault.ForPeer(err).Code))
	}
	span.End()
}
