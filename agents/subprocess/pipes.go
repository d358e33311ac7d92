package subprocess

import (
	"os"
	"os/exec"
)

// Pipes are the worker's ends of the standard streams of a program.
type Pipes struct{ Stdin, Stdout, Stderr *os.File }

// Close closes the ends that are not closed yet.
func (p Pipes) Close() {
	for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
		_ = f.Close() // a nil file is closed
	}
}

// StartPiped is [Start] with a pipe to the program's input and pipes from its output and, unless
// cmd.Stderr is set, its standard error. The program's own ends are files, so that Wait waits for the
// program alone, and not for processes that have inherited them. After an error all ends are closed.
func StartPiped(cmd *exec.Cmd) (group *Group, ours Pipes, err error) {
	var theirs Pipes
	theirs.Stdin, ours.Stdin, err = os.Pipe()
	if err == nil {
		ours.Stdout, theirs.Stdout, err = os.Pipe()
	}
	if err == nil && cmd.Stderr == nil {
		ours.Stderr, theirs.Stderr, err = os.Pipe()
		cmd.Stderr = theirs.Stderr
	}
	if err == nil {
		cmd.Stdin, cmd.Stdout = theirs.Stdin, theirs.Stdout
		group, err = Start(cmd)
	}
	theirs.Close()
	if err != nil {
		ours.Close()
	}
	return group, ours, err
}
