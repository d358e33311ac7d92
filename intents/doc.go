// Package intents knows what payloads mean: the names of intents, the schemas
// of their payloads, and whether a payload fits.
//
// An intent publishes up to three JSON Schemas, for task, result and error
// payloads (AEE, "Intent Schema Publishing"). The seven reserved intents of the
// protocol ("Reserved Namespace: aee.*") and the mesh's own commands come
// embedded, as <intent>.<variant>.schema.json beside the Go files; an
// application adds its own to a [Registry]:
//
//	r := intents.NewRegistry()
//	names, err := r.LoadDir("schemas")         // ops.backup.status.check.task.schema.json, …
//	err = r.Register(intents.FromIO("agent.ask", doc.IO.Input, doc.IO.Output))
//	err = r.Validate("ops.backup.status.check", intents.Task, payload)
//
// Validate says [ErrUnknownIntent] for an intent that is not registered, and
// leaves it to the caller whether such a task is served. Everything else that it
// reports is a [ValidationError] with all problems. Nobody but this package
// registers names under "aee." and "mesh.".
//
// An agent of the mesh is held to its schemas both ways: tasks when they come in,
// results and its own errors before they go out. A result that does not fit is
// answered with E_OUTPUT_SCHEMA, and an error too, with its code and message in
// the text, so that no failure is lost over its form. Error schemas hold for an
// application's own codes and for E_AGENT; any task may end in another of the
// mesh's codes, which none needs to list.
//
// The answers to aee.capability.list and aee.validate.payload, which need
// nothing but a registry, are [Registry.AnswerCapabilityList] and
// [Registry.AnswerValidatePayload]; the payloads of all reserved intents are Go
// types here ([PingResult], [FetchTask], …). [CheckEvidence] holds a result
// against the level of decision evidence that its task required. [StepEvent] is
// what agents tell of their steps on bus.mesh.run; [EventSchema] has the schema of
// each of the mesh's topics.
//
// # Schemas from strangers
//
// Schemas come out of documents and from peers, and payloads from anybody, so
// neither is trusted. [Compile] refuses a schema that would load anything from
// disk or network, that refers to itself without end, or that is beyond fixed
// bounds. [Schema.Validate] keeps an account of its work and gives up with a
// problem "limit" where a schema would make it exponential, or a regular
// expression endless; no combination of schema and payload panics, overflows the
// stack or runs for much more than a second. Messages name places, types,
// sizes and what the schema says, and no value from the payload.
//
// The compiler is santhosh-tekuri/jsonschema: it reads the drafts and resolves
// references. Its validator is not used on payloads, because it has no such
// account (a number like 1e1000001 makes it panic, thirty lines of schema keep it
// busy for years) and wants a tree of maps; ours walks the compiled schema over
// the payload's own bytes. A test holds the two against each other over random
// schemas and documents.
//
// # Limits
//
// Schemas: 256 KiB, 64 levels, 20,000 values, 2,000 subschemas; regular
// expressions of the RE2 syntax, 1 KiB and 2,000 instructions each; $id at the
// top only; no $dynamicRef and $recursiveRef. format is asserted. $schema may
// name draft 2020-12, 2019-09, 07, 06 or 04, and is 2020-12 when absent.
//
// Payloads: 1,000 levels, 250,000 values, numbers of 400 characters with
// exponents up to ±400. The account of work allows about two million checks.
//
// # Concurrency
//
// Everything here may be used by any number of goroutines at once. A [Registry]
// publishes each change as a whole; readers take no lock.
package intents
