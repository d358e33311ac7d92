package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/buckets"
	"github.com/aeemesh/aeemesh/mesh"
)

// scope is this package's OpenTelemetry instrumentation scope.
const scope = "github.com/aeemesh/aeemesh/agents"

// Telemetry says where agents send spans and metrics, and what these contain
// (AAIF, Telemetry). The zero value reports nothing.
//
// The operator chooses the default destination, or none. A document can turn
// its own spans and metrics off (telemetry.tracing and metrics false), and can
// name another collector (otlp_endpoint), which is used only if the operator
// permits it.
type Telemetry struct {
	// Tracer and Meter are the operator's. Default none.
	Tracer trace.TracerProvider
	Meter  metric.MeterProvider

	// Endpoint returns the providers for agents whose documents name a
	// collector, or an error that says why that collector is not permitted: a
	// document may come from a stranger. Default: no collector is permitted,
	// the operator's own providers are used, and a notice says so.
	Endpoint func(otlpEndpoint string) (trace.TracerProvider, metric.MeterProvider, error)

	// Content adds texts to the spans: prompts, answers, arguments and results
	// of tools, each up to [MaxContent] bytes. Default: never.
	Content bool

	// Logger returns the logger for an agent whose document sets log_level.
	// Default: Options.Logger, whatever its level, and a notice.
	Logger func(slog.Level) *slog.Logger
}

// Names of spans (AAIF, Telemetry).
const (
	spanRun         = "aaif.agent.run"
	spanModel       = "aaif.agent.llm_call"
	spanTool        = "aaif.agent.tool_call"
	spanMemoryWrite = "aaif.agent.memory_write"
)

// reporter makes the spans and metrics of one agent; a nil reporter makes none.
type reporter struct {
	tracer  trace.Tracer // nil: no spans
	content bool
	secrets *secret.Redactor // removes credentials from content
	agent   string           // the agent's name
	run     []attribute.KeyValue
	backend map[aaif.MemoryScope]string

	operations genaiconv.ClientOperationDuration
	tokens     genaiconv.ClientTokenUsage
	firstChunk genaiconv.ClientOperationTimeToFirstChunk
	tools      metric.Float64Histogram
	cost       metric.Float64Counter
}

// report sets up the agent's telemetry by its document and the operator's
// options.
func (a *Agent) report(def *aaif.Definition, opts *Options) (*reporter, error) {
	t := def.Agent.Telemetry
	if t == nil {
		t = &aaif.Telemetry{}
	}
	a.logLevel(t, opts)
	tracer, meter := opts.Telemetry.Tracer, opts.Telemetry.Meter
	if t.OTLPEndpoint != "" {
		if own, metrics, ok := a.collector(t.OTLPEndpoint, opts); ok {
			if tracer == nil {
				a.Tracer = own // the span of the mesh hop has no other tracer
			}
			tracer, meter = own, metrics
		}
	}
	opts.traceable = tracer != nil
	a.TraceHeader = t.TraceContextHeader
	off := func(b *bool) bool { return b != nil && !*b }
	if off(t.Tracing) {
		tracer = nil
	}
	if off(t.Metrics) {
		meter = nil
	}
	if tracer == nil && meter == nil {
		return nil, nil
	}
	r := &reporter{
		content: opts.Telemetry.Content, secrets: opts.Redactor, agent: def.Agent.Name,
		run: runAttributes(def), backend: make(map[aaif.MemoryScope]string),
	}
	for _, m := range def.Agent.Memory {
		r.backend[m.Scope] = string(m.Backend)
	}
	if tracer != nil {
		r.tracer = tracer.Tracer(scope)
	}
	return r, r.instruments(meter)
}

const defaultTraceHeader = "traceparent"

// traceHeader is the name of the header that carries a trace to tools, by the
// document.
func traceHeader(def *aaif.Definition) string {
	if t := def.Agent.Telemetry; t != nil && t.TraceContextHeader != "" {
		return t.TraceContextHeader
	}
	return defaultTraceHeader
}

// handedTrace returns a context within the trace that came with a task, unless
// the context already has a span.
func handedTrace(ctx context.Context, e *envelope.Envelope) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	tc, ok := e.TraceContext()
	if !ok {
		return ctx
	}
	traceID, err := trace.TraceIDFromHex(tc.TraceID)
	if err != nil {
		return ctx // the ids are not W3C trace ids
	}
	spanID, err := trace.SpanIDFromHex(tc.SpanID)
	if err != nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}

// collector returns the providers for the collector that a document names. If
// the operator does not permit it, collector adds a notice and reports false.
func (a *Agent) collector(endpoint string, opts *Options) (trace.TracerProvider, metric.MeterProvider, bool) {
	err := errors.New("the operator has allowed no collector but its own")
	if opts.Telemetry.Endpoint != nil {
		var tracer trace.TracerProvider
		var meter metric.MeterProvider
		if tracer, meter, err = opts.Telemetry.Endpoint(endpoint); err == nil {
			return tracer, meter, true
		}
	}
	a.Notices = append(a.Notices, aaif.Problem{
		Pointer: "/agent/telemetry/otlp_endpoint", Rule: RuleTelemetry, Severity: aaif.SeverityWarning,
		Message: fmt.Sprintf("what the agent reports goes to the operator's collector, if there is one: %v", err),
	})
	return nil, nil, false
}

// logLevel gives the agent a logger with the level that its document sets.
func (a *Agent) logLevel(t *aaif.Telemetry, opts *Options) {
	if t.LogLevel == "" {
		return
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(t.LogLevel)); err != nil {
		return // the schema rejects other levels
	}
	if opts.Telemetry.Logger == nil {
		a.Notices = append(a.Notices, aaif.Problem{
			Pointer: "/agent/telemetry/log_level", Rule: RuleTelemetry, Severity: aaif.SeverityWarning,
			Message: "the operator's own log level counts",
		})
		return
	}
	opts.Logger = slog.New(secret.LogHandler(opts.Telemetry.Logger(level).Handler(), opts.Redactor))
	a.Logger = opts.Logger
}

func (r *reporter) instruments(mp metric.MeterProvider) error {
	var m metric.Meter
	if mp != nil {
		m = mp.Meter(scope)
	}
	var errs [5]error
	r.operations, errs[0] = genaiconv.NewClientOperationDuration(m, metric.WithExplicitBucketBoundaries(buckets.ModelCalls()...))
	r.tokens, errs[1] = genaiconv.NewClientTokenUsage(m, metric.WithExplicitBucketBoundaries(buckets.Tokens()...))
	r.firstChunk, errs[2] = genaiconv.NewClientOperationTimeToFirstChunk(m, metric.WithExplicitBucketBoundaries(buckets.ModelCalls()...))
	if m != nil {
		r.tools, errs[3] = m.Float64Histogram("aaif.agent.tool_call.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets.Durations()...),
			metric.WithDescription("One call of a tool, by its name and protocol, and by how it failed."))
		r.cost, errs[4] = m.Float64Counter("aaif.agent.llm_call.cost", metric.WithUnit("{USD}"),
			metric.WithDescription("What turns of models cost, by provider and model, as far as prices are known."))
	}
	return errors.Join(errs[:]...)
}

// runAttributes are the attributes of every run's span.
func runAttributes(def *aaif.Definition) []attribute.KeyValue {
	a := &def.Agent
	out := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", string(genaiconv.OperationNameInvokeAgent)),
		attribute.String("agent.name", a.Name), attribute.String("gen_ai.agent.name", a.Name),
	}
	add := func(value string, names ...string) {
		for _, name := range names {
			if value != "" {
				out = append(out, attribute.String(name, value))
			}
		}
	}
	add(def.AgentID, "agent.id", "gen_ai.agent.id")
	add(a.Version, "agent.version", "gen_ai.agent.version")
	if m := a.Model; m != nil {
		provider := providerID(m.Provider, m.ProviderID)
		add(provider, "model.provider")
		add(genAIProvider(provider), "gen_ai.provider.name")
		add(m.Preferred, "model.name", "gen_ai.request.model")
	}
	return out
}

// modelProvider is the name of the provider of the document's model, or of
// Options.Model if the document has none.
func modelProvider(def *aaif.Definition) string {
	if m := def.Agent.Model; m != nil {
		if name := providerID(m.Provider, m.ProviderID); name != "" {
			return name
		}
	}
	return string(aaif.ProviderCustom)
}

// providerID is a provider's name in telemetry: for custom it is the
// provider_id.
func providerID(p aaif.Provider, id string) string {
	if id != "" && (p == aaif.ProviderCustom || p == "") {
		return id
	}
	return string(p)
}

// genAIProvider is a provider's name in OpenTelemetry's conventions; providers
// without one there keep their own name.
func genAIProvider(provider string) string {
	switch aaif.Provider(provider) {
	case aaif.ProviderGoogle:
		return string(genaiconv.ProviderNameGCPGemini)
	case aaif.ProviderVertexAI:
		return string(genaiconv.ProviderNameGCPVertexAI)
	case aaif.ProviderMistral:
		return string(genaiconv.ProviderNameMistralAI)
	case aaif.ProviderAzureOpenAI:
		return string(genaiconv.ProviderNameAzureAIOpenAI)
	case aaif.ProviderBedrock:
		return string(genaiconv.ProviderNameAWSBedrock)
	case aaif.ProviderXAI:
		return string(genaiconv.ProviderNameXAI)
	}
	return provider
}

// reported wraps a handler with a span for each of its runs.
type reported struct {
	mesh.Handler
	*reporter
}

// Handle runs a task under its span (AAIF, Telemetry: aaif.agent.run), a child
// of the hop's.
func (h reported) Handle(ctx context.Context, task *mesh.Task) (payload json.RawMessage, err error) {
	ctx = context.WithValue(ctx, reporterOfRun{}, h.reporter)
	if h.tracer == nil {
		return h.Handler.Handle(ctx, task)
	}
	e := task.Envelope
	ctx, span := h.tracer.Start(ctx, spanRun, trace.WithAttributes(h.run...), trace.WithAttributes(
		attribute.String("gen_ai.conversation.id", e.Corr), attribute.String("aee.task.id", e.ID), attribute.String("aee.intent", e.Intent)))
	if run := task.Run(); run != nil {
		span.SetAttributes(attribute.String("aee.run.id", run.ID()), attribute.Int64("aee.run.epoch", int64(run.Epoch())))
	}
	returned := false
	defer func() {
		if !returned { // it panicked; the mesh handles the panic
			span.SetStatus(codes.Error, "panic")
			span.SetAttributes(attribute.String("error.type", "panic"))
		}
		span.End()
	}()
	payload, err = h.Handler.Handle(ctx, task)
	returned = true
	switch {
	case errors.Is(err, mesh.ErrParked):
		span.SetAttributes(attribute.String("aee.run.outcome", "parked"))
	case mesh.IsDelegated(err):
		span.SetAttributes(attribute.String("aee.run.outcome", "handed_off"))
	case errors.Is(err, mesh.ErrLost):
		span.SetAttributes(attribute.String("aee.run.outcome", "lost")) // the run continues on another worker
	case err != nil:
		fail(span, runError(ctx, err))
	}
	if h.content {
		h.exchange(span, e.Payload, payload)
	}
	return payload, err
}

type reporterOfRun struct{}

// reporterFrom returns the reporter of the run that the context belongs to; nil
// if there is none.
func reporterFrom(ctx context.Context) *reporter {
	r, _ := ctx.Value(reporterOfRun{}).(*reporter)
	return r
}

// fail marks a span as failed. kind is one of a fixed set of words: an error's
// text could contain what was said.
func fail(span trace.Span, kind string) {
	span.SetStatus(codes.Error, kind)
	span.SetAttributes(attribute.String("error.type", kind))
}

// runError is the error code that the run's sender gets, as far as this package
// knows it.
func runError(ctx context.Context, err error) string {
	var known *envelope.Error
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		err = cause
	}
	switch {
	case errors.As(err, &known):
		return string(known.Code)
	case errors.Is(err, context.DeadlineExceeded):
		return string(envelope.CodeTimeout)
	}
	return string(envelope.CodeInternal)
}

// traceOf is the W3C traceparent of a context's span; "" if there is none.
func traceOf(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// traced stores the traceparent of the run's first span. On a resumed run it
// links the current span to that one, because two owners may be part of
// different traces.
func (r *run) traced(ctx context.Context) {
	switch rep := reporterFrom(ctx); {
	case rep == nil || rep.tracer == nil:
	case r.trace == "":
		r.trace = traceOf(ctx)
	default:
		began := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": r.trace})
		if sc := trace.SpanContextFromContext(began); sc.IsValid() {
			trace.SpanFromContext(ctx).AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{attribute.String("aee.link", "began")}})
		}
	}
}

// redactEndpoint is an endpoint for telemetry: without credentials, query and
// fragment.
func redactEndpoint(endpoint string) string {
	endpoint, _, _ = strings.Cut(endpoint, "#")
	endpoint, _, _ = strings.Cut(endpoint, "?")
	scheme, rest, ok := strings.Cut(endpoint, "://")
	if !ok {
		scheme, rest = "", endpoint
	}
	authority, path, slash := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
	}
	if slash {
		authority += "/" + path
	}
	if ok {
		return scheme + "://" + authority
	}
	return authority
}
