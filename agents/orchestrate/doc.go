// Package orchestrate makes teams of agents: what the orchestration block of an
// AAIF document says is done by sending AEE tasks to its members, wherever they
// run (AAIF, Orchestration Topology).
//
//	plan, err := orchestrate.Compile(def, orchestrate.HasModel(def)) // nil: no team
//	team := orchestrate.New(plan, orchestrate.Options{Directory: directory})
//	result, err := team.Handle(ctx, task, mind)
//
// Package agents does this for every document that has a team; docs/orchestration.md
// is for those who write one.
//
// # From the bottom up
//
// A plan (plan.go) is what a block means, together with what the document says
// beyond AAIF (extras.go). A directory (directory.go) finds who a reference
// means. To have a member do its part is one function (ask.go), whatever the
// pattern: it finds the member, makes its input, takes the memories along that it
// is to know (memories.go), sends the task as a [mesh.Call], tries again where that
// may help, and tells bus.mesh.run. The
// patterns say who is asked when: pipeline.go, router.go, swarm.go with
// consensus*.go and merge.go, and led.go, where the agent's own model asks.
//
// # What survives
//
// How far a task has come is a position (position.go), committed with every
// outcome, before the next step begins. Whoever goes on with a durable run finds
// the outcomes that are known there, and calls the members whose outcome is not
// under the same keys: over the durable lane that is the same task, which is not
// done twice. A member on the live lane may be asked twice after a crash, as
// docs/durability.md says.
//
// A failure that ends a run for now ([mesh.RetryPolicy]) keeps what has
// succeeded: in the next attempt only those are asked again who have failed.
//
// # Concurrency
//
// A [Team] is shared by all tasks. The work on one task is one goroutine, and one
// more for each member of a swarm that is asked at the same time.
package orchestrate
