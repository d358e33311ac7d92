//go:build !unix

package agents

import "os/exec"

// There are no process groups here: only the program itself is stopped.
func ownGroup(*exec.Cmd) {}

func terminateGroup(cmd *exec.Cmd) { cmd.Process.Kill() }

func killGroup(cmd *exec.Cmd) { cmd.Process.Kill() }
