//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import "syscall"

func limitCores() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &limit); err != nil {
		return err
	}
	limit.Cur = 0
	return syscall.Setrlimit(syscall.RLIMIT_CORE, &limit)
}
