//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

// forbidCoreDumps does nothing on systems without core files.
func forbidCoreDumps() error { return nil }
