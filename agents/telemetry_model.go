package agents

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Reported returns m with a span and metrics for each of its calls, if the
// calling run reports (AAIF, Telemetry: aaif.agent.llm_call), with usage
// limited to what is [model.Usage.Believable], and the name that an answer gives
// its model cut to 200 bytes. provider is the document's name for the provider. A
// model that routes wraps each of its routes, so that every try has its own span.
func Reported(provider string, m model.Model) model.Model {
	r := reportedModel{m, provider}
	if c, ok := m.(model.Continuer); ok {
		return reportedContinuer{r, c}
	}
	return r
}

// maxModelName bounds the name that an endpoint gives its model, in bytes: it goes into spans, logs and
// checkpoints.
const maxModelName = 200

type reportedModel struct {
	m        model.Model
	provider string
}

// Generate calls the model's Generate in a span.
func (r reportedModel) Generate(ctx context.Context, req *model.Request, onDelta func(model.Delta) error) (*model.Response, error) {
	return r.call(ctx, req, onDelta, func(ctx context.Context, onDelta func(model.Delta) error) (*model.Response, error) {
		return r.m.Generate(ctx, req, onDelta)
	})
}

type reportedContinuer struct {
	reportedModel
	c model.Continuer
}

// Continue calls the model's Continue in a span.
func (r reportedContinuer) Continue(ctx context.Context, req *model.Request, told string, onDelta func(model.Delta) error) (*model.Response, error) {
	return r.call(ctx, req, onDelta, func(ctx context.Context, onDelta func(model.Delta) error) (*model.Response, error) {
		return r.c.Continue(ctx, req, told, onDelta)
	})
}

type generate func(ctx context.Context, onDelta func(model.Delta) error) (*model.Response, error)

// call makes one call of a model.
func (m reportedModel) call(ctx context.Context, req *model.Request, onDelta func(model.Delta) error, said generate) (*model.Response, error) {
	generate := func(ctx context.Context, onDelta func(model.Delta) error) (*model.Response, error) {
		res, err := said(ctx, onDelta)
		if res != nil {
			res.Usage, res.Model = res.Usage.Believable(), clip.Text(res.Model, maxModelName)
		}
		return res, err
	}
	r := reporterFrom(ctx)
	if r == nil {
		return generate(ctx, onDelta)
	}
	span := trace.SpanFromContext(context.Background()) // a span that records nothing
	if r.tracer != nil {
		ctx, span = r.tracer.Start(ctx, spanModel, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(r.request(m.provider, req, onDelta != nil)...))
		defer func() { span.End() }() // as a closure, End does not record a panic
	}
	begun := time.Now()
	first := time.Duration(-1)
	counted := onDelta
	if onDelta != nil {
		counted = func(d model.Delta) error {
			if first < 0 {
				first = time.Since(begun)
			}
			return onDelta(d)
		}
	}
	res, err := generate(ctx, counted)
	kind := ""
	switch {
	case errors.Is(err, model.ErrNotContinued):
		kind = "not_continued"
	case err != nil:
		kind = modelError(ctx, err)
	}
	r.measure(ctx, m.provider, req, res, kind, time.Since(begun), first)
	if err != nil {
		fail(span, kind)
		return res, err
	}
	span.SetAttributes(r.response(res, first)...)
	if r.content {
		r.conversation(span, req, res)
	}
	return res, nil
}

// request returns the span attributes of a request.
func (r *reporter) request(provider string, req *model.Request, stream bool) []attribute.KeyValue {
	p := &req.Params
	out := []attribute.KeyValue{
		attribute.String("llm.model", req.Model), attribute.String("llm.provider", provider),
		attribute.String("gen_ai.operation.name", string(genaiconv.OperationNameChat)), attribute.String("gen_ai.provider.name", genAIProvider(provider)),
		attribute.String("gen_ai.request.model", req.Model), attribute.String("gen_ai.agent.name", r.agent),
	}
	if stream {
		out = append(out, attribute.Bool("gen_ai.request.stream", true))
	}
	for _, f := range []struct {
		name  string
		value *float64
	}{
		{"gen_ai.request.temperature", p.Temperature}, {"gen_ai.request.top_p", p.TopP},
		{"gen_ai.request.frequency_penalty", p.FrequencyPenalty}, {"gen_ai.request.presence_penalty", p.PresencePenalty},
	} {
		if f.value != nil {
			out = append(out, attribute.Float64(f.name, *f.value))
		}
	}
	if p.MaxTokens > 0 {
		out = append(out, attribute.Int("gen_ai.request.max_tokens", p.MaxTokens))
	}
	if p.Seed != nil {
		out = append(out, attribute.Int64("gen_ai.request.seed", *p.Seed))
	}
	switch req.Format.Type {
	case model.FormatJSON, model.FormatJSONSchema:
		out = append(out, attribute.String("gen_ai.output.type", "json"))
	}
	return out
}

// response returns the span attributes of a response.
func (r *reporter) response(res *model.Response, first time.Duration) []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.Int64("llm.input_tokens", res.Usage.InputTokens), attribute.Int64("llm.output_tokens", res.Usage.OutputTokens),
		attribute.Int64("gen_ai.usage.input_tokens", res.Usage.InputTokens), attribute.Int64("gen_ai.usage.output_tokens", res.Usage.OutputTokens),
		attribute.String("gen_ai.response.model", res.Model), attribute.StringSlice("gen_ai.response.finish_reasons", []string{string(res.Finish)}),
	}
	if first >= 0 {
		out = append(out, attribute.Float64("gen_ai.response.time_to_first_chunk", first.Seconds()))
	}
	if n := res.Usage.CachedInputTokens; n > 0 {
		out = append(out, attribute.Int64("gen_ai.usage.cache_read.input_tokens", n))
	}
	if n := res.Usage.CacheWriteTokens; n > 0 {
		out = append(out, attribute.Int64("gen_ai.usage.cache_creation.input_tokens", n))
	}
	return out
}

// measure records the metrics of one call. Tokens are not recorded if the
// provider reports no usage.
func (r *reporter) measure(ctx context.Context, provider string, req *model.Request, res *model.Response, kind string, took, first time.Duration) {
	name := genaiconv.ProviderNameAttr(genAIProvider(provider))
	attrs := []attribute.KeyValue{attribute.String("gen_ai.request.model", req.Model), attribute.String("gen_ai.agent.name", r.agent)}
	if res != nil && res.Model != "" {
		attrs = append(attrs, attribute.String("gen_ai.response.model", res.Model))
	}
	if res != nil {
		for kind, n := range map[genaiconv.TokenTypeAttr]int64{genaiconv.TokenTypeInput: res.Usage.InputTokens, genaiconv.TokenTypeOutput: res.Usage.OutputTokens} {
			if n > 0 {
				r.tokens.Record(ctx, n, genaiconv.OperationNameChat, name, kind, attrs...)
			}
		}
	}
	if kind != "" {
		attrs = append(attrs, attribute.String("error.type", kind))
	}
	r.operations.Record(ctx, took.Seconds(), genaiconv.OperationNameChat, name, attrs...)
	if first >= 0 {
		r.firstChunk.Record(ctx, first.Seconds(), genaiconv.OperationNameChat, name, attrs...)
	}
}

// spent records the cost of a turn.
func (r *reporter) spent(ctx context.Context, res *model.Response) {
	if r == nil || r.cost == nil || !res.Priced || res.Cost <= 0 {
		return
	}
	r.cost.Add(ctx, float64(res.Cost)/float64(model.Dollar), metric.WithAttributes(attribute.String("gen_ai.provider.name", genAIProvider(res.Provider)),
		attribute.String("gen_ai.response.model", res.Model), attribute.String("gen_ai.agent.name", r.agent)))
}

// modelError is the kind of a model's failure.
func modelError(ctx context.Context, err error) string {
	var failed *model.Error
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		return "stopped" // by a pause, a steering message, or because another worker owns the run
	case ctx.Err() != nil:
		return runError(ctx, ctx.Err())
	case errors.As(err, &failed):
		return string(failed.Kind)
	}
	return "_OTHER"
}
