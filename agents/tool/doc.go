// Package tool is the port between an agent and the tools it may call: one
// interface, [Tool], a registry of Go functions, and [Guard], which adds the
// limits of a runtime to any tool.
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
// The port does not depend on envelopes, AAIF documents or models: it can be used and tested on its
// own. Adapters for other protocols are in folders below this one and import it, never one another:
// program runs a program that the operator named, rest calls plain HTTP endpoints, openapi makes
// tools of the operations of a description, mcp provides the tools of MCP servers.
//
// # Trust
//
// Arguments come from a model, schemas may come from an untrusted document, and results may come
// from anywhere. Guard therefore validates arguments before the tool is called, and results
// afterwards. It compiles schemas without loading anything from disk or network, bounds the sizes
// of arguments and results, ends calls at their deadline, and converts a panic to an error. It does
// not restrict what a tool may reach: do that when making the tool.
//
// # Repeated calls
//
// If a worker crashes during a call of a durable task, it is not known whether
// the call was done. A tool that is safe to repeat implements [Repeatable], or
// is wrapped with [RepeatSafe]; its call is repeated. [KeyFrom] returns the key
// by which a tool can recognise a repeated call.
//
// # Concurrency and retention
//
// A Tool is safe for concurrent use, retains neither arguments nor results, and returns when its
// context ends. Guard returns then even if the tool does not; see [Options.MaxOverruns].
//
// # Errors
//
// A failed call returns an [*Error] whose [Kind] a caller can branch on:
// errors.Is(err, tool.ErrInvalidArguments). Its Message may be shown to the
// model, so that it can correct its call; its cause is for logs only. A
// cancelled context is returned as the context's own error.
//
// # Implementing
//
// Package tooltest has the conformance suite that every implementation runs,
// and a Fake.
package tool
