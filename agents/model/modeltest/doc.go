// Package modeltest has what the users and the makers of a [model.Model] test
// with: [Fake], a model that says what it is told to, and [Run], the
// conformance suite that every implementation passes.
//
// A test of an agent uses the Fake:
//
//	m := modeltest.New(
//		modeltest.Turn{Calls: []model.ToolCall{{ID: "1", Name: "look", Arguments: json.RawMessage(`{}`)}}},
//		modeltest.Turn{Text: "nothing to see"},
//	)
//
// A test of an adapter gives Run a way to build one whose backend plays turns:
//
//	modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
//		return newAdapter(t, protocolDouble(t, turns))
//	})
//
// Both choose the turn by how many assistant messages the conversation already
// holds, so they keep no state between calls and serve many goroutines.
package modeltest
