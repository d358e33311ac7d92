// Package clock tells the time of another machine.
//
// A [Clock] learns the time from answers and advances it by the process's monotonic clock, so
// it does not matter whether this machine's clock is right, or is set. It stands on the
// standard library alone.
package clock
