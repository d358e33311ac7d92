package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const prGetDumpable = 3

// Finding 23 of the security review: a core dump has keys. The child is this test, as a
// process of its own that forbids dumps and says what holds for it then.
func TestMemoryIsNotDumped(t *testing.T) {
	if os.Getenv("CORE_CHILD") == "1" {
		if err := forbidCoreDumps(); err != nil {
			t.Fatal(err)
		}
		dumpable, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prGetDumpable, 0, 0)
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_CORE, &limit); err != nil || errno != 0 {
			t.Fatal(err, errno)
		}
		if dumpable != 0 || limit.Cur != 0 {
			t.Errorf("dumpable %d, limit %d", dumpable, limit.Cur)
		}
		// What the program reads of itself it still can.
		for _, name := range []string{"/proc/self/limits", "/proc/self/fd", "/proc/self/exe"} {
			if f, err := os.Open(name); err != nil {
				t.Error(err)
			} else {
				f.Close()
			}
		}
		if _, err := os.Executable(); err != nil {
			t.Error(err)
		}
		return
	}
	child := exec.Command(os.Args[0], "-test.run", "^TestMemoryIsNotDumped$", "-test.v")
	child.Env = append(os.Environ(), "CORE_CHILD=1")
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
