// Package agents makes agents of AAIF documents: what a worker hosts.
//
//	doc, err := aaif.Parse(data, aaif.Options{Kind: aaif.KindAgent})
//	a, err := agents.New(doc, agents.Options{Tools: tools, Models: set.Model, Secret: os.LookupEnv})
//	for _, p := range a.Notices { … }  // what the document declares and nobody does
//	err = a.Run(ctx, node)             // serves, until ctx ends
//
// Three things can do an agent's work: a model, which the document names; a Go
// handler, a [mesh.Handler] or [mesh.Typed] function (see the examples); or any
// program that the operator names, a [program.Program].
//
// # From the bottom up
//
// A model's work on one task is a [mesh.Handler] (loop.go): a small state
// machine whose steps are a turn of the model (turn.go), the tool calls that it
// asked for (calls.go, toolset.go), making its last turn the result
// (answer.go), and accounting for it (evidence.go). The prompt is prompt.go, as
// much of a conversation as fits the model window.go, what goes to those who
// asked for a stream tell.go and stream.go, and where the model comes from
// provider.go.
//
// How far a run has come is an Agent State document (run.go) in a journal
// (journal.go), each tool call with a line in its ledger (ledger.go). From there
// another worker goes on (restore.go), also with a document of another platform
// (adopt.go); lost.go is about calls of which nobody knows whether they were
// done.
//
// A program (program.go) has lives (process.go), tasks under way (flight.go) and
// a language of lines (lines.go). A task that ended before the program answered
// it lingers on its place for a while; where all places are taken so, tasks are
// refused with E_BUSY, which promises that the program has not seen them.
//
// [New] holds the document against what there is (verdict.go, terms.go,
// capabilities.go, refusal.go), registers what it takes and gives (contract.go), and puts the agent
// together (agent.go); lanes.go fits it to its node. Spans and metrics are
// telemetry*.go; docs/telemetry.md has their names.
//
// # What becomes of the document
//
// The entity is "agent." and the name in lower snake case, or Options.As.
// runtime.concurrency and runtime.timeout_seconds are kept; an operator may
// lower the first. runtime.max_retries and retry_backoff
// are for the durable lane of a node, and on the live lane for turns of the model
// (retry.go); async_execution and queue are for the durable lane. io.input_schema and io.output_schema are published as intent
// [RunIntent], and hold for every task of an intent that has no schema of its
// own. Goal, instructions, skills and constraints are the system prompt, the
// constraints last and numbered, as hard rules.
//
// What the document declares beyond this is in [Agent].Notices. [Judge] decides
// whether the agent is hosted, by one rule (verdict.go): a field that a runtime MUST
// honour and this one does not keep refuses the agent at safety levels strict and
// regulated, whatever does its work, unless Options.AcceptUnhonoured names it; at
// the others it is a warning. required_capabilities are negotiated by the same
// levels, and so are the languages of conditions. A condition that does not compile
// is refused like such a field, one in words is a warning. Tools of other protocols
// than function are what Options.Open makes of them; those that it cannot open are
// not offered to the model. A function that was not registered is an error. An agent
// that wants a person's approval and has tools, or a team that its model leads, is
// refused: tool calls cannot be approved yet.
//
// # The model
//
// Provider custom with provider_id builtin is the offline model. All others come
// from Options.Models; package adapters has one for every provider of the
// specification, with fallbacks and strategies:
//
//	set, err := adapters.New(adapters.Config{}, adapters.Options{Env: os.LookupEnv})
//	set.Use(&opts)
//
// A model that breaks off its answer after text was streamed is asked again, at
// most three times, with what was told: one that is a [model.Continuer] goes on,
// any other answers anew and is matched with it. A router takes another route.
//
// Each route is sent as much of the conversation as fits its window, if
// that is known.
//
// # Tasks and results
//
// The payload {"text": …} is the user's message as it is, reserved members
// aside; of any other payload it is the JSON. What it refers to is fetched, and stands
// behind it as the words of others (references.go). The result's payload is
// {"text": …}, or the model's JSON object, where response_format is json or
// json_schema, or where a text could not fit the result's schema. JSON that
// does not parse or does not fit gets one repair turn, then E_OUTPUT_SCHEMA.
// The runtime adds, under names that are reserved for it:
//
//   - usage: {"input_tokens", "output_tokens"} of all turns, and "truncated" if
//     the answer was cut at the model's token limit. It is left out where the
//     provider does not count, and where the result's schema has no room.
//   - decision_evidence, if requires.decision_evidence asks for it. inputs_used,
//     tools_used and context_refs are the runtime's own knowledge; decision,
//     reason_summary, action_taken and confidence are what the model says, in
//     its answer or in one more turn. A model that cannot say is described from
//     outside, with confidence 0. A schema without room for it is E_REQUIRES,
//     before anything is done where that is plain to see.
//
// requires.min_confidence is held against the same confidence: below it the task
// ends with E_REQUIRES. requires.format is json, text or markdown: where the document
// leaves the form of answers open, the model is asked for that one; a format other than
// the document's is refused. requires.evidence puts evidence_refs into the result: the
// task, what it refers to, the tools, the run. The result of a program or a handler has
// to be so by itself (demands.go).
//
// A run has orchestration.max_iterations turns of the model, 10 by default, the
// repair and the account included; then it is E_MAX_ITERATIONS. When the last
// turn asks for tools they are not called any more. The mesh is told of each turn
// before it is taken, and may have none left for the tree ([mesh.Task.Turn]).
//
// A tool that fails is no failure of the run: the model is told, and may mend
// its call. Arguments are held to the tool's schema before the tool sees them.
// The failures of a model are E_UNAVAILABLE (unreachable, or rate limited after
// tools were called), E_RATE_LIMITED (before), and E_MODEL. Their words are for
// this side's log, but for those of a script of the offline model that cannot be
// played.
//
// # Durable tasks
//
// On the durable lane each step is committed before the next begins: a turn that
// asks for tools; the calls that are about to be made; each call's receipt. The
// last turn, and the answer made of it, are committed with the end of the run.
// Whoever goes on finds a run between two steps and takes the next one; turns
// count for all owners together. What was streamed of a turn that was not
// finished is not told again: a [model.Continuer] goes on from there, any other
// model generates the turn again, and what matches is kept back. If it differs,
// {"restart": true, "text": …} says that the turn's text begins anew.
//
// Calls run with an idempotency key, [tool.KeyFrom], that stays the same whoever
// makes them. One that had begun and has no receipt is made again if its tool is
// safe to repeat; of the others Options.LostCalls decides, and by default a
// person: the run is parked, awaiting_approval, until mesh.task.settle says what
// became of the call.
//
// A pause stops the model in the middle of its turn, and waits for tools that
// have begun. Messages of mesh.task.steer are a user's messages before the next
// turn; if the model has just answered, it answers once more.
//
// The run of a [program.Program] or a handler is one step, unless the handler commits
// steps of its own: it may be done again after a crash. A program is told which
// attempt it is.
//
// A conversation that does not fit the model is sent without its oldest turns,
// in whole turns; the system prompt and the task stay, and the document keeps
// all of it.
//
// # Hand-overs
//
// The rules of orchestration.handoff are asked after every turn and the calls of a
// turn (handoff.go); package orchestrate compiles them, and asks them for teams. An
// agent that a task was handed on to begins with the conversation that came along,
// under its own system prompt, with its own tools and turns; its first checkpoint
// has it, so nothing is read twice. A turn after which a task is handed on is
// committed with the end of the run.
//
// # Streams
//
// Whoever sets requires.stream gets the model's text as it comes, as
// {"text": …}, and the tools as they are called:
//
//	{"tool_call": {"name": "check", "arguments": {…}}}   arguments of up to 4 KiB
//	{"tool_result": {"name": "check", "ms": 12, "error": "timed out"}}   error only on failure
//
// Results of tools, and what they said on failure, are not shown. A turn that is
// the JSON answer is not streamed either. io.streaming or runtime.streaming false
// in the document turns streams off; absent, they leave the choice to the sender.
//
// # Concurrency and limits
//
// An Agent is served once. Its handler runs for as many tasks at once as its
// concurrency allows, and up to Options.ParallelTools tools for each. One turn
// may call 64 tools. What a tool or a program may write is bounded; see
// [tool.Options] and [program.Config].
package agents
