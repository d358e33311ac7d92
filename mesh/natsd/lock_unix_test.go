//go:build unix && !solaris && !aix

package natsd

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// The lock is free once it was released, also while the process starts others: between fork
// and exec a child has the locked file open, too.
func TestTheLockIsFreeWhileProcessesStart(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("true")
	if err != nil {
		t.Skip("no program to start")
	}
	done := make(chan struct{})
	var starting sync.WaitGroup
	for range 2 {
		starting.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.CommandContext(t.Context(), program).Run() // it need only start
				}
			}
		})
	}
	dir := t.TempDir()
	block := filepath.Join(dir, "jetstream", "$G", "streams", "S", "msgs", "1.blk")
	if err := os.MkdirAll(filepath.Dir(block), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		store, err := os.Create(block) // as a server has it open that ends now
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
		f, err := lockStore(dir)
		if err != nil {
			t.Errorf("round %d: %v", i, err)
			break
		}
		if err := unlock(f); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	starting.Wait()
}
