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
//   - make a Source without I/O, and do I/O only in Tools, whose list it caches;
//   - give the tool the entry's name if the entry stands for exactly one tool,
//     and give every tool a name that does not change;
//   - return from Tools soon after ctx is done, and cheaply once the list is
//     known, because it is called at the beginning of every run;
//   - return an [ErrUnavailable] while the list is unavailable, and retry by
//     itself or at the next call;
//   - be safe for concurrent use. Returned tools stay valid until Close, even if
//     the list changes.
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
