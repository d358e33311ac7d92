//go:build unix

package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// sessions is a server of streamable HTTP that keeps its sessions in memory, as most do.
type sessions struct {
	refuse func(w http.ResponseWriter, id json.RawMessage) // a request of a session that it does not know

	mu    sync.Mutex
	count int
	known string
	calls int
}

func (s *sessions) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = ""
}

func (s *sessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var m struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.NewDecoder(r.Body).Decode(&m) // a GET has none
	session := r.Header.Get("Mcp-Session-Id")
	answer := func(result string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
	switch {
	case session == "" && m.Method == "initialize":
		s.count++
		s.known = fmt.Sprintf("session-%d", s.count)
		w.Header().Set("Mcp-Session-Id", s.known)
		answer(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"it","version":"1"}}`)
	case session == "":
		http.Error(w, "Bad Request: Missing session ID", http.StatusBadRequest)
	case session != s.known:
		s.refuse(w, m.ID)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "tools/list":
		answer(`{"tools":[{"name":"greet","inputSchema":{"type":"object"}},{"name":"odd","inputSchema":{"type":"object"}},{"name":"cut","inputSchema":{"type":"object"}}]}`)
	case m.Method == "tools/call":
		s.calls++
		answer(`{"content":[{"type":"text","text":"hello"}]}`)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		answer(`{}`)
	}
}

// peek decodes a request's message, and leaves its body unread.
func peek(r *http.Request) (m struct {
	ID     json.RawMessage
	Method string
	Params struct{ Name string }
}) {
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &m) // a GET has none
	r.Body = io.NopCloser(bytes.NewReader(body))
	return m
}

// Another refusal with status 400 concerns only the call, and the session continues.
func TestABadRequestIsNoLostSession(t *testing.T) {
	t.Parallel()
	s := &sessions{}
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "odd") {
			var m struct{ ID json.RawMessage }
			_ = json.Unmarshal(body, &m)
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","error":{"code":-32602,"message":"obsessions are odd"},"id":%s}`, m.ID)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.ServeHTTP(w, r)
	})
	srv := httptest.NewServer(inner)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	all := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL}), "mcp://it/*"))
	if _, err := all["odd"].Call(t.Context(), nil); !errors.Is(err, tool.ErrInvalidArguments) || !strings.Contains(err.Error(), "obsessions are odd") {
		t.Errorf("error %v", err)
	}
	if got, err := all["greet"].Call(t.Context(), nil); err != nil || string(got) != `"hello"` {
		t.Errorf("result %s, error %v", got, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count != 1 {
		t.Errorf("%d sessions, want 1", s.count)
	}
}

// An answer that breaks off ends its call only. The calls beside it go on in the same session.
func TestAnAnswerThatBreaksOffEndsOnlyItsCall(t *testing.T) {
	t.Parallel()
	s := &sessions{}
	begun, stopped := make(chan struct{}, 2), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch m := peek(r); {
		case m.Method == "tools/call" && m.Params.Name == "odd":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"jsonrpc":"2.0",`)
			_ = http.NewResponseController(w).Flush()
			begun <- struct{}{}
			<-r.Context().Done()
			close(stopped)
			return
		case m.Method == "tools/call" && m.Params.Name == "cut":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"jsonrpc":"2.0",`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case m.Method == "tools/call":
			begun <- struct{}{}
			<-stopped
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	all := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL}), "mcp://it/*"))
	ctx, cancel := context.WithCancel(t.Context())
	odd, greeted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := all["odd"].Call(ctx, nil)
		odd <- err
	}()
	go func() {
		got, err := all["greet"].Call(t.Context(), nil)
		if err == nil && string(got) != `"hello"` {
			err = fmt.Errorf("result %s", got)
		}
		greeted <- err
	}()
	<-begun
	<-begun
	cancel()
	if err := <-odd; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that was given up: %v", err)
	}
	if err := <-greeted; err != nil {
		t.Errorf("the call beside it: %v", err)
	}
	if _, err := all["cut"].Call(t.Context(), nil); !errors.Is(err, tool.ErrFailed) || !strings.Contains(err.Error(), "whether it had an effect is unknown") {
		t.Errorf("a call whose answer breaks off: %v", err)
	}
	if got, err := all["greet"].Call(t.Context(), nil); err != nil || string(got) != `"hello"` {
		t.Errorf("result %s, error %v", got, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count != 1 {
		t.Errorf("%d sessions, want 1", s.count)
	}
}

// An answer that is too large ends its call only, and the call says so.
func TestAnAnswerOverHTTPThatIsTooLargeEndsOnlyItsCall(t *testing.T) {
	t.Parallel()
	for name, inJSON := range map[string]bool{"JSON": true, "a stream": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer("", nil)
			add(s, "large", func(context.Context, map[string]string) string { return strings.Repeat("x", 200_000) })
			srv := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &sdk.StreamableHTTPOptions{JSONResponse: inJSON}))
			t.Cleanup(func() {
				srv.CloseClientConnections()
				srv.Close()
				for session := range s.Sessions() {
					_ = session.Close()
				}
			})
			ended := make(chan string, 16)
			all := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL}, func(c *mcp.Config) {
				c.MaxMessage = 100_000
				c.Log = slog.New(endings{c.Log.Handler(), ended})
			}), "mcp://it/*"))
			if _, err := all["large"].Call(t.Context(), nil); !errors.Is(err, tool.ErrInvalidResult) || !strings.Contains(err.Error(), "too large") {
				t.Errorf("error %v, want %v", err, tool.ErrInvalidResult)
			}
			if _, err := all["meta"].Call(t.Context(), nil); err != nil {
				t.Error(err)
			}
			select {
			case why := <-ended:
				t.Errorf("the session ended: %s", why)
			default:
			}
		})
	}
}

// If a server reports in any known way that a session is lost, a new session is used. The call is
// made once.
func TestServersSayInManyWaysThatASessionIsLost(t *testing.T) {
	t.Parallel()
	said := func(status int, kind, body string) func(http.ResponseWriter, json.RawMessage) {
		return func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			if len(id) > 0 {
				fmt.Fprintf(w, body, id)
			}
		}
	}
	for name, refuse := range map[string]func(http.ResponseWriter, json.RawMessage){
		"404, no body":            said(404, "text/plain", "%.0s"),
		"404, JSON without an id": said(404, "application/json", `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}%.0s`),
		"404, JSON of another id": said(404, "application/json", `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Session not found"},"id":"server-error"}%.0s`),
		"404, JSON of the call":   said(404, "application/json", `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":%s}`),
		"400, text":               said(400, "text/plain", "Bad Request: No valid session ID provided%.0s"),
		"400, JSON":               said(400, "application/json", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}%.0s`),
		"400, not initialized":    said(400, "application/json", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}%.0s`),
		"400, JSON of the call":   said(400, "application/json", `{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid session ID"},"id":%s}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &sessions{refuse: refuse}
			srv := httptest.NewServer(s)
			t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
			greet := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL}), "mcp://it/*"))["greet"]
			for range 2 { // after a second session that was short, there is a pause
				if got, err := greet.Call(t.Context(), nil); err != nil || string(got) != `"hello"` {
					t.Fatalf("result %s, error %v", got, err)
				}
				s.restart()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.calls != 2 || s.count != 2 {
				t.Errorf("%d calls in %d sessions, want 2 in 2", s.calls, s.count)
			}
		})
	}
}
