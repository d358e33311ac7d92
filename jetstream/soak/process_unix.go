//go:build unix

package soak

import (
	"os"
	"os/exec"
	"syscall"
)

// alone keeps the signals of a terminal from the child: it is the soak that
// ends it.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func terminate(p *os.Process) { p.Signal(syscall.SIGTERM) }
func freeze(p *os.Process)    { p.Signal(syscall.SIGSTOP) }
func thaw(p *os.Process)      { p.Signal(syscall.SIGCONT) }

// canFreeze reports whether this system stops and continues processes.
const canFreeze = true
