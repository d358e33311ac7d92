//go:build unix

package mcp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// A proxy that ends a silent stream of messages again and again ends no session: its calls go on.
func TestASilentStreamThatIsCutEndsNoSession(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	s, cut := &sessions{}, make(chan struct{}, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			if id := r.Header.Get("Last-Event-ID"); id != "" {
				t.Errorf("asked for what follows the event %q, which this server never sent", id)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "retry: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			cut <- struct{}{}
			return
		case peek(r).Method == "tools/call":
			for range 4 {
				select {
				case <-cut:
				case <-r.Context().Done():
					return
				}
			}
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	greet := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL}), "mcp://it/*"))["greet"]
	if got, err := greet.Call(t.Context(), nil); err != nil || string(got) != `"hello"` {
		t.Errorf("result %s, error %v", got, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count != 1 {
		t.Errorf("%d sessions, want 1", s.count)
	}
}
