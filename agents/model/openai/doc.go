// Package openai is the model adapter for every endpoint that speaks OpenAI's
// chat completions protocol: OpenAI itself, Azure, the providers that are
// compatible with it, and any gateway or local server.
//
//	m, err := openai.New(openai.Config{
//		Provider: "mistral",
//		Key:      func(ctx context.Context) (string, error) { return vault.Get(ctx, "llm") },
//	})
//	res, err := m.Generate(ctx, &model.Request{Model: "mistral-small-latest", Messages: messages}, nil)
//
// Package endpoint carries requests, retries and event streams. This package
// maps the port's words to the protocol's and back, and is forgiving where
// compatible servers are known to differ: a whole answer where a stream was
// asked for, tool calls without index or id, "error": null in chunks, error
// bodies of any shape, content in parts, streams without a final [DONE].
//
// # Providers
//
// [Providers] is the table of those that are known by name, with their
// endpoints and, as data, how they depart from the protocol as OpenAI has it:
// the names of max_tokens and seed, ranges, what they lack, whether a stream is
// asked for its usage, what becomes of response_format beside tools or in a
// stream, the form of call ids, and which thoughts a provider wants to see
// again (DeepSeek, OpenRouter and Fireworks do). The name openai at another
// host than OpenAI's own gets no such treatment.
//
// # Parameters
//
// A standard parameter is sent under the provider's name for it. What the
// provider lacks for every model is left out; what a model refuses, as
// reasoning models refuse temperature, is left out after its refusal, which
// costs no tokens and is kept in mind for that model. Response.Dropped tells of
// both, and of numbers that were brought into the provider's range. The members
// of Params.Extended are put into the request body byte for byte, after all
// others, and win over them; nothing of them is ever left out.
//
// # Structured output
//
// JSON by a schema is native where the provider has it, and strict where the
// schema is within the subset that strict adherence is given for, or the caller
// asks for it. Where it is refused, or not to be had beside tools, JSON mode or
// nothing is asked for, the schema goes into the system prompt unless it is
// there, and Dropped says response_format.
//
// # Errors
//
// 401 and 403 are model.ErrAuth; 429 and 402, which says that the credit is
// used up, are model.ErrRateLimited, with the delay of Retry-After or of the
// X-RateLimit-Reset headers; statuses of 500 and above, 408, 409, connection
// failures and answers that break off or make no sense are
// model.ErrUnavailable, and a conversation that is too long is recognised by
// its code or, since servers differ, its words. Everything else is
// model.ErrBadRequest.
//
// # Secrets
//
// This package reads no environment variable and no file. The key comes from
// Config.Key at each call, lives in that call alone, and is cut out of the
// texts that the server sends back. It is sent to the origin of BaseURL alone: a
// redirect elsewhere is an error.
//
// # Limits
//
// An answer is at most Config.MaxResponse bytes. A Model serves any number of
// goroutines.
package openai
