package tool

import "context"

type traceOfCall struct{}

type traceHeader struct{ name, value string }

// WithTrace returns a context that carries the W3C trace context of a call: the
// name of the header that it travels in (AAIF telemetry.trace_context_header)
// and its value, a traceparent.
func WithTrace(ctx context.Context, header, value string) context.Context {
	return context.WithValue(ctx, traceOfCall{}, traceHeader{header, value})
}

// TraceFrom returns the header that tells what a call reaches of the trace that
// the call belongs to, and "", "" where there is none. A tool that calls over
// HTTP sets it; over MCP it is the member traceparent of _meta.
func TraceFrom(ctx context.Context) (header, value string) {
	h, _ := ctx.Value(traceOfCall{}).(traceHeader)
	return h.name, h.value
}
