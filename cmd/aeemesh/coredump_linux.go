package main

import (
	"errors"
	"syscall"
)

// prSetDumpable is PR_SET_DUMPABLE of prctl(2).
const prSetDumpable = 4

// forbidCoreDumps sets the soft limit for core files, which programs that this one starts
// inherit and may raise again, and makes the process undumpable: that holds where the
// kernel pipes cores to a program, and keeps others of the same user, such as the programs
// that an agent starts, from reading its memory and its environment.
func forbidCoreDumps() error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	if errno != 0 {
		return errors.Join(limitCores(), errno)
	}
	return limitCores()
}
