//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

// forbidCoreDumps has nothing to do where the system keeps no core files of programs.
func forbidCoreDumps() error { return nil }
