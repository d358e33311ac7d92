// Package google is the model adapter for Gemini. AAIF's provider google is the Gemini API, with an
// API key. Provider vertex_ai is Vertex AI, with a project and an access token, or with an API key
// alone.
//
//	m, err := google.New(google.Config{
//		Provider: google.Vertex,
//		Project:  "my-project",
//		Location: "europe-west4",
//		Token:    google.Credentials("", nil),
//	})
//	res, err := m.Generate(ctx, &model.Request{Model: "gemini-2.5-flash", Messages: messages}, nil)
//
// Package endpoint sends the requests and reads event streams. This package determines the URL,
// builds the bodies, and interprets the answers.
//
// # Parameters
//
// The standard parameters are members of generationConfig. A seed that does not fit into 32 bits is
// left out; penalties, JSON beside tools, and a schema are left out after a model has refused them,
// which costs no tokens; the first two refusals are remembered for that model. Response.Dropped
// lists all of them. A format that is left out goes into the system prompt instead. The members of
// Params.Extended are merged into the request's body byte for byte, objects recursively, and take
// precedence: {"generationConfig": {"topK": 40}} adds topK to generationConfig, {"safetySettings":
// […]} adds a member beside it. Schemas of tools and answers are sent as JSON Schema, unchanged.
//
// # Conversations
//
// All system messages form the system instruction. The results of the calls of one turn form one
// turn, each as output or error. Calls without an id get one that is unique in the conversation.
//
// Thoughts are never part of the text. Signatures of thoughts are stored in Message.Provider, and
// sent back with the part that they belong to, to the model that made them. Gemini 3 and later
// refuse a turn with calls that has no signature, so calls of other models are sent with a
// placeholder that the API defines.
//
// # Errors
//
// UNAUTHENTICATED, PERMISSION_DENIED and an API key that is not valid are model.ErrAuth;
// RESOURCE_EXHAUSTED is model.ErrRateLimited, with the delay of Retry-After or RetryInfo; statuses
// of 500 and above, connection failures, and answers that break off, end without a finish reason or
// are malformed are model.ErrUnavailable, and so is a malformed call by the model. A conversation
// that is too long is recognised by the words of the error. Everything else is model.ErrBadRequest.
// If the provider withholds an answer or refuses a prompt for its content, that is no error: the
// turn ends with FinishContentFilter.
//
// # Secrets
//
// The environment is not used, except by [Credentials] without a file. Key and token are read at
// each call, used for that call only, sent only to the origin of BaseURL, and removed from the
// server's texts.
//
// # Limits
//
// An answer has at most Config.MaxResponse bytes. The header X-Server-Timeout tells the server how
// long this package waits for the answer. A request is sent again only without a refused parameter;
// there are no other retries. A Model is safe for concurrent use.
package google
