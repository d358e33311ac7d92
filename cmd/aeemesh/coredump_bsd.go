//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

func forbidCoreDumps() error { return limitCores() }
