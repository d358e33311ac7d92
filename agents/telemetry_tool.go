package agents

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/mesh"
)

// callTool makes one tool call, in a span (AAIF, Telemetry:
// aaif.agent.tool_call). It passes the trace to the tool in the given header
// even if the agent records no spans, so that a trace does not end at an agent
// without them.
func callTool(ctx context.Context, header string, c *toolCall, entry *toolEntry, t tool.Tool) (json.RawMessage, error) {
	r := reporterFrom(ctx)
	if r == nil {
		return t.Call(toldTrace(ctx, header), c.Arguments)
	}
	protocol, endpoint := string(aaif.ProtocolFunction), ""
	if entry != nil {
		protocol, endpoint = string(entry.EffectiveProtocol()), redactEndpoint(entry.Endpoint)
	}
	span := trace.SpanFromContext(context.Background()) // a span that records nothing
	if r.tracer != nil {
		attrs := []attribute.KeyValue{
			attribute.String("tool.name", c.Name), attribute.String("tool.protocol", protocol),
			attribute.String("gen_ai.operation.name", string(genaiconv.OperationNameExecuteTool)), attribute.String("gen_ai.tool.name", c.Name),
			attribute.String("gen_ai.tool.call.id", c.ID), attribute.String("gen_ai.tool.type", toolType(protocol)), attribute.String("gen_ai.agent.name", r.agent),
			attribute.Int("aee.tool.try", c.effect.Tries),
		}
		if endpoint != "" {
			attrs = append(attrs, attribute.String("tool.endpoint", endpoint))
		}
		kind := trace.SpanKindInternal
		if protocol != string(aaif.ProtocolFunction) {
			kind = trace.SpanKindClient
		}
		ctx, span = r.tracer.Start(ctx, spanTool, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
		defer func() { span.End() }() // as a closure, End does not record a panic
	}
	ctx = toldTrace(ctx, header)
	begun := time.Now()
	result, err := t.Call(ctx, c.Arguments)
	attrs := []attribute.KeyValue{attribute.String("gen_ai.tool.name", c.Name), attribute.String("tool.protocol", protocol), attribute.String("gen_ai.agent.name", r.agent)}
	if err != nil && !errors.Is(err, mesh.ErrAnswerPending) {
		kind := toolError(ctx, err)
		attrs = append(attrs, attribute.String("error.type", kind))
		fail(span, kind)
	}
	if r.tools != nil {
		r.tools.Record(ctx, time.Since(begun).Seconds(), metric.WithAttributes(attrs...))
	}
	if r.content {
		span.SetAttributes(attribute.String("gen_ai.tool.call.arguments", r.cut(string(c.Arguments))), attribute.String("gen_ai.tool.call.result", r.cut(string(result))))
	}
	return result, err
}

// toldTrace adds the context's trace, if there is one, to the headers that a
// tool sends.
func toldTrace(ctx context.Context, header string) context.Context {
	if parent := traceOf(ctx); parent != "" {
		return tool.WithTrace(ctx, header, parent)
	}
	return ctx
}

// toolType is the type of a tool in OpenTelemetry's conventions: functions run
// on the agent's side, extensions call an external service.
func toolType(protocol string) string {
	if protocol == string(aaif.ProtocolFunction) {
		return "function"
	}
	return "extension"
}

// toolError is the kind of a tool's failure.
func toolError(ctx context.Context, err error) string {
	var failed *tool.Error
	switch {
	case errors.As(err, &failed):
		return string(failed.Kind)
	case ctx.Err() != nil:
		return runError(ctx, ctx.Err())
	}
	return "_OTHER"
}

// restoreMemory restores memories in a span (AAIF, Telemetry:
// aaif.agent.memory_write).
func restoreMemory(ctx context.Context, items []aaif.MemoryItem, restore func(context.Context) error) error {
	r := reporterFrom(ctx)
	if r == nil || r.tracer == nil {
		return restore(ctx)
	}
	var scopes, backends []string
	for _, item := range items {
		if !slices.Contains(scopes, string(item.Scope)) {
			scopes = append(scopes, string(item.Scope))
		}
		if b := r.backend[item.Scope]; b != "" && !slices.Contains(backends, b) {
			backends = append(backends, b)
		}
	}
	slices.Sort(scopes)
	ctx, span := r.tracer.Start(ctx, spanMemoryWrite, trace.WithAttributes(attribute.String("memory.scope", strings.Join(scopes, ",")),
		attribute.String("memory.backend", strings.Join(backends, ",")), attribute.Int("aee.memory.items", len(items)), attribute.String("gen_ai.agent.name", r.agent)))
	defer func() { span.End() }() // as a closure, End does not record a panic
	err := restore(ctx)
	if err != nil {
		fail(span, runError(ctx, err))
	}
	return err
}
