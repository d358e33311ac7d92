//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
	"github.com/aeemesh/aeemesh/agents/tool/tooltest"
)

// The test binary is a server over stdio, and the client of the conformance
// suite, as well.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "serve":
		if err := serve(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	case len(os.Args) > 2 && os.Args[1] == "conform":
		if err := conform(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The tests wait for servers that do not answer or end more than they compute.
	flag.Parse()
	if at := flag.Lookup("test.parallel"); at.Value.String() == at.DefValue {
		_ = at.Value.Set("12") // the value is a valid number
	}
	goleak.VerifyTestMain(m)
}

// newServer returns a server with the tool subject, which has the given behaviour, and others. A
// tool that hangs does so until done is closed.
func newServer(behaviour string, done <-chan struct{}) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	d := tooltest.Definition()
	s.AddTool(&sdk.Tool{Name: d.Name, Description: d.Description, InputSchema: d.Parameters, OutputSchema: d.Output},
		func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			switch tooltest.Behaviour(behaviour) {
			case tooltest.Fail:
				return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: tooltest.FailText}}}, nil
			case tooltest.Hang:
				select {
				case <-ctx.Done():
				case <-done:
				}
				return nil, errors.New("hung")
			}
			return &sdk.CallToolResult{StructuredContent: req.Params.Arguments, Content: []sdk.Content{}}, nil
		})
	s.AddTool(&sdk.Tool{Name: "meta", Description: "Says what came beside the arguments.", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{StructuredContent: req.Params.Meta[mcp.KeyMeta], Content: []sdk.Content{}}, nil
		})
	return s
}

func serve(how string) error {
	switch how {
	case "chatter":
		fmt.Println("ready to serve!")
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 5000))
	case "old":
		return serveOld()
	case "busy":
		return serveBusy()
	case "deaf":
		return serveDeaf()
	case "flood":
		return serveFlood()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		defer func() { select {} }()
	}
	s := newServer(how, nil)
	if how == "leak" {
		leak(s)
	}
	add(s, "environment", func(context.Context, map[string]string) string { return strings.Join(os.Environ(), "\n") })
	add(s, "large", func(context.Context, map[string]string) string { return strings.Repeat("x", 200_000) })
	add(s, "pid", func(context.Context, map[string]string) string { return fmt.Sprint(os.Getpid()) })
	add(s, "exit", func(context.Context, map[string]string) string { os.Exit(7); return "" })
	add(s, "quit", func(context.Context, map[string]string) string { os.Exit(0); return "" })
	add(s, "die", func(context.Context, map[string]string) string {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	})
	add(s, "noise", func(context.Context, map[string]string) string {
		for range 600 {
			fmt.Println("working on it")
		}
		return fmt.Sprint(os.Getpid())
	})
	add(s, "hang", func(ctx context.Context, in map[string]string) string {
		_ = os.WriteFile(in["file"], []byte(strconv.Itoa(os.Getpid())), 0o600)
		<-ctx.Done()
		return ""
	})
	add(s, "child", func(_ context.Context, in map[string]string) string {
		cmd := exec.Command("/bin/sh", "-c", "echo $$ > "+in["file"]+"; exec sleep 1000")
		return fmt.Sprint(cmd.Start())
	})
	add(s, "stop", func(ctx context.Context, _ map[string]string) string {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-ctx.Done() // it stops a little later
		return ""
	})
	return s.Run(context.Background(), &sdk.StdioTransport{})
}

// leak adds tools that repeat the credential where texts are truncated, and writes it to standard
// error, too.
func leak(s *sdk.Server) {
	fmt.Fprintln(os.Stderr, strings.Repeat("x", 1<<10-8)+token)
	fmt.Fprintln(os.Stderr, "the next line")
	schema := json.RawMessage(`{"type":"object"}`)
	s.AddTool(&sdk.Tool{Name: "leak", InputSchema: schema, Description: strings.Repeat("x", 16<<10-8) + token},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: strings.Repeat("x", 4<<10-8) + token}}}, nil
		})
	s.AddTool(&sdk.Tool{Name: "refuse", InputSchema: schema}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: 7, Message: strings.Repeat("x", 4<<10-8-len("the MCP server refuses the call: ")) + token}
	})
}

func add(s *sdk.Server, name string, f func(context.Context, map[string]string) string) {
	s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var in map[string]string
		_ = json.Unmarshal(req.Params.Arguments, &in)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: f(ctx, in)}}}, nil
	})
}

// self returns the command that runs this binary as a server.
func self(t *testing.T, how string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{exe, "serve", how}
}

// newServers has one server, named it.
func newServers(t *testing.T, s mcp.Server, mend ...func(*mcp.Config)) *mcp.Servers {
	t.Helper()
	cfg := mcp.Config{Servers: map[string]mcp.Server{"it": s}, Log: slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelDebug})), Env: os.LookupEnv}
	// A test server that closes closes all idle connections of the default transport.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	cfg.Client = func(context.Context, string, *aaif.Auth, bool) (*http.Client, error) {
		return &http.Client{Transport: transport}, nil
	}
	for _, f := range mend {
		f(&cfg)
	}
	servers, err := mcp.NewServers(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	})
	return servers
}

type logTo struct{ t *testing.T }

func (l logTo) Write(p []byte) (int, error) {
	fmt.Fprintf(l.t.Output(), "%s", p)
	return len(p), nil
}

// open opens an entry of an endpoint, named subject.
func open(t *testing.T, servers *mcp.Servers, endpoint string) tool.Source {
	t.Helper()
	src, err := servers.Open(&aaif.Tool{Name: "subject", Description: "The tool under test.", Protocol: aaif.ProtocolMCP, Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// tools lists a source's tools, by name.
func tools(t *testing.T, src tool.Source) map[string]tool.Tool {
	t.Helper()
	list, err := src.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]tool.Tool)
	for _, tl := range list {
		byName[tl.Definition().Name] = tl
	}
	return byName
}

// serveHTTP serves over streamable HTTP, SSE (/sse) and WebSocket (/ws), and
// counts the requests.
func serveHTTP(t *testing.T, s *sdk.Server, count *atomic.Int32) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	get := func(*http.Request) *sdk.Server { return s }
	mux.Handle("/mcp", sdk.NewStreamableHTTPHandler(get, nil))
	mux.Handle("/sse", sdk.NewSSEHandler(get, nil))
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mcp"}})
		if err != nil {
			return
		}
		conn.SetReadLimit(8 << 20)
		session, err := s.Connect(context.Background(), &wsServer{conn}, nil)
		if err == nil {
			_ = session.Wait()
		}
		_ = conn.CloseNow()
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if count != nil {
			count.Add(1)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		for session := range s.Sessions() { // sessions whose end could not be reported
			_ = session.Close()
		}
	})
	return srv
}

func serveBehaviour(t *testing.T, b tooltest.Behaviour) *httptest.Server {
	t.Helper()
	done := make(chan struct{})
	srv := serveHTTP(t, newServer(string(b), done), nil)
	t.Cleanup(func() { close(done) })
	return srv
}

// wsServer is the server's side of a WebSocket, as its author would write it.
type wsServer struct{ conn *websocket.Conn }

func (w *wsServer) Connect(context.Context) (sdk.Connection, error) { return w, nil }
func (w *wsServer) SessionID() string                               { return "" }
func (w *wsServer) Close() error                                    { return w.conn.CloseNow() }

func (w *wsServer) Read(ctx context.Context) (jsonrpc.Message, error) {
	_, data, err := w.conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	return jsonrpc.DecodeMessage(data)
}

func (w *wsServer) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	return w.conn.Write(ctx, websocket.MessageText, data)
}

func TestConforms(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	subject := func(t *testing.T, s mcp.Server) tool.Tool {
		d := tooltest.Definition()
		src, err := newServers(t, s).Open(&aaif.Tool{Name: d.Name, Description: d.Description, Protocol: aaif.ProtocolMCP,
			Endpoint: "mcp://it/subject", ParametersSchema: d.Parameters, OutputSchema: d.Output})
		if err != nil {
			t.Fatal(err)
		}
		return tools(t, src)["subject"]
	}
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool {
			return subject(t, mcp.Server{Command: self(t, string(b))})
		})
	})
	for path, transport := range map[string]string{"/mcp": "", "/sse": "sse"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool {
				return subject(t, mcp.Server{URL: serveBehaviour(t, b).URL + path, Transport: transport})
			})
		})
	}
	t.Run("ws", func(t *testing.T) {
		t.Parallel()
		tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool {
			url := strings.Replace(serveBehaviour(t, b).URL, "http", "ws", 1) + "/ws"
			return subject(t, mcp.Server{URL: url})
		})
	})
}
