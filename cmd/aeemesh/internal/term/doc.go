// Package term prints what a command has to say: data on stdout, messages for
// people on stderr. It knows nothing of flags, connections or the mesh.
//
// A [Terminal] has one method per kind of output: lines, tables and JSON of
// data; notes, warnings, hints and errors for people. On a terminal it adds
// colours and replaces control characters, because a peer's text could command
// the terminal; elsewhere data is printed unchanged. With a log in JSON all
// messages become records of that log.
package term
