// Package schema is a JSON Schema engine with limits, for schemas and documents from
// untrusted sources. It validates the payloads of intents, the arguments and results of
// tools, and AAIF documents.
//
//	s, err := schema.Compile(raw)         // an *Error lists what is wrong with the schema
//	err = s.Validate(payload)             // a *ValidationError lists what is wrong with the payload
//
// [Compile] refuses a schema that would load anything from disk or network, that refers
// to itself without end, or that exceeds fixed limits. [Schema.Validate] counts its work,
// and stops with a problem "limit" if a schema would make the work exponential or a
// regular expression too slow: no combination of schema and payload panics, overflows the
// stack or runs for much more than a second. Messages contain pointers, types, sizes and
// parts of the schema, but no value of the payload.
//
// [Schema.Examine] is for a program that explains problems in its own words, as agents/aaif
// does: it returns each problem with its place in the schema.
//
// A [Pool] limits the total cost of all schemas of one document or one tool server.
//
// The compiler is santhosh-tekuri/jsonschema: it reads the drafts and resolves
// references. Its validator is not used, because it does not limit its work (a number
// like 1e1000001 makes it panic, thirty lines of schema keep it busy for years) and needs
// a tree of maps; the validator here walks the compiled schema over the payload's own
// bytes. A test compares the two on random schemas and documents.
//
// # Limits
//
// Schemas: 256 KiB, 64 levels, 20,000 values, 2,000 subschemas; regular
// expressions of the RE2 syntax, of 1 KiB and a [PatternSize] of 2,000 each and
// 20,000 together; $id at the top only; no $dynamicRef and $recursiveRef. format
// is asserted. $schema may name draft 2020-12, 2019-09, 07, 06 or 04, and is
// 2020-12 when absent.
//
// Payloads: 1,000 levels, 250,000 values, numbers of 400 characters with
// exponents up to ±400. The work limit allows about two million checks.
package schema
