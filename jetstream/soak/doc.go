// Package soak breaks a mesh on purpose, and proves that nothing is lost: the
// crash harness behind `aeemesh soak` and `go test ./jetstream/... -run Crash`.
//
//	report, err := soak.Run(ctx, soak.Options{Self: []string{"aeemesh", "soak"}, Dir: dir, Seed: 7, Faults: 1000})
//	report.Write(os.Stdout)
//	if len(report.Violations) > 0 { … }
//
// # What runs
//
// Real processes, each started anew by [Options].Self: NATS servers with their
// stores (one, or a cluster with as many replicas), and workers. [Role] is what
// such a child does. The workers host the agents of cast.go: a chain of steps, models
// that call tools, a program, and teams, of agents and of a person. They have effects on
// a service of the soak's own. Clients submit tasks all the time, answer for the person,
// and settle calls whose outcome is not known. The workers start before JetStream has
// its streams. Between every process and every server stands a [Proxy], and
// between the servers of a cluster, too.
//
// Beside them stands a second system (second.go): a server, workers with keys of their
// own, and a receiver of runs. Clients have some runs move to it, over HTTPS and through
// a proxy, by which half of the requests come twice.
//
// # What breaks
//
// The seed draws the faults (faults.go): kill -9 and SIGSTOP of workers and
// servers, restarts, partitions, connections reset, slow networks. Two of three
// strike at a point in the commit order: the worker that gets there first waits
// until it has been struck. So each gap between two steps is hit, again and again.
// Likewise each phase of a move to the second system is hit, at the worker that the run
// leaves and at the receiver. The same seed gives the same faults in the same order; what they hit is up to the
// machine.
//
// # What is checked
//
// The soak reads every revision of every run's record, every reply and every
// effect, and holds each task against a model (model.go, [Rules]): accepted means
// answered, once; an epoch has one owner; what was finished is not done again; a team
// gives each member its task once; a run that moves has one system at a time, ends where
// it went, and is answered where it came from (moved.go). At the end each worker takes
// durable tasks. The model looks at what is stored, and uses none of the code that it
// judges but the checkpoint's decoder.
//
// A soak that finds nothing must be able to find something: [Options].Break makes
// workers that break a promise, and the package's tests demand that each is caught.
package soak
