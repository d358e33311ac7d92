// Package modeltest supports tests of users and implementations of
// [model.Model]: [Fake] is a model with scripted turns, and [Run] the
// conformance suite that every implementation must pass.
//
// A test of an agent uses the Fake:
//
//	m := modeltest.New(
//		modeltest.Turn{Calls: []model.ToolCall{{ID: "1", Name: "look", Arguments: json.RawMessage(`{}`)}}},
//		modeltest.Turn{Text: "nothing to see"},
//	)
//
// A test of an adapter gives Run a function that builds an adapter whose backend plays turns:
//
//	modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
//		return newAdapter(t, protocolDouble(t, turns))
//	})
//
// A [Frame] tests what the adapters of protocols over HTTP have in common besides: unreachable and slow
// servers, redirects, keys, addresses.
//
// [CheckAnswer] is for fuzz tests of an adapter: it checks the result for any answer of a server.
//
// Fake and Run choose the turn by the number of assistant messages in the conversation.
// So they have no state between calls, and are safe for concurrent use.
package modeltest
