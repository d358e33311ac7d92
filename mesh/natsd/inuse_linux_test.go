package natsd_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// Section 6, row 18 of the operators' review: a store that a nats-server writes to,
// which takes no lock, was opened by a second server. A backup that reads is no
// server.
func TestAStoreThatAnotherProcessWritesIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		flags int
		inUse bool
	}{{"writer", os.O_RDWR, true}, {"reader", os.O_RDONLY, false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			block := filepath.Join(dir, "jetstream", "$G", "streams", "S", "msgs", "1.blk")
			if err := os.MkdirAll(filepath.Dir(block), 0o700); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(block, tt.flags|os.O_CREATE, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			other := exec.Command("sleep", "3600")
			other.Stdin = f
			if err := other.Start(); err != nil {
				t.Skip(err)
			}
			defer func() { other.Process.Kill(); other.Wait() }()
			s, err := natsd.New(natsd.Config{Port: natsd.RandomPort, JetStream: true, StoreDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			err = s.Start(t.Context())
			if got := errors.Is(err, natsd.ErrStoreLocked); got != tt.inUse || got && !strings.Contains(err.Error(), "(sleep, process ") || !got && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// asChild is set for the process that [TestAChildThatIsBeginningIsNoServer] starts.
const asChild = "NATSD_TEST_CHILD"

// Between fork and exec a child has the files of a server that has just ended. It is recognized: it has this
// process's program, and is its child.
func TestAChildThatIsBeginningIsNoServer(t *testing.T) {
	if os.Getenv(asChild) != "" {
		io.Copy(io.Discard, os.Stdin) // until the parent ends it
		return
	}
	t.Parallel()
	dir := t.TempDir()
	block := filepath.Join(dir, "jetstream", "$G", "streams", "S", "msgs", "1.blk")
	if err := os.MkdirAll(filepath.Dir(block), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(block)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), asChild+"=1")
	child.ExtraFiles = []*os.File{f}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); child.Wait() }()
	s, err := natsd.New(natsd.Config{Port: natsd.RandomPort, JetStream: true, StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	}
}
