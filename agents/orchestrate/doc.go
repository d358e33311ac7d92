// Package orchestrate makes teams of agents: what the orchestration block of an
// AAIF document says is done by sending AEE tasks to its members, wherever they
// run (AAIF, Orchestration Topology).
package orchestrate
