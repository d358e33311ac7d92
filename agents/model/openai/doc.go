// Package openai is the model adapter for every endpoint with OpenAI's chat completions protocol:
// OpenAI itself, Azure, compatible providers, and any gateway or local server.
//
//	m, err := openai.New(openai.Config{
//		Provider: "mistral",
//		Key:      func(ctx context.Context) (string, error) { return vault.Get(ctx, "llm") },
//	})
//	res, err := m.Generate(ctx, &model.Request{Model: "mistral-small-latest", Messages: messages}, nil)
//
// Package endpoint sends the requests, retries them, and reads event streams. This package converts
// requests of package model to the protocol, and its answers back. It accepts known deviations of
// compatible servers: a whole answer instead of the requested stream, tool calls without index or
// id, "error": null in chunks, error bodies of any form, content in parts, streams without a final
// [DONE].
//
// # Providers
//
// [Providers] is the table of the known providers, with their endpoints and their deviations from
// OpenAI's protocol: the names of max_tokens and seed, ranges, missing parameters, whether a stream
// reports its usage on request, whether response_format is possible beside tools or in a stream,
// the form of call ids, and the thoughts that a provider requires in later requests (DeepSeek,
// OpenRouter and Fireworks do). The name openai at another host than OpenAI's own has no
// deviations.
//
// # Parameters
//
// A standard parameter is sent under the provider's name for it. Parameters that the provider lacks
// for all models are left out. A parameter that a model refuses, as reasoning models refuse
// temperature, is left out after the first refusal, which costs no tokens and is remembered for
// that model. Response.Dropped names both kinds, and numbers that were limited to the provider's
// range. The members of Params.Extended are added to the request body byte for byte, and replace
// members of the same name; none of them is ever left out.
//
// # Structured output
//
// JSON by a schema uses the provider's response_format, strictly if the schema is within the subset
// for strict adherence or if the caller asks for that. If the model refuses it, or the provider
// does not offer it beside tools, then JSON mode or no format is requested instead, the schema goes
// into the system prompt unless it is there already, and Dropped lists response_format.
//
// # Errors
//
// 401 and 403 are model.ErrAuth. 429 and 402 (the credit is used up) are model.ErrRateLimited, with
// the delay of Retry-After or of the X-RateLimit-Reset headers. Statuses of 500 and above, 408,
// 409, connection failures, and answers that break off or are malformed are model.ErrUnavailable. A
// conversation that is too long is recognised by the error's code or, because servers differ, by
// its words. Everything else is model.ErrBadRequest.
//
// # Secrets
//
// This package reads no environment variable and no file. The key comes from Config.Key at each
// call, is used for that call only, and is removed from the texts that the server sends back. It is
// sent only to the origin of BaseURL: a redirect to another origin is an error.
//
// # Limits
//
// An answer has at most Config.MaxResponse bytes. A Model is safe for concurrent use.
package openai
