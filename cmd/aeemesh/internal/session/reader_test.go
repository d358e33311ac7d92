package session

import (
	"context"
	"os"
	"testing"
)

func TestAwaitReaderGone(t *testing.T) {
	t.Parallel()
	if !canAwaitReader {
		t.Skip("not known on this system")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if awaitReaderGone(ended, w) {
		t.Error("the reader is there")
	}
	r.Close()
	if !awaitReaderGone(t.Context(), w) {
		t.Error("the reader is gone")
	}
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if awaitReaderGone(t.Context(), file) { // at once
		t.Error("a file has no reader that goes")
	}
}
