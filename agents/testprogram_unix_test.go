//go:build unix

package agents_test

import "syscall"

// waking is the signal on which the test program answers what it has held.
const waking = syscall.SIGUSR1
