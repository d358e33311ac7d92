//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// modern is a server of protocol 2026-07-28 over HTTP. It has no sessions.
type modern struct {
	requests func(w http.ResponseWriter, r *http.Request, method string, params json.RawMessage) (result string) // "" if it has answered itself
}

func (s modern) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := s.requests(w, r, m.Method, m.Params)
	switch {
	case result != "":
	case m.Method == "server/discover":
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`
	case m.Method == "subscriptions/listen":
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	case m.Method == "tools/list":
		result = `{"resultType":"complete","tools":[{"name":"greet","inputSchema":{"type":"object"}}]}`
	default:
		result = `{"resultType":"complete","content":[]}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// A server that answers the handshake, and holds the answer to the request after it, is asked
// again later, like every server that does not answer.
func TestAServerThatHoldsTheRequestAfterTheHandshakeIsAskedAgain(t *testing.T) {
	t.Parallel()
	var holds [2]atomic.Bool
	sessions := &sessions{}
	for name, tt := range map[string]struct {
		holds   *atomic.Bool
		handler http.Handler
	}{
		"the stream of a session": {&holds[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && holds[0].Load() {
				<-r.Context().Done()
				return
			}
			sessions.ServeHTTP(w, r)
		})},
		"the stream of a subscription": {&holds[1], modern{func(_ http.ResponseWriter, r *http.Request, method string, _ json.RawMessage) string {
			if method == "subscriptions/listen" && holds[1].Load() {
				<-r.Context().Done()
			}
			return ""
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.holds.Store(true)
			srv := httptest.NewServer(tt.handler)
			t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
			src := open(t, newServers(t, mcp.Server{URL: srv.URL}, func(c *mcp.Config) { c.ConnectTimeout = 200 * time.Millisecond }), "mcp://it/*")
			list := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				got, err := src.Tools(ctx)
				if err == nil && len(got) == 0 {
					err = fmt.Errorf("no tools")
				}
				return err
			}
			if err := list(); err == nil {
				t.Error("the tools of a server that holds its stream")
			}
			tt.holds.Store(false)
			eventually(t, "the tools", func() bool { return list() == nil })
		})
	}
}

// A server of 2026-07-28 that asks for no input has too much to do: the call is made again with its
// state, and not without end.
func TestAServerThatHasTooMuchToDoIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		busy, calls int32
		want        error
	}{"for a moment": {1, 2, nil}, "for long": {9, 3, tool.ErrUnavailable}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			srv := httptest.NewServer(modern{func(_ http.ResponseWriter, _ *http.Request, method string, p json.RawMessage) string {
				if method != "tools/call" {
					return ""
				}
				n := calls.Add(1)
				if n > 1 && !strings.Contains(string(p), `"requestState":"s"`) {
					t.Errorf("call %d: %s", n, p)
				}
				if n > c.busy {
					return ""
				}
				return `{"resultType":"input_required","requestState":"s","inputRequests":{}}`
			}})
			t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
			greet := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL}), "mcp://it/*"))["greet"]
			if got, err := greet.Call(t.Context(), nil); !errors.Is(err, c.want) || calls.Load() != c.calls {
				t.Errorf("result %s, error %v, %d calls", got, err, calls.Load())
			}
		})
	}
}

// A tool of protocol 2026-07-28 that asks for input gets no answer: its call has failed.
func TestAToolThatAsksForInputIsNotAnswered(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string]string{
		"roots":       `{"method":"roots/list","params":{}}`,
		"elicitation": `{"method":"elicitation/create","params":{"message":"which?","requestedSchema":{"type":"object","properties":{}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			srv := httptest.NewServer(modern{func(_ http.ResponseWriter, _ *http.Request, method string, _ json.RawMessage) string {
				if method != "tools/call" || calls.Add(1) > 1 {
					return ""
				}
				return `{"resultType":"input_required","requestState":"s","inputRequests":{"q":` + asks + `}}`
			}})
			t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
			greet := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL}), "mcp://it/*"))["greet"]
			got, err := greet.Call(t.Context(), nil)
			if !errors.Is(err, tool.ErrFailed) || !strings.Contains(err.Error(), "the tool asks for input from a person") {
				t.Errorf("result %s, error %v", got, err)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}
