// Package outcome says what a command's error means to the program that ran the
// command: a code, and an exit status that tells five kinds of failure apart.
// Both are a contract, in docs/cli.md: codes and statuses are added, never
// changed.
//
// An error carries its outcome where the place that makes it knows best
// ([NotFound], [Refused], [Conflict], [TimedOut]). Any other is told by what it
// wraps: an error envelope of a peer's has its own code, and the sentinels of the
// packages below have one each. What is left has failed.
package outcome
