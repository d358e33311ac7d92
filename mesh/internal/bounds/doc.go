// Package bounds keeps trees of tasks within their bounds. A tree is a root task and all tasks
// that agents send for it: the hops. Member requires.tree of a hop carries the hop's position
// in the tree and the bounds of the tree (docs/nats-binding.md, "Trees"). Every worker enforces
// them.
//
// A [Keeper] has the operator's [Limits], and counts the tasks and turns of trees, with the
// shared [Counters] of the mesh or alone. A [Position] is the place of one task in its tree, at
// the worker that has the task: it refuses what exceeds a bound, and writes requires.tree of the
// task's hops.
//
// The package knows no agents and no lanes. It stands mainly on envelope, state and
// mesh/internal/requires; package mesh has its exported names.
package bounds
