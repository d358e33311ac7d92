package tool

import (
	"context"
	"slices"
)

// Source is what an entry of a document's tools[] stands for: one tool, or
// those that somebody else lists, such as the tools of an MCP server or the
// operations of an OpenAPI document.
//
// Implementers must:
//   - make a Source without input or output; what it needs of others it gets in
//     Tools, and keeps;
//   - name a tool as the entry does where the entry stands for exactly one, and
//     give tools names that stay the same;
//   - return from Tools soon after ctx is done, and cheaply once the list is
//     known: it is asked at the beginning of every run;
//   - return an [ErrUnavailable] for as long as the list cannot be had, and try
//     again by itself, or when it is asked again;
//   - be safe for concurrent use. Tools that were given stay valid until Close,
//     also when the list changes.
type Source interface {
	// Tools are the tools that there are now. The slice is the caller's.
	Tools(ctx context.Context) ([]Tool, error)
	// Close ends what the source has opened. Calls that are under way may fail.
	Close() error
}

// Static is a source of tools that are always there.
func Static(tools ...Tool) Source { return static(slices.Clone(tools)) }

type static []Tool

func (s static) Tools(ctx context.Context) ([]Tool, error) {
	return slices.Clone(s), ctx.Err()
}

func (static) Close() error { return nil }
