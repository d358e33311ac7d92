//go:build unix

package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// serveOld is a server of the first protocol version that never answers unknown requests, and
// answers in batches.
func serveOld() error {
	known := map[string]string{
		"initialize": `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"0"}}`,
		"tools/list": `{"tools":[{"name":"greet","inputSchema":{"type":"object"}}]}`,
		"tools/call": `{"content":[{"type":"text","text":"hello"}]}`,
		"ping":       `{}`,
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return err
		}
		if result, ok := known[m.Method]; ok {
			fmt.Printf("[{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}]\r\n", m.ID, result)
		}
	}
	return nil
}

// serveBusy is a server that does one thing at a time: during a call it reads pings, and answers
// none of them. A call takes as long as five pings do.
func serveBusy() error {
	waits := 0
	var call json.RawMessage
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return err
		}
		switch m.Method {
		case "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"busy","version":"0"}}}`+"\n", m.ID)
		case "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}}`+"\n", m.ID)
		case "tools/call":
			call, waits = m.ID, 5
		case "ping":
			if call == nil {
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID)
				continue
			}
			if waits--; waits == 0 {
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`+"\n", call)
			}
		default:
			if m.ID != nil {
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"not found"}}`+"\n", m.ID)
			}
		}
	}
	return nil
}

// serveDeaf is a server that reads nothing during a call: it requests the address until of its
// arguments, and answers then, with its process id.
func serveDeaf() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Arguments struct{ Until string } }
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return err
		}
		switch {
		case m.Method == "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"deaf","version":"0"}}}`+"\n", m.ID)
		case m.Method == "tools/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}}`+"\n", m.ID)
		case m.Method == "tools/call":
			if m.Params.Arguments.Until != "" {
				if resp, err := http.Get(m.Params.Arguments.Until); err == nil {
					resp.Body.Close()
				}
			}
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%d"}]}}`+"\n", m.ID, os.Getpid())
		case m.ID != nil:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"not found"}}`+"\n", m.ID)
		}
	}
	return lines.Err()
}

// serveFlood is a server that sends requests once it has listed its tools, and reads no answer.
func serveFlood() error {
	known := map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"flood","version":"0"}}`,
		"tools/list": `{"tools":[{"name":"greet","inputSchema":{"type":"object"}}]}`,
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return err
		}
		if result, ok := known[m.Method]; ok {
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", m.ID, result)
		} else if m.ID != nil {
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32601,\"message\":\"no\"}}\n", m.ID)
		}
		if m.Method == "tools/list" {
			break
		}
	}
	long := strings.Repeat("x", 100<<10) // an answer has it, too, and fills the pipe
	for i := 0; ; i++ {
		if _, err := fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":\"%s%d\",\"method\":\"ping\"}\n", long, i); err != nil {
			return err
		}
	}
}

// Requests of a server are kept until it has read the earlier answers; its session ends before they
// become many.
func TestAServerThatReadsNoAnswersIsCutOff(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	ended := make(chan string, 16)
	servers := newServers(t, mcp.Server{Command: self(t, "flood")}, func(c *mcp.Config) {
		c.MaxMessage = 1 << 20
		c.Log = slog.New(endings{c.Log.Handler(), ended})
	})
	_, err := open(t, servers, "mcp://it/greet").Tools(t.Context()) // fails if the session is cut off before its answer comes
	t.Log(err)
	if why := <-ended; !strings.Contains(why, "asks more than it reads") {
		t.Errorf("the session ended: %s", why)
	}
}

// The same over HTTP: requests come in a stream, and the server never reads the answers.
func TestAServerThatTakesNoAnswersOverHTTPIsCutOff(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			pad := strings.Repeat("x", 100<<10)
			for i := 0; ; i++ {
				n, err := fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"p%d\",\"method\":\"ping\",\"params\":{\"_meta\":{\"pad\":\"%s\"}}}\n\n", i, pad)
				if err != nil {
					return
				}
				sent.Add(int64(n))
			}
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil || m.Method == "" && m.ID != nil {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Mcp-Session-Id", "s")
		switch {
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"flood","version":"0"}}}`, m.ID)
		case m.Method == "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"greet","inputSchema":{"type":"object"}}]}}`, m.ID)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		}
	}))
	t.Cleanup(srv.Close)
	ended := make(chan string, 16)
	servers := newServers(t, mcp.Server{URL: srv.URL}, func(c *mcp.Config) {
		c.MaxMessage = 1 << 20
		c.Log = slog.New(endings{c.Log.Handler(), ended})
	})
	_, err := open(t, servers, "mcp://it/greet").Tools(t.Context()) // fails if the session is cut off before its answer comes
	t.Log(err)
	if why := <-ended; !strings.Contains(why, "asks more than it reads") {
		t.Errorf("after %d MiB the session ended: %s", sent.Load()>>20, why)
	}
}

// A server that ends its stream and asks for a new one at once is asked twice a second.
func TestAServerThatEndsItsStreamsIsNotAskedWithoutPause(t *testing.T) {
	t.Parallel()
	s, asked := &sessions{}, make(chan time.Time, 100)
	var count atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			s.ServeHTTP(w, r)
			return
		}
		select {
		case asked <- time.Now():
		default:
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "id: %d\nretry: 1\n\n", count.Add(1))
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL}), "mcp://it/*"))
	last := <-asked
	for range 2 {
		next := <-asked
		if pause := next.Sub(last); pause < 500*time.Millisecond {
			t.Errorf("asked again after %s", pause)
		}
		last = next
	}
}

// endings records why sessions end.
type endings struct {
	slog.Handler
	why chan string
}

func (e endings) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "mcp session") {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "err" {
				select {
				case e.why <- a.Value.String():
				default:
				}
			}
			return true
		})
	}
	return e.Handler.Handle(ctx, r)
}

func (e endings) WithAttrs(a []slog.Attr) slog.Handler { return endings{e.Handler.WithAttrs(a), e.why} }

// With a server that does not answer the newest handshake, the older one is used.
func TestOldServersAreSpokenTo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	src := open(t, newServers(t, mcp.Server{Command: self(t, "old")}, func(c *mcp.Config) { c.ConnectTimeout = 3 * time.Second }), "mcp://it/greet")
	var list []tool.Tool
	eventually(t, "the server is spoken to", func() (ok bool) {
		var err error
		list, err = src.Tools(t.Context())
		return err == nil
	})
	if got, err := list[0].Call(t.Context(), nil); err != nil || string(got) != `"hello"` {
		t.Errorf("result %s, error %v", got, err)
	}
}

// A program may take nearly the whole timeout to start. It is not ended before, to try the older
// handshake.
func TestAProgramMayStartSlowly(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	slow := append([]string{"/bin/sh", "-c", `sleep 4; exec "$@"`, "slow"}, self(t, "")...)
	src := open(t, newServers(t, mcp.Server{Command: slow}, func(c *mcp.Config) { c.ConnectTimeout = 7 * time.Second }), "mcp://it/*")
	if list, err := src.Tools(t.Context()); err != nil || len(list) == 0 {
		t.Errorf("%d tools, error %v", len(list), err)
	}
}

// A message beyond the bound ends the session, and the call says why.
func TestLargeMessagesAreRefused(t *testing.T) {
	t.Parallel()
	servers := newServers(t, mcp.Server{Command: self(t, "")}, func(c *mcp.Config) { c.MaxMessage = 100_000 })
	byName := tools(t, open(t, servers, "mcp://it"))
	if _, err := byName["large"].Call(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, tool.ErrInvalidResult) {
		t.Errorf("error %v, want %v", err, tool.ErrInvalidResult)
	}
	eventually(t, "a new session", func() bool {
		_, err := byName["pid"].Call(t.Context(), json.RawMessage(`{}`))
		return err == nil
	})
}

// A server that writes other text than messages to standard output, a little with each answer,
// keeps its session.
func TestAServerThatChattersWithEachAnswerKeepsItsSession(t *testing.T) {
	t.Parallel()
	noise := tools(t, open(t, newServers(t, mcp.Server{Command: self(t, "")}), "mcp://it"))["noise"]
	first, err := noise.Call(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if pid, err := noise.Call(t.Context(), nil); err != nil || string(pid) != string(first) {
			t.Errorf("%s, %v; want the program %s", pid, err, first)
		}
	}
}
