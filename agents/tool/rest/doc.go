// Package rest makes tools of plain HTTP endpoints: protocol http of an AAIF
// document (Tool Definitions).
//
//	src, err := rest.Open(entry, outbound.Access{Policy: policy, Secrets: set})
//
// # The endpoint
//
// An endpoint is a URL, or a method and a URL:
//
//	https://api.example.com/v1/orders
//	GET https://api.example.com/v1/orders/{id}?lang={lang}
//
// Without a method it is POST. Methods are GET, HEAD, POST, PUT, PATCH, DELETE and
// OPTIONS. {name} in the path or the query stands for the argument of that name,
// which parameters_schema declares; nothing else of a URL can be filled in.
//
//   - In the path it is a string, a number or a boolean, is escaped, and must not be
//     empty or lead out of the path (.., also encoded).
//   - In the query, arrays are joined with commas. A parameter whose argument is
//     absent or null is left out.
//
// The arguments that are not filled in are the body, a JSON object; for GET, HEAD,
// DELETE and OPTIONS they are added to the query: arrays as a parameter for each
// item, objects as JSON, null left out.
//
// # The answer
//
// Of status 2xx it is the result: see [outbound.Answer.JSON]. The runtime's guard
// holds it to output_schema. Anything else is a failed call, of which the model is
// told the status and the server's words, bounded and cleaned.
//
// # Repetition
//
// Each request has an Idempotency-Key, [tool.KeyFrom], and the trace of the call,
// [tool.TraceFrom]. Calls of GET, HEAD, PUT, DELETE and OPTIONS are safe to repeat
// (RFC 9110, section 9.2.2): they are made once more when the server answers 429 or
// 503 with a short Retry-After, and by a run that goes on after a crash. A POST
// whose server knows the key is repeated if the operator says so (LostCalls).
package rest
