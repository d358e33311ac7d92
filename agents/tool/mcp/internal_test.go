//go:build unix

package mcp

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"
)

// A program that has read only a part of a message takes the next one for its rest. Its session ends
// instead.
func TestHalfAMessageEndsTheSession(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	cfg := Config{}.withDefaults()
	p, err := startPipes(&Server{Command: []string{"sleep", "1000"}}, &cfg, slog.New(slog.DiscardHandler)) // it reads nothing
	if err != nil {
		t.Fatal(err)
	}
	p.writeTimeout = 200 * time.Millisecond
	if err := p.write(t.Context(), []byte("short")); err != nil {
		t.Fatal(err)
	}
	if err := p.write(t.Context(), make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) { // it is more than a pipe holds
		t.Error(err)
	}
	select {
	case <-p.closed:
	default:
		t.Error("the pipe with half a message is open")
		_ = p.close()
	}
	<-p.ended
}
