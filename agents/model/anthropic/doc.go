// Package anthropic is the model adapter for Anthropic's Messages API.
//
//	m, err := anthropic.New(anthropic.Config{
//		Key: func(ctx context.Context) (string, error) { return vault.Get(ctx, "anthropic") },
//	})
//	res, err := m.Generate(ctx, &model.Request{Model: "claude-sonnet-4-5", Messages: messages}, nil)
//
// Package endpoint sends the requests and reads event streams. This package converts requests of
// package model to the protocol, and its answers back.
//
// # Conversations
//
// System messages become the system prompt, wherever they are in the conversation. The results of a
// turn's tools go into one user message, before the user's next text; adjacent messages of one role
// become one message. Blank text, which the API refuses, is left out. If a conversation does not
// begin or does not end with a user message, a user message "Continue." is added: the API would
// take a last message of the assistant for the beginning of the answer, or refuse it. Call ids of
// other providers are rewritten if the API would refuse their characters. If a conversation has
// calls and the request has no tools, the called tools are declared, because the API requires it,
// and tool_choice none forbids to call them.
//
// # Thoughts
//
// A model's thoughts are never part of a turn's text. The API requires the signed thoughts of a
// turn together with the results of the tools that the turn called. So this package stores them,
// and the blocks of server tools, in model.Message.Provider. Other adapters ignore them, and so
// does this one for another model.
//
// # Parameters
//
// The API requires max_tokens. If the request sets none, it is Config.MaxTokens plus the budget of
// params.extended.thinking, but at most the limit that the model has reported in a refusal.
// Temperature is at most 1. The API accepts no seed and no penalties. With thinking, it accepts
// only temperature 1 and a top_p of at least 0.95. Newer models accept no sampling parameters, or
// only one. If the refusal of a request names a parameter, the request is sent again without it,
// unless the answer has begun, and the refusal is remembered for the model. Response.Dropped names
// the parameters that were left out or changed.
//
// The members of Params.Extended are added to the request's body byte for byte, and replace members
// of the same name. Only output_config is merged one level deeper, so that an effort there does not
// remove the format.
//
// # Structured output
//
// A JSON Schema is enforced by output_config.format, in the subset that the API supports; other
// keywords go into descriptions. If the API refuses the schema (an older model, a recursive
// schema), the request is sent again with the schema in the system prompt instead. The system
// prompt also asks for JSON without a schema.
//
// # Errors
//
// 401 and 403 are model.ErrAuth. 429 is model.ErrRateLimited with the delay of Retry-After, and so
// is an account without credit. Statuses of 500 and above (such as 529), 408, 409, connection
// failures, and answers that break off, end with an error event or are malformed are
// model.ErrUnavailable. 413 and a prompt that is too long are model.ErrContextTooLong. Everything
// else is model.ErrBadRequest.
//
// This package does not retry; package route tries other routes. A turn that the provider pauses
// (pause_turn, of server tools) is continued at most 8 times.
//
// # Secrets
//
// This package reads no environment variable and no file. The key comes from Config.Key at each
// call, is used for that call only, and is removed from the texts that the server sends back.
// Redirects are not followed, because they would send the key to another server.
//
// # Limits
//
// An answer has at most Config.MaxResponse bytes and 256 tool calls. A Model is safe for concurrent
// use.
package anthropic
