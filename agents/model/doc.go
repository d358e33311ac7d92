// Package model is the port between an agent and the language model that
// drives it: one interface, [Model], and the words that pass through it.
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
// A tool-using conversation goes in rounds. The model answers with
// [FinishToolCalls] and a message that carries calls; the caller appends that
// message, then one [ToolResult] for each call in the same order, and asks
// again.
//
//	req.Messages = append(req.Messages, res.Message)
//	for _, call := range res.Message.ToolCalls {
//		req.Messages = append(req.Messages, model.ToolResult(call, run(call)))
//	}
//
// # Concurrency and retention
//
// One Model serves any number of goroutines at once. A Model neither changes a
// Request nor keeps any part of it after Generate returns, and a Response
// belongs to its caller. Deltas arrive one at a time, in order, and only while
// Generate runs.
//
// # Errors
//
// A failed call returns an [*Error] whose [Kind] a caller can branch on:
// errors.Is(err, model.ErrRateLimited). Whether to try again, and where, is the
// caller's decision; see [Kind]. A cancelled or expired context is returned as
// the context's own error and is not an [*Error]. No error text holds a
// credential; it may quote the provider's own words, so it is meant for
// operators, not for peers.
//
// A model that can go on with a turn of which a part was streamed before a
// worker died says so by being a [Continuer].
//
// # Implementing
//
// Package modeltest has the conformance suite that every implementation runs,
// and a Fake for those who use a model rather than make one.
package model
