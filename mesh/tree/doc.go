// Package tree builds and draws the tree of the tasks with one corr: which task caused
// which, how long each took, what it used, and how it ended.
//
// A [Builder] takes events of bus.mesh.task and bus.mesh.run, checkpoints of durable runs, and
// stored answers, in the order in which the caller receives them. Any of them may be missing:
// events are delivered at most once, and an agent in another language may publish none, so that
// only its caller's events name it. A task that began and whose end is not known has the state
// [Unknown].
//
//	b := tree.New(corr)
//	for e := range events {
//		b.Event(e.Time, e.Envelope)
//	}
//	t := b.Tree(time.Now())
//	fmt.Print(t.Text(tree.TextOptions{}))
//
// From the bottom up: usage.go adds up usage; facts.go collects the facts about each task, and
// which entity stated them; events.go and record.go read events and checkpoints; tree.go builds
// the tree; state.go derives the state of each task; critical.go marks the critical path; text.go
// and dot.go draw.
//
// # Trust
//
// Every client that may publish on the bus can publish false events, and this package
// verifies none. An agent's events about its own task take precedence over those of
// others. Control characters in names are escaped, cycles among parents are cut, and no
// more than [MaxTasks] tasks are kept.
//
// # Concurrency
//
// A Builder belongs to one goroutine at a time. A [Tree] does not change.
package tree
