package main

import (
	"errors"
	"syscall"
)

// prSetDumpable is PR_SET_DUMPABLE of prctl(2).
const prSetDumpable = 4

// forbidCoreDumps sets the soft limit for core files to zero; child processes
// inherit it and may raise it again. It also makes the process undumpable,
// which works where the kernel pipes core files to a program, and keeps other
// processes of the same user, such as an agent's programs, from reading its
// memory and environment.
func forbidCoreDumps() error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	if errno != 0 {
		return errors.Join(limitCores(), errno)
	}
	return limitCores()
}
