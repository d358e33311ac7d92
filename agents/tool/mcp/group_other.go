//go:build !unix

package mcp

import "os/exec"

// Without process groups, the program alone is ended.
func ownGroup(*exec.Cmd) {}

func terminateGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
