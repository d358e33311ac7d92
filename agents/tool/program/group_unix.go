//go:build unix

package program

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup puts the program into a process group of its own, which is killed as
// a whole when the context is done.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			return os.ErrProcessDone
		}
		return nil
	}
}

// killGroup kills what is left of the group of a program that has exited while
// a child of it lives on, so that the group's number cannot belong to others.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may just have ended
}
