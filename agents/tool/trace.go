package tool

import "context"

type traceOfCall struct{}

type traceHeader struct{ name, value string }

// WithTrace returns a context with the W3C trace context of a call: the name of
// the header (AAIF telemetry.trace_context_header) and its value, a
// traceparent.
func WithTrace(ctx context.Context, header, value string) context.Context {
	return context.WithValue(ctx, traceOfCall{}, traceHeader{header, value})
}

// TraceFrom returns the header with the trace of the call that the context
// belongs to, and "", "" if there is none. A tool that calls over HTTP sets it;
// over MCP it is the member traceparent of _meta.
func TraceFrom(ctx context.Context) (header, value string) {
	h, _ := ctx.Value(traceOfCall{}).(traceHeader)
	return h.name, h.value
}
