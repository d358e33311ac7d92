//go:build !unix

package program

import "os/exec"

// Without process groups, the context kills the program alone.
func ownGroup(*exec.Cmd) {}

func killGroup(*exec.Cmd) {}
