// Package clock tells the time of another machine.
//
// A [Clock] reads the time from answers and advances it by the process's monotonic clock, so a
// wrong or changed clock of this machine does not matter. After the machine was suspended it reads
// the time anew. It uses only the standard library.
package clock
