// Package openai is the model adapter for every endpoint that speaks OpenAI's
// chat completions protocol: OpenAI itself, and the many gateways and local
// servers that are compatible with it.
//
//	m, err := openai.New(openai.Config{
//		BaseURL: "http://localhost:11434/v1",
//		Key: func(ctx context.Context) (string, error) { return vault.Get(ctx, "llm") },
//	})
//	res, err := m.Generate(ctx, &model.Request{Model: "llama3.1", Messages: messages}, nil)
//
// The vendor's SDK carries requests, retries and event streams. This package
// maps the port's words to the protocol's and back, and is forgiving where
// compatible servers are known to differ: a whole answer where a stream was
// asked for, tool calls without index or id, "error": null in chunks, error
// bodies of any shape, streams without a final [DONE].
//
// # Parameters
//
// Every parameter of the port has its counterpart. MaxTokens becomes
// max_completion_tokens at api.openai.com, whose newer models refuse the older
// name, and max_tokens anywhere else. The members of Params.Extended are put
// into the request body byte for byte, after all others, and win over them.
// Streams are asked to report usage.
//
// # Errors
//
// 401 and 403 are model.ErrAuth, 429 is model.ErrRateLimited with the delay of
// Retry-After, statuses of 500 and above, 408, 409, connection failures and
// answers that break off or make no sense are model.ErrUnavailable, and a
// conversation that is too long is recognised by its code or, since servers
// differ, its words. Everything else is model.ErrBadRequest.
//
// # Secrets
//
// This package reads no environment variable and no file. The key comes from
// Config.Key at each call, lives in that call alone, and is cut out of the
// texts that the server sends back. The SDK sends it to the origin of BaseURL
// and, if redirected elsewhere, to nobody.
//
// # Limits
//
// An answer is at most Config.MaxResponse bytes. A Model serves any number of
// goroutines.
package openai
