//go:build unix

package soak

import (
	"os"
	"os/exec"
	"syscall"
)

// ownProcessGroup keeps a terminal's signals from the child: only the soak ends it.
func ownProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func terminate(p *os.Process) { p.Signal(syscall.SIGTERM) }
func freeze(p *os.Process)    { p.Signal(syscall.SIGSTOP) }
func thaw(p *os.Process)      { p.Signal(syscall.SIGCONT) }

// canFreeze reports whether this system can stop and continue processes.
const canFreeze = true
