// Package runs has the commands of durable runs: "aeemesh runs" and its
// subcommands, and "aeemesh migrate". They read the stored runs of a mesh, send
// commands to their workers, and transfer them between platforms as files.
//
// [Store] is the mesh's store of runs for a command; [CompleteRuns] and
// [CompleteTasks] complete their names in a shell.
package runs
