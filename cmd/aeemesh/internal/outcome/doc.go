// Package outcome has the errors of commands: wrong usage, errors with a hint,
// errors of peers, and how each looks to the user and to the calling program.
//
// [Of] classifies an error by a code and by an exit status that distinguishes
// five kinds of failure. Both are a contract, documented in docs/cli.md: codes
// and statuses may be added, but never changed. An error can carry its outcome
// ([NotFound], [Refused], [Conflict], [Stopped]). The outcome of any other
// error follows from what it wraps: an error envelope of a peer has its own
// code, and each sentinel of the lower packages has one. All remaining errors
// are failures.
//
// [Text] is an error's text for people, [Hint] the line under it, and [Failure]
// its JSON.
package outcome
