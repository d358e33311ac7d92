// Package orchestrate runs teams of agents: it carries out the orchestration
// block of an AAIF document by sending AEE tasks to the members, wherever they
// run (AAIF, Orchestration Topology).
//
//	plan, err := orchestrate.Compile(def, orchestrate.HasModel(def)) // nil: no team
//	team := orchestrate.New(plan, orchestrate.Options{Directory: directory})
//	result, err := team.Handle(ctx, task, agentModel)
//
// Package agents does this for every document that declares a team.
// docs/orchestration.md is for authors of such documents.
//
// # From the bottom up
//
// A plan (plan.go) is the compiled block, with the document's extension to AAIF
// (extras.go). A directory (directory.go) resolves references to members. One
// function calls a member, for all patterns (ask.go): it finds the member,
// makes its input, adds the memories that the member is to know (memories.go),
// sends the task as a [mesh.Call], retries, and publishes events on
// bus.mesh.run. The patterns decide which member is called when: pipeline.go,
// router.go, swarm.go with consensus*.go and merge.go, and led.go, in which the
// agent's own model calls the members.
//
// # What survives a crash
//
// The progress of a task is a position (position.go). It is committed with
// every outcome, before the next step begins. A worker that resumes a durable
// run finds the known outcomes there. It calls the other members again under
// the same keys: on the durable lane that is the same task, which is not done
// twice. A member on the live lane may be called twice after a crash, as
// docs/durability.md says.
//
// If a run fails and is retried ([mesh.RetryPolicy]), its successful outcomes
// are kept: the next attempt calls only the members that have failed.
//
// # Concurrency
//
// A [Team] is shared by all tasks. The work on one task uses one goroutine, and
// one more for each member of a swarm that is called at the same time.
package orchestrate
