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
// Schemas come out of documents and from peers, and payloads from any sender: package
// [github.com/aeemesh/aeemesh/intents/schema] compiles and validates them within
// bounds.
//
// # Concurrency
//
// Everything here may be used by any number of goroutines at once. A [Registry]
// publishes each change as a whole; readers take no lock.
package intents
