// Package platform exchanges the runs of a mesh with other platforms, for nodes with or
// without agents: it writes a run to a file and reads the other platform's receipt, makes the
// receiver that accepts runs, and starts new runs from checkpoints.
//
// A [Platform] is part of each Node of package mesh, which embeds it: call its methods on the
// node. Package mesh has other names for the types here, so that programs need not import
// this package. The worker that owns a run transfers it by mesh/migration.
//
// Package mesh makes a Platform with [New] and a [Config]. A Platform changes a run's record, its
// message in the queue and its stored replies only through the client's stores. It stops a running
// run by a command to the workers of its entity. The package stands on mesh/client, mesh/handoff,
// jetstream, state/run and state/transfer.
package platform
