// Package soak is the crash harness behind `aeemesh soak` and `go test ./jetstream/...
// -run Crash`: it breaks a mesh on purpose, and checks that nothing is lost.
//
//	report, err := soak.Run(ctx, soak.Options{Self: []string{"aeemesh", "soak"}, Dir: dir, Seed: 7, Faults: 1000})
//	report.Write(os.Stdout)
//	if len(report.Violations) > 0 { … }
//
// # What runs
//
// Real processes, which [Options].Self starts: NATS servers with their stores (one
// server, or a cluster with as many replicas), and workers. [Role] is the main function
// of such a process. The workers host the agents of cast.go: a chain of steps, models
// that call tools, a program, and teams of agents and a person. The agents have effects
// on a service that the soak runs. Clients submit tasks all the time, answer for the
// person, and settle calls with an unknown outcome. Some submit their task again when it is
// paused or has ended. The workers start before JetStream has its streams. A [Proxy] stands
// between every process and every server, and between the servers of a cluster.
//
// In addition there is a second system (second.go): a server, workers with keys of their
// own, and a receiver of runs. Clients have some runs transferred to it, over HTTPS and
// through a proxy, which delivers half of the requests twice.
//
// # What breaks
//
// The seed determines the faults (faults.go): kill -9 and SIGSTOP of workers and servers,
// restarts, partitions, connections reset, slow networks. Of the kills, the stops beyond the lease and
// the broken connections, two of three strike at a point in the commit order: the worker that reaches the point first waits there until
// the fault has struck. So every gap between two steps is hit many times, and so is every
// phase of a transfer to the second system, at the source's worker and at the receiver.
// The same seed gives the same faults in the same order; which tasks they hit depends on
// the machine.
//
// With [Options].Moves there are only chains and kills (wave.go): so many runs wait until
// all have begun, and are then asked at once to move, half of them to another worker and
// half to the second system, again and again until the faults have struck.
//
// # What is checked
//
// The soak reads every revision of every run's record, every reply and every effect, and
// checks each task against a model (model.go, [Rules]): an accepted task gets one reply;
// an epoch has one owner; a finished step is not repeated; a team sends each member its
// task once; a transferred run belongs to one system at a time, ends in the second one,
// and its reply arrives in the first (moved.go). At the end each worker must accept
// durable tasks. The model reads what is stored, and uses no code of the mesh but the
// checkpoint's decoder.
//
// [Options].Break proves that the harness can find errors: it makes workers break a promise, and
// the package's tests check that the soak notices each.
package soak
