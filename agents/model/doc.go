// Package model is the port between an agent and its language model: one
// interface, [Model], and the types of its requests and responses.
//
//	res, err := m.Generate(ctx, &model.Request{
//		Model:    "llama3.1",
//		Messages: []model.Message{model.System("Answer in one line."), model.User("What is NATS?")},
//	}, func(d model.Delta) error {
//		_, err := os.Stdout.WriteString(d.Text)
//		return err
//	})
//
// The port knows nothing of envelopes, of AAIF documents or of NATS: it can be
// used and tested on its own. Adapters live in folders below this one and
// import it, never one another: builtin is the offline model of demos and
// tests, openai speaks to any OpenAI-compatible endpoint, route chooses among
// several models.
//
// A conversation with tools proceeds in rounds. The model answers with
// [FinishToolCalls] and a message with calls. The caller appends that message,
// then one [ToolResult] for each call in the same order, and calls Generate
// again.
//
//	req.Messages = append(req.Messages, res.Message)
//	for _, call := range res.Message.ToolCalls {
//		req.Messages = append(req.Messages, model.ToolResult(call, run(call)))
//	}
//
// # Concurrency and retention
//
// A Model is safe for concurrent use. A Model neither changes a Request nor
// keeps any part of it after Generate returns, and a Response belongs to its
// caller. Deltas arrive one at a time, in order, and only while Generate runs.
//
// # Errors
//
// A failed call returns an [*Error] whose [Kind] a caller can branch on:
// errors.Is(err, model.ErrRateLimited). The caller decides whether to retry,
// and with which model; see [Kind]. A cancelled or expired context is returned
// as the context's own error and is not an [*Error]. No error text holds a
// credential; it may quote the provider's own words, so it is meant for
// operators, not for peers.
//
// A model that can continue a partly streamed turn implements [Continuer].
//
// # Implementing
//
// Package modeltest has the conformance suite that every implementation runs,
// and a Fake for those who use a model rather than make one.
package model
