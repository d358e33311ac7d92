// Package google is the model adapter for Gemini: by the Gemini API with an API
// key (AAIF provider google), and by Vertex AI with a project and an access
// token, or with an API key alone (vertex_ai).
//
//	m, err := google.New(google.Config{
//		Provider: google.Vertex,
//		Project:  "my-project",
//		Location: "europe-west4",
//		Token:    google.Credentials("", nil),
//	})
//	res, err := m.Generate(ctx, &model.Request{Model: "gemini-2.5-flash", Messages: messages}, nil)
//
// Package endpoint carries requests and event streams. This package says where
// the API is, builds the bodies, and reads the answers.
//
// # Parameters
//
// The standard parameters are members of generationConfig. A seed that does not
// fit into 32 bits is left out; penalties, JSON beside tools, and a schema are
// left out after a model has refused them, which costs no tokens; the first two
// refusals are remembered for that model. Response.Dropped lists all of them. A
// format that is left out goes into the system prompt instead. The members of
// Params.Extended are merged into the request's body byte for byte, objects
// into objects, and win: {"generationConfig": {"topK": 40}} adds to what is
// there, {"safetySettings": […]} stands beside it. Schemas of tools and answers
// go as JSON Schema, as they are written.
//
// # Conversations
//
// System messages together are the system instruction. The results of the calls
// of one turn form one turn, as output or error. Calls without an id get one
// that is unique in the conversation.
//
// Thoughts are never part of the text. Signatures of thoughts are kept in
// Message.Provider and go back with the very part that they came with, to the
// model that made them; Gemini 3 and its successors refuse a turn with calls
// that has none, so calls that another model made go with the word that the API
// has for it.
//
// # Errors
//
// UNAUTHENTICATED, PERMISSION_DENIED and an API key that is not valid are
// model.ErrAuth; RESOURCE_EXHAUSTED is model.ErrRateLimited, with the delay of
// Retry-After or RetryInfo; statuses of 500 and above, connection failures,
// answers that break off, end without a reason or make no sense are
// model.ErrUnavailable, and so is a malformed call of the model's; a
// conversation that is too long is known by its words. Everything else is
// model.ErrBadRequest. An answer or a prompt that the provider withholds is no
// error but FinishContentFilter.
//
// # Secrets
//
// The environment is not used; only [Credentials] looks where Google's own tools
// look, if it is given no file.
// Key and token are resolved at each call, live in that call alone, are sent to
// the origin of BaseURL and nowhere else, and are cut out of what the server
// says.
//
// # Limits
//
// An answer is at most Config.MaxResponse bytes. The server is told how long its
// answer is waited for (X-Server-Timeout). There are no retries but those after a
// refused parameter. A Model serves any number of goroutines.
package google
