// Package bedrock is the model adapter for Converse and ConverseStream of Amazon Bedrock, which
// serve models of many vendors.
//
//	m, err := bedrock.New(bedrock.Config{Region: "eu-central-1"})
//	res, err := m.Generate(ctx, &model.Request{Model: "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", Messages: messages}, nil)
//
// This package makes the two calls itself, over HTTP. AWS's SDK reads AWS's configuration, signs
// requests and splits event streams; its client of Bedrock is not linked. Request.Model is a
// model's id, the id of an inference profile, or an ARN.
//
// # Credentials
//
// Without Config.Key the credentials come from AWS's default chain: environment, shared files,
// single sign-on, the role of a container or an instance, and AWS_BEARER_TOKEN_BEDROCK. The chain
// is read at the first call. Config.Key returns either a Bedrock API key, or
// ACCESS_KEY_ID:SECRET_ACCESS_KEY with an optional :SESSION_TOKEN, or the JSON object of AWS STS
// with AccessKeyId, SecretAccessKey and SessionToken. With it, nothing is taken from the
// environment.
//
// # Endpoint
//
// The endpoint is Config.BaseURL, or without Config.Key the one in AWS's configuration:
// AWS_ENDPOINT_URL_BEDROCK_RUNTIME, AWS_ENDPOINT_URL, the same settings in the shared files, and
// the use of FIPS or dual-stack endpoints. The default is the service's own endpoint in the
// region.
//
// # Conversations
//
// System messages become the system prompt, wherever they are in the conversation, or the beginning
// of the user's first message if the model has no system prompt. The results of a turn's tools go
// into one message of the user, before the user's next text; adjacent messages of one role become
// one message. Blank text is left out. If a conversation does not begin or does not end with a user
// message, a user message "Continue." is added. If a conversation has calls and the request has no
// tools, the called tools are declared, because the API requires it. A model's thoughts are never
// part of a turn's text. They are stored in model.Message.Provider with their signatures, and sent
// back to the same model only.
//
// # Parameters
//
// Temperature (at most 1), TopP, MaxTokens and Stop become inferenceConfig. The API accepts no seed
// and no penalties. Params.Extended becomes additionalModelRequestFields, byte for byte; a member
// there replaces the port's parameter of the same meaning. Thinking allows only temperature 1, and
// TopP from 0.95.
//
// Models differ in what they accept. If the refusal of a request names a parameter, the system
// prompt, streaming or structured output, the request is sent again without it, unless the answer
// has begun, and the refusal is remembered. Response.Dropped names the parameters that were left
// out or changed.
//
// # Structured output
//
// A JSON Schema is enforced by outputConfig, in the subset of JSON Schema that the models support:
// objects are closed, and other keywords are left out; the caller validates the answer itself. If a
// model refuses it, the request is sent again with the schema in the system prompt instead. The
// system prompt also asks for JSON without a schema.
//
// # Errors
//
// ThrottlingException and an exhausted quota are model.ErrRateLimited, with the delay of
// Retry-After. AccessDeniedException, a refused signature and unavailable credentials are
// model.ErrAuth. ServiceUnavailable, ModelNotReady, ModelTimeout, ModelError and InternalServer
// exceptions, connection failures, and answers that break off or are malformed are
// model.ErrUnavailable. A ValidationException is model.ErrContextTooLong if it says so, and
// model.ErrBadRequest otherwise, as is anything else. This package retries nothing; a model that
// routes between models does.
//
// # Secrets
//
// The value of Config.Key is used for one call only, and is removed from the texts that the server
// sends back. Redirects are not followed.
//
// # Limits
//
// An answer has at most Config.MaxResponse bytes and 256 tool calls. A Model is safe for concurrent
// use.
package bedrock
