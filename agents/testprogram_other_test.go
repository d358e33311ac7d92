//go:build !unix

package agents_test

import "os"

// waking is a signal that no test sends: those that do are for unix.
var waking = os.Interrupt
