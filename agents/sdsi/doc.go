// Package sdsi implements Structured Data Schema Interaction over the mesh: agents agree on a
// schema before they exchange data. Package intents/template has the templates and their rules;
// this package has the agent's and the client's side of the protocol.
//
// # The agent's side
//
// A [Desk] serves an agent's templates. [Desk.Attach] puts it in front of the agent's handler:
//
//	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: "agent.flights", Templates: templates})
//	err = desk.Attach(&agent.Agent)
//
// From then on the agent answers sdsi.schema.get and sdsi.schema.list at once, even if all its
// places are taken, and accepts sdsi.exchange on both lanes. For an exchange, the desk checks the
// payload against the version that it names, fills in defaults, passes the values to the handler as
// [mesh.Task.Input], and validates the result against the template's response schema. None of this
// needs a model. The draft's own forms, {"method":"get_schema_template",…} and
// {"schema_id":…,"payload":…}, have the same effect in a task of any intent, and in plain text.
//
// Every worker of the agent can answer every request: with [Versions] it also knows the templates
// that other workers have published. A desk refuses to publish a schema_id that already has another
// content there ([ErrTaken]), because a version never changes.
//
// The texts of the key "other" come from a client and are untrusted. A handler finds them in its
// input. An agent's model gets them separately ([Others]), marked as data.
//
// # Concurrency
//
// Everything in this package is safe for concurrent use.
package sdsi
