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
// Without a method it is POST. Methods are GET, HEAD, POST, PUT, PATCH, DELETE
// and OPTIONS. {name} in the path or the query is replaced by the argument of
// that name, which parameters_schema must declare; other parts of a URL cannot
// have placeholders.
//
//   - In the path it is a string, a number or a boolean, is escaped, and must not be
//     empty or lead out of the path (.., also encoded).
//   - In the query, arrays are joined with commas. A parameter whose argument is
//     absent or null is left out.
//
// The other arguments form the body, a JSON object; for GET, HEAD, DELETE and
// OPTIONS they are added to the query: arrays as a parameter for each item,
// objects as JSON, null left out. There an argument that parameters_schema does
// not declare cannot have the name of a parameter of the endpoint.
//
// # The answer
//
// An answer with status 2xx is the result: see [outbound.Answer.JSON]. The
// runtime's guard validates it against output_schema. Any other status is a
// failed call; the model gets the status and the server's text, truncated and
// cleaned.
//
// # Repeated calls
//
// Each request has an Idempotency-Key, [tool.KeyFrom], and the trace of the
// call, [tool.TraceFrom]. Calls of GET, HEAD, PUT, DELETE and OPTIONS are safe
// to repeat (RFC 9110, section 9.2.2): they are retried once if the server
// answers 429 or 503 with a short Retry-After, and repeated by a run that
// resumes after a crash. A POST whose server honours the key is repeated if the
// operator says so (LostCalls).
package rest
