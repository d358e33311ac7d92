// Package worker hosts agents in a Go program: it does what "aeemesh worker"
// does, which is this package with flags.
//
//	w, err := worker.New(worker.Config{
//		Agents: []worker.Agent{{File: "reviewer.yaml"}},
//		Tools:  []tool.Tool{tool.Func(tool.Definition{Name: "lint", Description: "Lints a file."}, lint)},
//		NATS:   natsconn.Config{URL: "nats://127.0.0.1:4222"},
//		Logger: slog.Default(),
//	})
//	if err != nil { … }
//	err = w.Run(ctx) // serves until ctx ends, then drains
//
// The work of an agent is done by the model that its document names, by a Go
// handler, or by a program; see [Agent]. The tools of the document's protocol
// function are Go functions ([tool.Func]) or programs. All other tools, the
// models and the secrets come from [Config].Adapters, which hold the operator's
// configuration; without one, documents reach nothing.
//
// # From start to end
//
// [New] reads the documents and makes the agents (agents.go). [Worker.Run]
// connects to NATS; [Worker.Serve] uses a connection of the caller. Either makes
// a node on it (node.go) with the stores that the mesh has: the replay window
// (seen.go), the journal (journal.go), and the durable lane (lane.go). If their
// streams are missing, the worker serves live tasks, looks for the streams
// (late.go), and takes durable tasks as soon as they exist. Then the references to subagents are checked
// (teams.go), and all agents are served (daemon.go) until ctx ends, one of them
// fails, or the server refuses a subscription that an agent needs.
//
// When ctx ends, the agents drain: tasks that have begun are finished, for at
// most Config.Node.Drain, and the others are returned to the mesh.
//
// # Errors
//
// A [ConfigError] names the field of the Config at fault. An [*agents.Refusal]
// is an agent whose document requires what this worker does not do. One that MUST
// be audit-logged is in the log, and Run tells the mesh; New has no connection,
// so that its caller does ([agents.Refusal.Tell]). An error of Run or Serve after
// the agents were served says which agent failed, or what was lost.
//
// # Concurrency
//
// A Worker runs once. [Worker.Health] and [Worker.Entities] may be called at
// any time, from many goroutines. Hooks are called from different goroutines,
// and must return soon.
package worker
