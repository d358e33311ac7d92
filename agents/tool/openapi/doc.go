// Package openapi makes tools of the operations of an OpenAPI description, 3.0
// or 3.1: protocol openapi of an AAIF document (Tool Definitions).
//
//	src, err := openapi.Open(entry, outbound.Access{Policy: policy, Secrets: set}, openapi.Options{Logger: log})
//	tools, err := src.Tools(ctx) // reads the description, once
//
// # The endpoint
//
// An endpoint is the URL of the description, which the policy must permit, or
// the path of one of the operator's files. The fragment after # selects
// operations, by operationId or as METHOD /path, separated by commas:
//
//	https://api.example.com/openapi.json
//	https://api.example.com/openapi.json#listPets,getPet
//	petstore.yaml#GET /pets/{petId}
//
// Without a fragment, the operation whose operationId is the entry's name is selected. If there is
// none, all operations are selected, up to 128. A tool is named after its operationId, or method
// and path. A single tool has the entry's name, description and output_schema. The description's
// schemas apply; an entry's parameters_schema is ignored, and the log says so.
//
// # Arguments
//
// Each parameter of the path, the query, the headers and the cookies is an
// argument by its name (of two with one name, the second is name_header, and so
// on), and is written as its style and explode say (OpenAPI, Style Values). The
// body is the argument body: JSON, a form, whose members are written as the
// description's encoding says, or a plain text. Operations whose body has no
// such encoding are left out, or are called without a body if it is
// optional, and the log says so. Parameters that the client sets itself, such
// as Authorization and Idempotency-Key, are not arguments.
//
// Schemas become JSON Schema 2020-12: nullable and boolean exclusive bounds of 3.0 are rewritten,
// readOnly properties are left out of arguments, and schemas that are referred to more than once,
// or by themselves, go to $defs. If an operation has a single JSON answer with a plain schema (an
// object or array without alternatives), results are validated against it; see schema.go.
//
// # Servers and credentials
//
// A request goes to the first of the operation's servers that the policy allows, or to the
// operator's own choice, Options.Server. The entry's auth block gives the credential. Of the
// alternatives in the operation's security, the one counts whose single scheme fits the type of the
// auth block. It determines the place of an api_key, and the tokenUrl and scopes of oauth2 if the
// block has none. An operation whose security is empty gets no credential. See security.go.
//
// # A hostile description
//
// The description is bounded in size, depth, operations and schemas, and so is the time to read it.
// References may lead only to files in its own folder and below, which are read under the same
// policy. A panic of the reader becomes an error. Problems that the validator finds are only
// warnings in the log, because it does not know everything that descriptions may contain.
package openapi
