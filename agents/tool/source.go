package tool

import (
	"context"
	"slices"
)

// Source provides the tools of an entry of a document's tools[]: one tool, or a
// list from elsewhere, such as the tools of an MCP server or the operations of
// an OpenAPI document.
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
	// Tools returns the current tools. The caller may modify the slice.
	Tools(ctx context.Context) ([]Tool, error)
	// Close closes what the source has opened. Running calls may fail.
	Close() error
}

// Static returns a source with a fixed list of tools.
func Static(tools ...Tool) Source { return static(slices.Clone(tools)) }

type static []Tool

func (s static) Tools(ctx context.Context) ([]Tool, error) {
	return slices.Clone(s), ctx.Err()
}

func (static) Close() error { return nil }
