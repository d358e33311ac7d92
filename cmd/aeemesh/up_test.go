package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// upForTest is "aeemesh up" in this process, on free ports, until the test ends.
func upForTest(t *testing.T, args ...string) serverURLs {
	t.Helper()
	dir := t.TempDir()
	ports := filepath.Join(dir, "ports.json")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		args := append([]string{"up", "--port", "0", "--store", filepath.Join(dir, "store"), "--ports-file", ports, "--no-streams"}, args...)
		ended <- run(ctx, args, strings.NewReader(""), io.Discard, io.Discard, func(string) string { return "" })
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != exitOK {
			t.Errorf("up: exit %d", code)
		}
	})
	var urls serverURLs
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		if raw, err := os.ReadFile(ports); err == nil {
			if err := json.Unmarshal(raw, &urls); err != nil {
				t.Fatal(err)
			}
			return urls
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not get ready")
		}
	}
}

// Finding 14 of the security review: any page that a developer visited could use
// the server.
func TestPagesUseTheServerOnlyWhereTheyAreAllowed(t *testing.T) {
	t.Parallel()
	closed := upForTest(t, "--websocket", "0")
	open := upForTest(t, "--websocket", "0", "--websocket-origin", "https://app.example")
	for _, tt := range []struct {
		url, origin string
		want        int
	}{
		{closed.Websocket, "", http.StatusSwitchingProtocols},
		{closed.Websocket, "https://evil.example", http.StatusForbidden},
		{closed.Websocket, "https://app.example", http.StatusForbidden},
		{open.Websocket, "", http.StatusSwitchingProtocols},
		{open.Websocket, "https://evil.example", http.StatusForbidden},
		{open.Websocket, "https://app.example", http.StatusSwitchingProtocols},
	} {
		if got := natstest.Handshake(t, tt.url, tt.origin); got != tt.want {
			t.Errorf("Origin %q: status %d, want %d", tt.origin, got, tt.want)
		}
	}
	for _, args := range [][]string{{"up", "--websocket-origin", "https://app.example"}, {"up", "--websocket", "0", "--websocket-origin", "app.example"}} {
		if code, _, words := runForTest(args...); code != exitUsage || !strings.Contains(words, "origin") {
			t.Errorf("%v: exit %d, %s", args, code, words)
		}
	}
}
