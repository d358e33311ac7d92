// Package tool is the port between an agent and the tools it may call: one
// interface, [Tool], a registry of Go functions, and [Guard], which puts the
// bounds of a runtime around any tool.
//
//	look := tool.Func(tool.Definition{
//		Name:        "look",
//		Description: "Reads one line of a file.",
//		Parameters:  json.RawMessage(`{"type":"object","required":["line"],"properties":{"line":{"type":"integer"}}}`),
//	}, func(ctx context.Context, in struct{ Line int }) (string, error) {
//		return lines[in.Line], nil
//	})
//
//	var reg tool.Registry
//	reg.Add(look)
//
//	t, err := reg.Lookup("look")            // what a document's function tool resolves to
//	g, err := tool.Guard(t, tool.Options{}) // arguments and results checked, time and size bounded
//	result, err := g.Call(ctx, json.RawMessage(`{"line": 3}`))
//
// The port knows nothing of envelopes, of AAIF documents or of models: it can
// be used and tested on its own. Adapters for other protocols live in folders
// below this one and import it, never one another: program runs a program
// that the operator named, rest speaks plain HTTP, openapi makes tools of the
// operations of a description, mcp has the tools of MCP servers.
//
// # Trust
//
// Arguments come from a model, schemas may come from a document by a stranger,
// and results may come from anywhere. Guard therefore checks arguments against
// the schema before the tool sees them and results after, compiles schemas
// without ever loading anything from disk or network, bounds the sizes of
// both, ends calls at their deadline, and turns a panic into an error. What a
// tool may reach is the tool's own affair: confine it when building it.
//
// # Calls that are made again
//
// When a worker dies in the middle of a call of a durable task, nobody knows
// whether the call was done. A tool that is safe to repeat says so by being a
// [Repeatable], or is declared so with [RepeatSafe]; its call is made again.
// [KeyFrom] gives a tool the key by which a repetition can be told.
//
// # Concurrency and retention
//
// A Tool serves any number of goroutines at once, keeps neither arguments nor
// results, and returns when its context is done. Guard enforces the last even
// on a tool that does not; see [Guarded.Wait].
//
// # Errors
//
// A failed call returns an [*Error] whose [Kind] a caller can branch on:
// errors.Is(err, tool.ErrInvalidArguments). Its Message may be shown to the
// model, so that it can mend its call; its cause is for logs alone. A cancelled
// context is returned as the context's own error.
//
// # Implementing
//
// Package tooltest has the conformance suite that every implementation runs,
// and a Fake.
package tool
