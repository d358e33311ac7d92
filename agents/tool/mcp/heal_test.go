//go:build unix

package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// eventually polls until ok, or fails the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// The next call restarts a server that was killed.
func TestKilledServerHeals(t *testing.T) {
	t.Parallel()
	servers := newServers(t, mcp.Server{Command: self(t, "pid")})
	byName := tools(t, open(t, servers, "mcp://it"))
	pid := func() (int, error) {
		result, err := byName["pid"].Call(t.Context(), json.RawMessage(`{}`))
		if err != nil {
			if !errors.Is(err, tool.ErrUnavailable) && !errors.Is(err, tool.ErrFailed) {
				t.Errorf("while the server is gone: %v", err)
			}
			return 0, err
		}
		return strconv.Atoi(strings.Trim(string(result), `"`))
	}
	first, err := pid()
	if err != nil {
		t.Fatal(err)
	}
	hung, hanging := make(chan error, 1), filepath.Join(t.TempDir(), "hanging")
	go func() {
		_, err := byName["hang"].Call(t.Context(), json.RawMessage(`{"file":`+strconv.Quote(hanging)+`}`))
		hung <- err
	}()
	readPID(t, hanging) // a call after the kill would restart the server, and hang there
	file := filepath.Join(t.TempDir(), "child")
	if _, err := byName["child"].Call(t.Context(), json.RawMessage(`{"file":`+strconv.Quote(file)+`}`)); err != nil {
		t.Fatal(err)
	}
	child := readPID(t, file)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-hung; !errors.Is(err, tool.ErrFailed) || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("a call that was cut off: %v, want one whose effect is unknown", err)
	}
	eventually(t, "the server is begun anew", func() bool {
		second, err := pid()
		return err == nil && second != first
	})
	eventually(t, "the child of the killed server is gone", func() bool { return syscall.Kill(child, 0) != nil })
}

func readPID(t *testing.T, file string) (pid int) {
	t.Helper()
	eventually(t, "the child has begun", func() bool {
		data, err := os.ReadFile(file)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		}
		return err == nil
	})
	return pid
}

// Close ends a server that ignores the end of its input and SIGTERM, together with its children.
func TestCloseKillsStubbornServers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	servers, err := mcp.NewServers(mcp.Config{Servers: map[string]mcp.Server{"it": {Command: self(t, "stubborn")}}})
	if err != nil {
		t.Fatal(err)
	}
	byName := tools(t, open(t, servers, "mcp://it"))
	result, err := byName["pid"].Call(t.Context(), json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.Trim(string(result), `"`))
	if err := servers.Close(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("the server still runs")
	}
	if _, err := byName["pid"].Call(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, tool.ErrUnavailable) {
		t.Errorf("a call after Close: %v", err)
	}
	if err := servers.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

// A server that cannot be started is not started over and over, and calls fail
// at once meanwhile.
func TestServerThatCannotStart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "started")
	servers := newServers(t, mcp.Server{Command: []string{"/bin/sh", "-c", "echo x >> " + file + "; exit 1"}})
	src := open(t, servers, "mcp://it/x")
	for range 20 {
		if _, err := src.Tools(t.Context()); !errors.Is(err, tool.ErrUnavailable) {
			t.Errorf("error %v, want %v", err, tool.ErrUnavailable)
		}
	}
	data, err := os.ReadFile(file)
	if n := strings.Count(string(data), "x"); err != nil || n > 10 {
		t.Errorf("started %d times, error %v", n, err)
	}
	missing := open(t, newServers(t, mcp.Server{Command: []string{"/nowhere/server"}}), "mcp://it/x")
	if _, err := missing.Tools(t.Context()); !errors.Is(err, tool.ErrUnavailable) || !strings.Contains(err.Error(), "its program is not found") || strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("error %v", err)
	}
}

// After a server has restarted, or has lost its sessions, a new session is used.
func TestLostSessionHeals(t *testing.T) {
	t.Parallel()
	var count atomic.Int32
	s := newServer("", nil)
	srv := serveHTTP(t, s, &count)
	tl := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL + "/mcp"}), "mcp://it/meta"))["subject"]
	ctx := tool.WithKey(t.Context(), "run/7")
	if got, err := tl.Call(ctx, json.RawMessage(`{}`)); err != nil || string(got) != `"run/7"` {
		t.Fatalf("result %s, error %v, want the key", got, err)
	}
	for session := range s.Sessions() {
		_ = session.Close() // the handler answers 404 from now on
	}
	eventually(t, "a new session", func() bool {
		got, err := tl.Call(ctx, json.RawMessage(`{}`))
		return err == nil && string(got) == `"run/7"`
	})
}

// A running call is not repeated when another request ends the session, unless it is safe to
// repeat.
func TestACallUnderWayIsNotRepeatedInANewSession(t *testing.T) {
	t.Parallel()
	s := newServer("", nil)
	var begun atomic.Int32
	entered, done := make(chan struct{}, 2), make(chan struct{})
	defer close(done)
	pay := func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		begun.Add(1)
		entered <- struct{}{}
		select {
		case <-ctx.Done():
		case <-done:
		}
		return nil, errors.New("it was stopped")
	}
	s.AddTool(&sdk.Tool{Name: "pay", InputSchema: json.RawMessage(`{"type":"object"}`)}, pay)
	var missing atomic.Bool
	inner := serveHTTP(t, s, nil).Config.Handler
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if missing.CompareAndSwap(true, false) {
			http.Error(w, "no such session", http.StatusNotFound)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	all := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL + "/mcp"}), "mcp://it/*"))
	paid := make(chan error, 1)
	go func() {
		_, err := all["pay"].Call(t.Context(), json.RawMessage(`{}`))
		paid <- err
	}()
	<-entered
	missing.Store(true)
	if got, err := all["meta"].Call(tool.WithKey(t.Context(), "run/7"), json.RawMessage(`{}`)); err != nil || string(got) != `"run/7"` {
		t.Errorf("result %s, error %v of the call that the server cannot have begun", got, err)
	}
	select {
	case err := <-paid:
		if !errors.Is(err, tool.ErrFailed) || !strings.Contains(err.Error(), "whether it had an effect is unknown") {
			t.Errorf("error %v", err)
		}
	case <-entered:
		t.Error("the call was made again")
	}
	if n := begun.Load(); n != 1 {
		t.Errorf("the call was begun %d times", n)
	}
}

// A server may use each code that JSON-RPC leaves to it, also those that mean the end of a
// session to the SDK.
func TestAServersOwnErrorCodes(t *testing.T) {
	t.Parallel()
	s := newServer("", nil)
	var begun atomic.Int32
	for name, code := range map[string]int64{"c2": -32002, "c3": -32003, "c4": -32004, "c5": -32005} {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			begun.Add(1)
			return nil, &jsonrpc.Error{Code: code, Message: "the daily quota is reached"}
		})
	}
	srv := serveHTTP(t, s, nil)
	for _, url := range []string{srv.URL + "/mcp", srv.URL + "/sse", "ws" + strings.TrimPrefix(srv.URL, "http") + "/ws"} {
		all := tools(t, open(t, newServers(t, mcp.Server{URL: url}), "mcp://it/*"))
		for _, name := range []string{"c2", "c3", "c4", "c5"} {
			begun.Store(0)
			_, err := all[name].Call(t.Context(), json.RawMessage(`{}`))
			if !errors.Is(err, tool.ErrFailed) || !strings.Contains(err.Error(), "the daily quota is reached") || begun.Load() != 1 {
				t.Errorf("%s, %s: error %v after %d calls", url, name, err, begun.Load())
			}
		}
	}
}

// One session serves all entries and calls; the list is asked for again when
// the server says that it has changed.
func TestSessionIsSharedAndListRefreshed(t *testing.T) {
	t.Parallel()
	s := newServer("", nil)
	servers := newServers(t, mcp.Server{URL: serveHTTP(t, s, nil).URL + "/mcp"})
	all, other := open(t, servers, "mcp://it/*"), open(t, servers, "mcp://it/meta")
	before := tools(t, all)
	tools(t, other)
	// The server may still have the session of the handshake that it did not understand.
	eventually(t, "one session", func() bool {
		n := 0
		for range s.Sessions() {
			n++
		}
		return n == 1
	})
	if again := tools(t, all); again["subject"] != before["subject"] {
		t.Error("a tool that has not changed is another one")
	}
	s.AddTool(&sdk.Tool{Name: "files.read", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	eventually(t, "the new tool is listed", func() bool { return tools(t, all)["files_read"] != nil })
	if tools(t, all)["subject"] != before["subject"] {
		t.Error("a tool that has not changed is another one, after the list has changed")
	}
}

// A call counts against the rate limit only if the server got it.
func TestCallsThatTheServerDidNotGetAreNotMade(t *testing.T) {
	t.Parallel()
	s := newServer("", nil)
	inner := serveHTTP(t, s, nil).Config.Handler
	var busy atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if busy.Load() {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	transport := http.DefaultTransport.(*http.Transport).Clone()
	own := func(cfg *mcp.Config) {
		cfg.Client = func(context.Context, string, *aaif.Auth, bool) (*http.Client, error) {
			return &http.Client{Transport: transport}, nil
		}
	}
	tl := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL + "/mcp"}, own), "mcp://it/meta"))["subject"]
	call := func() (failed *tool.Error) {
		t.Helper()
		_, err := tl.Call(t.Context(), json.RawMessage(`{}`))
		if !errors.As(err, &failed) {
			t.Fatal(err)
		}
		return failed
	}
	busy.Store(true)
	if err := call(); err.NotMade || !errors.Is(err, tool.ErrUnavailable) {
		t.Errorf("too many requests: %+v", err)
	}
	srv.CloseClientConnections()
	srv.Close()
	transport.CloseIdleConnections() // a request on a connection that breaks may have been read
	if err := call(); !err.NotMade || !errors.Is(err, tool.ErrUnavailable) {
		t.Errorf("no server: %+v", err)
	}
}

// counting is a limiter that permits everything.
type counting struct{ calls int }

func (l *counting) Take(context.Context, int) (func(context.Context), error) {
	l.calls++
	return func(context.Context) { l.calls-- }, nil
}
func (l *counting) Spent(context.Context, int) {}

// A call that the server refuses has reached it, also if the server says that its arguments are wrong.
func TestACallThatTheServerRefusesCounts(t *testing.T) {
	t.Parallel()
	inner := serveHTTP(t, newServer("", nil), nil).Config.Handler
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(body, &m) == nil && m.Method == "tools/call" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such subject"}}`, m.ID)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	var l counting
	tl := tool.Limited(tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL + "/mcp"}), "mcp://it/meta"))["subject"], &l)
	if _, err := tl.Call(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, tool.ErrInvalidArguments) || l.calls != 1 {
		t.Errorf("%v; %d calls count, want 1", err, l.calls)
	}
}

// A server that accepts connections and does not answer delays no run whose tools are known. When
// it answers again, the list is requested again.
func TestAHangingServerDelaysNoKnownList(t *testing.T) {
	t.Parallel()
	s := newServer("", nil)
	inner := serveHTTP(t, s, nil).Config.Handler
	var hangs atomic.Bool
	asked, answers := make(chan struct{}, 100), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			asked <- struct{}{}
			select {
			case <-answers:
			case <-r.Context().Done():
				return
			}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	src := open(t, newServers(t, mcp.Server{URL: "ws" + strings.TrimPrefix(srv.URL, "http") + "/ws"}, func(c *mcp.Config) { c.ConnectTimeout = time.Minute }), "mcp://it/*")
	known := tools(t, src)
	hangs.Store(true)
	for session := range s.Sessions() {
		_ = session.Close()
	}
	eventually(t, "a new session is begun", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if list, err := src.Tools(ctx); err != nil || len(list) != len(known) {
			t.Fatalf("%d tools, error %v; want the %d that are known", len(list), err, len(known))
		}
		select {
		case <-asked:
			return true
		default:
			return false
		}
	})
	s.AddTool(&sdk.Tool{Name: "files.read", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	hangs.Store(false)
	close(answers)
	eventually(t, "the new tool is listed", func() bool { return tools(t, src)["files_read"] != nil })
}

// A server that does one thing at a time, and answers no ping meanwhile, keeps its session
// for as long as the call may take.
func TestBusyServerKeepsItsSession(t *testing.T) {
	t.Parallel()
	servers := newServers(t, mcp.Server{Command: self(t, "busy")}, func(c *mcp.Config) { c.Ping = 200 * time.Millisecond })
	tl := tools(t, open(t, servers, "mcp://it/work"))["subject"]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got, err := tl.Call(ctx, json.RawMessage(`{}`)); err != nil || string(got) != `"done"` {
		t.Errorf("%s, %v", got, err)
	}
}

// The session of a server that hangs is closed when the call that it may work on has ended, however
// many later calls wait for it.
func TestSilentServerIsGivenUpAfterItsCall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	servers := newServers(t, mcp.Server{Command: self(t, "silent")}, func(c *mcp.Config) { c.Ping = 200 * time.Millisecond })
	byName := tools(t, open(t, servers, "mcp://it/*"))
	call := func(name string, patience time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got, err := byName[name].Call(ctx, json.RawMessage(`{}`))
		return string(got), err
	}
	first, err := call("pid", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := call("stop", 500*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s, %v, want the call's own end", got, err)
	}
	if got, err := call("pid", time.Minute); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s, %v, want the end of the session", got, err)
	}
	eventually(t, "another server answers", func() bool {
		got, err := call("pid", time.Minute)
		return err == nil && got != first
	})
}

// The session of a server that is connected but silent is closed.
func TestSilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	servers := newServers(t, mcp.Server{Command: self(t, "silent")}, func(c *mcp.Config) { c.Ping = time.Second })
	tl := tools(t, open(t, servers, "mcp://it/stop"))["subject"]
	_, err := tl.Call(t.Context(), json.RawMessage(`{}`)) // it stops itself, and never answers
	if !errors.Is(err, tool.ErrFailed) {
		t.Errorf("error %v, want %v", err, tool.ErrFailed)
	}
}

// The error of a server whose certificate is not trusted says so.
func TestAServerWithAnUntrustedCertificate(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request") }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	servers := newServers(t, mcp.Server{URL: srv.URL})
	_, err := open(t, servers, "mcp://it/x").Tools(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the server's certificate is of an unknown authority") {
		t.Error(err)
	}
}

// Close also ends a program that has not answered the handshake, because the worker exits after
// Close.
func TestCloseKillsAServerThatHasNotBegun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	file := filepath.Join(t.TempDir(), "pid")
	servers, err := mcp.NewServers(mcp.Config{Servers: map[string]mcp.Server{"it": {Command: []string{"/bin/sh", "-c", "echo $$ > " + file + "; exec sleep 1000"}}}})
	if err != nil {
		t.Fatal(err)
	}
	src := open(t, servers, "mcp://it/x")
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = src.Tools(ctx)
	}()
	pid := readPID(t, file)
	cancel()
	<-asked
	if err := servers.Close(); err != nil {
		t.Error(err)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("the program still runs")
	}
}
