//go:build unix

package mcp_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

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

// stateless is a server of an older protocol without sessions and streams, as it is behind a proxy.
type stateless struct {
	down    atomic.Int32 // the status of the proxy while the server is away
	renewed atomic.Bool  // the server lists another tool
	begun   atomic.Int32
	pings   atomic.Int32
}

func (s *stateless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := peek(r)
	if m.Method == "ping" {
		s.pings.Add(1)
	}
	if status := int(s.down.Load()); status != 0 {
		w.WriteHeader(status)
		return
	}
	name, result := "greet", "{}"
	if s.renewed.Load() {
		name = "renewed"
	}
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	case m.Method == "initialize":
		s.begun.Add(1)
		result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"it","version":"1"}}`
	case m.Method == "server/discover":
		w.WriteHeader(http.StatusBadRequest)
		return
	case m.Method == "tools/list":
		result = `{"tools":[{"name":"` + name + `","inputSchema":{"type":"object"}}]}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// The session of a server over HTTP that is away is given up, like that of every server that answers
// no pings. One that has too many requests is not away, nor one that knows no pings and fails at them.
func TestAServerOverHTTPThatIsAwayIsGivenUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for status, away := range map[int32]bool{http.StatusTooManyRequests: false, http.StatusInternalServerError: false, http.StatusBadGateway: true} {
		t.Run(http.StatusText(int(status)), func(t *testing.T) {
			t.Parallel()
			s := &stateless{}
			srv := httptest.NewServer(s)
			t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
			ended := make(chan string, 16)
			src := open(t, newServers(t, mcp.Server{URL: srv.URL}, func(c *mcp.Config) {
				c.Ping = 2 * time.Second // half of it for an answer, on a busy machine
				c.Log = slog.New(endings{c.Log.Handler(), ended})
			}), "mcp://it/*")
			tools(t, src)
			s.renewed.Store(true)
			s.down.Store(status)
			if !away {
				eventually(t, "a third ping, after two that were answered so", func() bool { return s.pings.Load() > 2 })
				select {
				case why := <-ended:
					t.Errorf("the session of a server that answers pings with %d ended: %s", status, why)
				default:
				}
				return
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatalf("the session goes on after %d pings", s.pings.Load())
			}
			s.down.Store(0)
			eventually(t, "the new list", func() bool { return tools(t, src)["renewed"] != nil })
		})
	}
}

// Where no stream of a server's notices is open, its list is requested again after a while.
func TestTheListOfAServerThatSendsNoNoticesIsRefreshed(t *testing.T) {
	t.Parallel()
	s := &stateless{}
	var renewed atomic.Bool
	for name, tt := range map[string]struct {
		renewed *atomic.Bool
		handler http.Handler
	}{
		"an older protocol": {&s.renewed, s},
		"2026-07-28": {&renewed, modern{func(_ http.ResponseWriter, _ *http.Request, method string, _ json.RawMessage) string {
			switch {
			case method == "server/discover":
				return `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
			case method == "tools/list" && renewed.Load():
				return `{"resultType":"complete","tools":[{"name":"renewed","inputSchema":{"type":"object"}}]}`
			}
			return ""
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(tt.handler)
			t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
			src := open(t, newServers(t, mcp.Server{URL: srv.URL}, func(c *mcp.Config) { c.Ping = 50 * time.Millisecond }), "mcp://it/*")
			if tools(t, src)["greet"] == nil {
				t.Fatal("no greet")
			}
			tt.renewed.Store(true)
			eventually(t, "the new list", func() bool { return tools(t, src)["renewed"] != nil })
		})
	}
}

// When the stream of a server's notices has ended, the next run asks for the list: notices may have
// been lost, and a server of 2026-07-28 sends no more.
func TestTheListIsRequestedAfterTheStreamOfNoticesHasEnded(t *testing.T) {
	t.Parallel()
	var lists atomic.Int32
	var renewed atomic.Bool
	listening, end := make(chan struct{}, 10), make(chan struct{})
	srv := httptest.NewServer(modern{func(w http.ResponseWriter, r *http.Request, method string, _ json.RawMessage) string {
		switch method {
		case "subscriptions/listen":
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			listening <- struct{}{}
			select {
			case <-end:
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler)
		case "tools/list":
			lists.Add(1)
			if renewed.Load() {
				return `{"resultType":"complete","tools":[{"name":"renewed","inputSchema":{"type":"object"}}]}`
			}
		}
		return ""
	}})
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	src := open(t, newServers(t, mcp.Server{URL: srv.URL}, func(c *mcp.Config) { c.Ping = time.Hour }), "mcp://it/*")
	tools(t, src)
	<-listening
	for range 3 {
		tools(t, src)
	}
	if n := lists.Load(); n != 1 {
		t.Errorf("%d lists while the stream is open, want 1", n)
	}
	renewed.Store(true)
	close(end)
	eventually(t, "the new list", func() bool { return tools(t, src)["renewed"] != nil })
}
