// Package intents defines the names of intents, the types and the JSON Schemas of their
// payloads, and validates payloads.
//
// An intent has up to three published JSON Schemas, for task, result and error payloads
// (AEE, "Intent Schema Publishing"). The schemas of the seven reserved intents of the
// protocol ("Reserved Namespace: aee.*") and of the mesh's own commands are embedded, as
// <intent>.<variant>.schema.json beside the Go files; an application adds its own to a
// [Registry]:
//
//	r := intents.NewRegistry()
//	names, err := r.LoadDir("schemas")         // ops.backup.status.check.task.schema.json, …
//	err = r.Register(intents.FromIO("agent.ask", io.InputSchema, io.OutputSchema)) // io: Agent.IO of a definition
//	err = r.Validate("ops.backup.status.check", intents.Task, payload)
//
// Validate returns [ErrUnknownIntent] for an intent that is not registered; the caller
// decides whether to serve such a task. Every other error is a [ValidationError] with all
// problems. Only this package registers names under "aee." and "mesh.".
//
// An agent of the mesh is held to its schemas in both directions: tasks are validated
// when they arrive, results and the agent's own errors before they are sent. A result
// that does not fit is replaced by E_OUTPUT_SCHEMA, and so is an error; its code and
// message are then part of the text, so that no failure is lost. Error schemas apply to
// an application's own codes and to E_AGENT; any task may end with another of the mesh's
// codes, which no schema needs to list.
//
// [Registry.AnswerCapabilityList] and [Registry.AnswerValidatePayload] answer
// aee.capability.list and aee.validate.payload, which need only a registry. The payloads
// of all reserved intents are Go types ([PingResult], [FetchTask], …). [CheckEvidence]
// validates a result against the level of decision evidence that its task required.
// [StepEvent] is the payload of agents' events about their steps on bus.mesh.run;
// the schemas of the mesh's topics are the files <topic>.event.schema.json.
//
// Schemas come from documents and peers, and payloads from any sender: package
// [github.com/aeemesh/aeemesh/intents/schema] compiles and validates them within limits.
//
// # Concurrency
//
// Everything in this package is safe for concurrent use. A [Registry] publishes each change
// atomically; readers take no lock.
package intents
