// Package topology finds teams that cannot work, before anybody is sent
// anything.
//
//	problems := topology.Check(doc)              // one definition by itself
//	all := topology.Together(docs)               // several, that call one another
//
// An error is a team that cannot do its task, whatever it is sent: it is not
// hosted. A warning is a part of it that has no effect, or that may fail. What
// the parts of an orchestration block mean is in docs/orchestration.md, and who
// carries it out is package orchestrate.
//
// # From the bottom up
//
// A [team] (team.go) is a definition's block, read: who its members are, when
// they take part, which pattern they follow. The patterns have a file each. What
// the document's extension says is held against the Go types that it is read
// into (extension.go). Several documents make a graph of who calls whom
// (together.go), which must have no circle that nothing ends (circle.go), and
// whose schemas must fit where one's output is another's input (fit.go).
//
// The package is pure: it reads nothing but what it is given, and is safe for
// concurrent use.
package topology
