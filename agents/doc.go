// Package agents makes agents from AAIF documents; a worker hosts them.
//
//	doc, err := aaif.Parse(data, aaif.Options{Kind: aaif.KindAgent})
//	a, err := agents.New(doc, agents.Options{Tools: tools, Models: set.Model, Secret: os.LookupEnv})
//	for _, p := range a.Notices { … }  // fields of the document that are not honoured
//	err = a.Run(ctx, node)             // serves, until ctx ends
//
// Three things can do an agent's work: a model, which the document names; a Go
// handler, a [mesh.Handler] or [mesh.Typed] function (see the examples); or any
// program that the operator names, a [program.Program].
//
// # How the files work together
//
// A model's work on one task is a [mesh.Handler] (loop.go): a small state
// machine. Its steps are a turn of the model (turn.go), the tool calls of that
// turn (calls.go, toolset.go), the conversion of the last turn to the result
// (answer.go), and the evidence and usage beside it (evidence.go). The prompt
// is prompt.go, the shortening of a conversation to the model's window
// window.go, streaming tell.go and stream.go, and the choice of the model
// provider.go.
//
// The progress of a run is an Agent State document (run.go) in a journal
// (journal.go), with a ledger entry for each tool call (ledger.go). Another
// worker resumes the run from there (restore.go), also from a document of
// another platform (adopt.go). lost.go decides about calls of which it is not
// known whether they were done.
//
// Package program runs agents whose work an external program does.
//
// [New] checks the document against what this runtime offers (verdict.go,
// terms.go, capabilities.go, refusal.go), registers the agent's intents and
// schemas (contract.go), and assembles the agent (agent.go). lanes.go adapts it
// to its node. Spans and metrics are in telemetry*.go; docs/telemetry.md lists
// their names.
//
// # How the document is honoured
//
// The entity is "agent." and the name in lower snake case, or Options.As.
// runtime.concurrency and runtime.timeout_seconds are enforced; an operator may
// lower the first. runtime.max_retries and retry_backoff apply to durable tasks,
// and on the live lane to turns of the model (retry.go). async_execution and
// queue apply to the durable lane. io.input_schema and io.output_schema are
// published as intent [RunIntent], and apply to every task whose intent has no
// schema of its own. Goal, instructions, skills and constraints form the system
// prompt; the constraints are last and numbered, as hard rules.
//
// [Agent].Notices lists what else the document declares. [Judge] decides by one rule whether the
// agent is hosted (verdict.go): at safety levels strict and regulated the agent is refused because
// of a field that a runtime MUST honour and this one does not, whether a model, a program or a
// handler does its work, unless Options.AcceptUnhonoured names the field. At the other levels it
// is a warning. required_capabilities and the languages of conditions are negotiated by the same
// levels. A condition that does not compile is treated like such a field; a condition in words is
// a warning. Options.Open opens tools of protocols other than function; a tool that it cannot open
// is not offered to the model. A function that is not registered is an error. An agent that
// requires a person's approval and has tools, or a team that its model leads, is refused: tool
// calls cannot be approved yet.
//
// # The model
//
// Provider custom with provider_id builtin is the offline model. All others come
// from Options.Models. Package adapters implements it for every provider of the
// specification, with fallbacks and strategies:
//
//	set, err := adapters.New(adapters.Config{}, adapters.Options{Env: os.LookupEnv})
//	set.Use(&opts)
//
// If a model breaks off its answer after text was streamed, it is called again,
// at most three times, with the streamed text. A [model.Continuer] continues
// from there. Any other model generates the turn again, and its text is compared
// with the streamed text. A router takes another route.
//
// Each route is sent as much of the conversation as fits its window, if
// that is known.
//
// # Tasks and results
//
// The text of a payload {"text": …} is the user's message, without the reserved
// members; for any other payload the message is its JSON. Envelopes that the
// task refers to are fetched and added after it as the words of others
// (references.go). The result's payload is {"text": …}. It is the model's JSON
// object if response_format is json or json_schema, or if {"text": …} cannot fit
// the result's schema. JSON that does not parse or does not fit gets one repair
// turn; then the task fails with E_OUTPUT_SCHEMA. The runtime adds these
// reserved members:
//
//   - usage: {"input_tokens", "output_tokens"} of all turns, and "truncated" if
//     the answer was cut off at the model's token limit. It is left out if the
//     provider reports no usage or the result's schema does not permit it.
//   - decision_evidence, if requires.decision_evidence asks for it. The runtime
//     knows inputs_used, tools_used and context_refs. The model states decision,
//     reason_summary, action_taken and confidence, in its answer or in one more
//     turn. For a model that cannot state them the runtime fills them in, with
//     confidence 0. If the schema does not permit the member, the task fails
//     with E_REQUIRES, before the work begins if that is already certain.
//
// requires.min_confidence is compared with the same confidence: below it the
// task fails with E_REQUIRES. requires.format is json, text or markdown: if the
// document fixes no format, the model is asked for that one; if it fixes
// another, the task is refused. requires.evidence adds evidence_refs to the
// result: the task, the envelopes it refers to, the tools, the run. A program or
// a handler must meet these conditions itself (demands.go).
//
// A run has orchestration.max_iterations turns of the model, 10 by default,
// including the repair turn and the evidence turn; then it fails with
// E_MAX_ITERATIONS. If the last turn contains tool calls, they are not made. The
// agent reports each turn to the mesh before taking it, and the mesh refuses the
// turn if the tree has used up its turns ([mesh.Task.Turn]).
//
// A tool that fails does not fail the run: the model gets the error and may
// correct its call. Arguments are validated against the tool's schema before the
// tool is called. A failure of a model is E_UNAVAILABLE (unreachable, or rate
// limited after tools were called), E_RATE_LIMITED (rate limited before any tool
// was called), or E_MODEL. The provider's error text goes to this worker's log
// only, except for errors in a script of the offline model.
//
// # Durable tasks
//
// On the durable lane each step is committed before the next begins: a turn with
// tool calls; the calls that are about to be made; the receipt of each call. The
// last turn, and the answer made from it, are committed with the end of the run.
// A worker that resumes a run finds it between two steps and takes the next one.
// Turns are counted over all owners of the run. If the text of an unfinished turn
// was streamed, it is not streamed again: a [model.Continuer] continues from
// there; any other model generates the turn again, and the part that matches is
// held back. If the new text differs, {"restart": true, "text": …} says that the
// turn's text begins anew.
//
// Calls carry an idempotency key, [tool.KeyFrom], that is the same on every
// worker. A call that had begun and has no receipt is repeated if its tool is
// safe to repeat. For other tools Options.LostCalls decides, and by default a
// person: the run is parked as awaiting_approval until mesh.task.settle says what
// became of the call.
//
// A pause stops the model in the middle of its turn, and waits for tools that
// have begun. Messages of mesh.task.steer become user messages before the next
// turn; if the model has just answered, it takes another turn.
//
// The run of a [program.Program] or a handler is one step, unless the handler
// commits steps of its own. It may be repeated after a crash; a program is told
// the number of the attempt.
//
// A conversation that does not fit the model is sent without its oldest whole
// turns. The system prompt and the task stay, and the document keeps the whole
// conversation.
//
// # Delegation
//
// The rules of orchestration.handoff delegate a task to another agent. They are
// evaluated after every turn and after the calls of a turn (handoff.go). Package
// orchestrate compiles them, and evaluates them for teams. An agent that
// receives a delegated task begins with the conversation that came with it,
// under its own system prompt, with its own tools and turns. Its first
// checkpoint contains that conversation, so it is read only once. A turn after
// which a task is delegated is committed with the end of the run.
//
// # Streams
//
// A sender that sets requires.stream gets the model's text as it is generated, as
// {"text": …}, and the tool calls as they are made:
//
//	{"tool_call": {"name": "check", "arguments": {…}}}   arguments of up to 4 KiB
//	{"tool_result": {"name": "check", "ms": 12, "error": "timed out"}}   error only on failure
//
// Results and error texts of tools are not streamed. A turn that is the JSON
// answer is not streamed either. io.streaming or runtime.streaming false in the
// document turns streaming off; if absent, the sender chooses.
//
// # Concurrency and limits
//
// An Agent is served once. Its handler runs as many tasks at once as its
// concurrency allows, with up to Options.ParallelTools tool calls for each. One
// turn may make 64 tool calls. The output of tools and programs is bounded; see
// [tool.Options] and [program.Config].
package agents
