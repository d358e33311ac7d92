//go:build unix

package agents

import (
	"os/exec"
	"syscall"
)

// ownGroup gives the program a process group of its own: an interrupt from the
// terminal reaches the worker alone, which drains first, and the whole group
// can be killed.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

func terminateGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

func killGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
