// Package outcome classifies a command's error for the calling program: by a
// code, and by an exit status that distinguishes five kinds of failure. Both
// are a contract, documented in docs/cli.md: codes and statuses may be added,
// but never changed.
//
// An error can carry its outcome ([NotFound], [Refused], [Conflict],
// [Stopped]). The outcome of any other error follows from what it wraps: an
// error envelope of a peer has its own code, and each sentinel of the lower
// packages has one. All remaining errors are failures.
package outcome
