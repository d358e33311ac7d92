// Package calls sends the tasks that an agent sends while it works on one of its own: its
// calls (outgoing.go). A call goes over the durable lane if the calling task came over it and the
// receiver has one (durable.go), else over the live lane (live.go), or into the inbox of a person (person.go). The
// checkpoint of a durable run names the run's open calls (record.go), so that the worker that ends
// the run can cancel them (stop.go).
//
// A [Node] has what the agents of one node share, an [Agent] what the tasks of one agent share,
// and a [Task] is one task that makes calls. A call uses its task and its run through [TaskPort]
// and [RunPort]; package mesh implements both, and has the exported names. The package stands
// mainly on mesh/client, mesh/internal/bounds, mesh/internal/sender and state.
package calls
