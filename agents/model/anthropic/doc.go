// Package anthropic is the model adapter for Anthropic's Messages API.
//
//	m, err := anthropic.New(anthropic.Config{
//		Key: func(ctx context.Context) (string, error) { return vault.Get(ctx, "anthropic") },
//	})
//	res, err := m.Generate(ctx, &model.Request{Model: "claude-sonnet-4-5", Messages: messages}, nil)
//
// Package endpoint carries requests and event streams. This package maps the
// port's words to the protocol's and back.
//
// # Conversations
//
// System messages become the system prompt, wherever they stand. What the tools
// of a turn say goes into one message of the user, in front of what the user
// says next; neighbours of one role become one message. Blank text, which the
// API refuses, is left out. A conversation that does not begin or does not end
// with the user gets a message that says "Continue.": the API would take an
// assistant's last message for the beginning of the answer, or refuse it. Ids
// of calls that another provider made are rewritten where the API would refuse
// their characters. Where a conversation has calls and the request has no tools,
// the tools that were called are declared, as the API demands, and not to be
// called (tool_choice none).
//
// # Thoughts
//
// A model's thoughts never are part of a turn's text. The API wants them back,
// signed as they came, with the results of the tools that the turn called, so
// they travel in model.Message.Provider, and so do the blocks of server tools.
// Another adapter ignores them, and so does this one if it asks another model.
//
// # Parameters
//
// MaxTokens, which the API requires, is Config.MaxTokens where the request has
// none, more where the budget of params.extended.thinking asks for it, and less
// where the model says that it can do no more. Temperature is at most 1. The
// API takes no seed and no penalties. Thinking goes with no temperature but 1
// and with no top_p below 0.95. Newer models take no sampling parameters, or
// only one: a request that is refused with a parameter's name is sent again
// without it, before the answer has begun, and the model's refusal is kept in
// mind. Response.Dropped names all that was left out or changed.
//
// The members of Params.Extended are put into the request's body byte for byte,
// after all others, and win over them. Only output_config is merged one level
// deeper, so that an effort does not undo the format.
//
// # Structured output
//
// A JSON Schema is enforced by output_config.format, in the subset that the API
// knows: what is beyond it goes into descriptions. Where the API refuses it (an older
// model, a recursive schema) the request is sent again with the schema in the
// system prompt instead. JSON without a schema is asked for there, too.
//
// # Errors
//
// 401 and 403 are model.ErrAuth. 429 is model.ErrRateLimited with the delay of
// Retry-After, and so is an account without credit. 529 and other statuses of
// 500 and above, 408, 409, connection failures, and answers that break off, end
// in an error event of the provider's or make no sense are
// model.ErrUnavailable. 413 and a prompt that is too long are
// model.ErrContextTooLong. Everything else is model.ErrBadRequest.
//
// This package does not retry: package route asks again, or elsewhere. A turn that the
// provider pauses (pause_turn, of server tools) is asked on, at most 8 times.
//
// # Secrets
//
// This package reads no environment variable and no file. The key comes from
// Config.Key at each call, lives in that call alone, and is cut out of the
// texts that the server sends back. Redirects are not followed: they would take
// the key elsewhere.
//
// # Limits
//
// An answer is at most Config.MaxResponse bytes and 256 tool calls. A Model
// serves any number of goroutines.
package anthropic
