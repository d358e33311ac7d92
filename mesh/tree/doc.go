// Package tree draws what the tasks of one corr do for one another: who works
// for whom, how long, what it took, and how it ended.
//
// A [Builder] takes what is known, in the order in which it came to be known:
// the events on bus.mesh.task and bus.mesh.run, checkpoints of durable runs, and
// stored answers. None of it has to be there. Events come at most once, and an
// agent in another language has none of its own, so that only the events of
// its caller name it: the tree is drawn from what there is, and a task whose end
// nobody told is of state [Unknown].
//
//	b := tree.New(corr)
//	for e := range events {
//		b.Event(e.Time, e.Envelope)
//	}
//	t := b.Tree(time.Now())
//	t.WriteText(os.Stdout, tree.TextOptions{})
//
// From the bottom up: usage.go adds up what tasks used; facts.go keeps what was
// said of each task, and by whom; events.go and record.go read it; tree.go makes
// the tree of it, state.go tells how each task stands, critical.go which of them
// the whole had to wait for. text.go and dot.go draw.
//
// # Trust
//
// Whoever may publish on the bus may say anything there, and nothing is verified
// here. What an agent says of its own task goes before what others say of it.
// Names are made harmless before they are drawn; rings among parents are cut;
// beyond [MaxTasks] nothing new is taken in.
//
// # Concurrency
//
// A Builder belongs to one goroutine at a time. A [Tree] does not change.
package tree
