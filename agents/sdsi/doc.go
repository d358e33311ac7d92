// Package sdsi lets agents agree on a schema before they talk: Structured Data Schema
// Interaction over the mesh. Package intents/template has the templates and their rules;
// this package has the two sides of the wire.
//
// # The agent's side
//
// A [Desk] has an agent's templates. [Desk.Attach] puts it in front of the agent's handler:
//
//	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: "agent.flights", Templates: templates})
//	err = desk.Attach(&agent.Agent)
//
// From then on the agent answers sdsi.schema.get and sdsi.schema.list at once, also if all
// its places are taken, and does sdsi.exchange on both lanes: the payload is checked against
// the version that it names, its defaults are filled in, and the handler gets the values as
// [mesh.Task.Input]. No model is asked for that. The result is held to the template's
// response schema. The draft's own forms, {"method":"get_schema_template",…} and
// {"schema_id":…,"payload":…}, mean the same in a task of any intent, and in plain text.
//
// Any worker of the agent answers any request: with [Versions] it also knows the templates
// that other workers have published. A schema_id that means something else there already
// is refused ([ErrTaken]), because a version never changes.
//
// What a client has put into the key "other" is a stranger's text. A handler finds it in
// its input; an agent's model gets it apart from the rest ([Others]), marked as data.
//
// # Concurrency
//
// Any number of goroutines may use everything here at once.
package sdsi
