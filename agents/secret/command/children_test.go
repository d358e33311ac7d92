//go:build unix

package command_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret/command"
	"github.com/aeemesh/aeemesh/envelope/pause"
)

// Neither a read that ends in time nor one that does not leaves a process of the program behind.
func TestTheProgramsChildrenEndWithIt(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"wait", "echo secret"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			v, err := command.New(command.Config{Command: []string{"/bin/sh", "-c", `sleep 1000 >/dev/null & echo $! >"$FILE.new"; mv "$FILE.new" "$FILE"; ` + how},
				Env: []string{"FILE=" + file, "PATH=" + os.Getenv("PATH")}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				_, err := v.Read(ctx, aaif.VaultRef{Path: "p"})
				done <- err
			}()
			var pid int
			eventually(t, "the child's pid", func() bool {
				text, err := os.ReadFile(file)
				pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
				return err == nil
			})
			if how == "wait" {
				cancel()
			}
			if err := <-done; (err == nil) != (how != "wait") {
				t.Error(err)
			}
			eventually(t, "the child's end", func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return syscall.Kill(pid, 0) != nil || err == nil && strings.Contains(string(stat), ") Z ")
			})
		})
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); pause.For(t.Context(), 2*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
