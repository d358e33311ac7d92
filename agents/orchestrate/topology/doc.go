// Package topology finds teams that cannot work, before any task is sent.
//
//	problems := topology.Check(doc)              // one definition by itself
//	all := topology.Together(docs)               // several, that call one another
//
// An error means that the team can do no task at all; its agent is not hosted.
// A warning means that a part of the team has no effect, or may fail.
// docs/orchestration.md explains the parts of an orchestration block; package
// orchestrate carries it out.
//
// # From the bottom up
//
// A [team] (team.go) is a parsed block: its members, their conditions, and its
// pattern. The patterns are in patterns.go. The document's extension is checked
// against the Go types that it is decoded into (extension.go). Several
// documents form a graph of calls (together.go). It must have no endless circle
// (circle.go), and the schemas must fit where one agent's output is another's
// input (fit.go).
//
// The package does no I/O and is safe for concurrent use.
package topology
