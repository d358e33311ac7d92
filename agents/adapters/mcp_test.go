package adapters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// mcpHTTP starts a server at /mcp and /ws of an address that requires a token.
func mcpHTTP(t *testing.T, token string) string {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "hello", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "hello"}}}, nil
	})
	mux := http.NewServeMux()
	mux.Handle("/mcp", sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil))
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mcp"}})
		if err != nil {
			return
		}
		if session, err := s.Connect(context.Background(), socket{conn}, nil); err == nil {
			_ = session.Wait()
		}
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

// socket is a server's side of a WebSocket.
type socket struct{ *websocket.Conn }

func (s socket) Connect(context.Context) (sdk.Connection, error) { return s, nil }
func (s socket) SessionID() string                               { return "" }
func (s socket) Close() error                                    { return s.CloseNow() }

func (s socket) Read(ctx context.Context) (jsonrpc.Message, error) {
	_, data, err := s.Conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	return jsonrpc.DecodeMessage(data)
}

func (s socket) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	return s.Conn.Write(ctx, websocket.MessageText, data)
}

// MCP servers are reached by the operator's settings: listed servers need no
// further permission and get their credential; servers that a document names
// need the policy's permission.
func TestMCPServers(t *testing.T) {
	t.Parallel()
	open, closed := mcpHTTP(t, ""), mcpHTTP(t, "t0ken")
	cfg, err := Read([]byte(fmt.Sprintf(`
outbound:
  allow: [%q]
secrets:
  env: [WIKI_TOKEN, BARE_TOKEN, EMPTY_TOKEN]
mcp_servers:
  wiki: {url: %q, auth: {type: bearer, env_var: WIKI_TOKEN}}
  socket: {url: %q}
  bare: {url: %q}
  empty: {url: %q, auth: {type: bearer, env_var: EMPTY_TOKEN}}
`, open+"/mcp", closed+"/mcp", strings.Replace(closed, "http", "ws", 1)+"/ws", closed+"/mcp", closed+"/mcp")))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"WIKI_TOKEN": "t0ken", "BARE_TOKEN": "n0thing"}
	set, err := New(cfg, Options{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	token := &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "WIKI_TOKEN"}
	for _, tt := range []struct {
		endpoint string
		auth     *aaif.Auth
		want     string
	}{
		{"mcp://wiki/hello", nil, ""},
		{"mcp://wiki/hello", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "BARE_TOKEN"}, ""}, // the operator's auth is used
		{"mcp://bare/hello", token, ""},
		{"mcp://socket/hello", token, ""},
		{"mcp://bare/hello", nil, "refuses the credentials"},
		{"mcp://empty/hello", nil, "its credential cannot be read"},
		{"mcp://bare/hello", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "BARE_TOKEN"}, "refuses the credentials"},
		{"mcp://bare/hello", &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "OTHER_TOKEN"}, "OTHER_TOKEN"},
		{open + "/mcp#hello", nil, ""},
		{strings.Replace(open, "http", "ws", 1) + "/ws#hello", nil, "not allowed"},
		{open + "/other#hello", nil, "not allowed"},
		{"http://169.254.169.254/mcp", nil, "refused by the operator's policy"},
	} {
		if err := callHello(t, set, &aaif.Tool{Name: "hello", Protocol: aaif.ProtocolMCP, Endpoint: tt.endpoint, Auth: tt.auth}); tt.want == "" && err != nil ||
			tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) || err != nil && strings.Contains(err.Error(), "t0ken") {
			t.Errorf("%s: %v, want %q", tt.endpoint, err, tt.want)
		}
	}
}

// callHello opens an entry and calls its tool.
func callHello(t *testing.T, set *Set, entry *aaif.Tool) error {
	src, err := set.Open(entry)
	if err != nil {
		return err
	}
	var list []tool.Tool
	if list, err = src.Tools(t.Context()); err != nil {
		return err
	}
	got, err := list[0].Call(t.Context(), json.RawMessage(`{}`))
	if err == nil && string(got) != `"hello"` {
		err = fmt.Errorf("result %s", got)
	}
	return err
}

// A certificate is presented over TLS only: a listed server with a certificate
// and without TLS is an error of the configuration, one that a document names
// is refused.
func TestMCPOverPlainHTTPHasNoCertificate(t *testing.T) {
	t.Parallel()
	for url, fine := range map[string]bool{"http://wiki.example/mcp": false, "ws://wiki.example/mcp": false, "https://wiki.example/mcp": true} {
		cfg, err := Read([]byte(`{"secrets": {"env": ["CERT"]}, "mcp_servers": {"wiki": {"url": "` + url + `", "auth": {"type": "mtls", "env_var": "CERT"}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		set, err := New(cfg, Options{})
		if (err == nil) != fine || !fine && !strings.Contains(err.Error(), "mcp_servers/wiki: auth mtls needs https") {
			t.Errorf("%s: %v", url, err)
		}
		if err == nil {
			_ = set.Close()
		}
	}
	open := mcpHTTP(t, "")
	set := newSet(t, `{"secrets": {"env": ["CERT"]}, "outbound": {"allow": ["`+open+`"]}}`, env("CERT", "pem"))
	err := callHello(t, set, &aaif.Tool{Name: "hello", Protocol: aaif.ProtocolMCP, Endpoint: open + "/mcp#hello", Auth: &aaif.Auth{Type: aaif.AuthMTLS, EnvVar: "CERT"}})
	if err == nil || !strings.Contains(err.Error(), "mtls needs https") || errors.Is(err, tool.ErrUnavailable) {
		t.Errorf("an address of the document's: %v", err)
	}
}

// A credential that the operator names and that cannot be read is reported at
// the start.
func TestMCPServersCredentialsAreChecked(t *testing.T) {
	t.Parallel()
	cfg, err := Read([]byte("mcp_servers: {wiki: {url: https://wiki.example.com/mcp, auth: {type: bearer, env_var: WIKI_TOKEN}}}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, Options{}); err == nil || !strings.Contains(err.Error(), "/mcp_servers/wiki/auth") || !strings.Contains(err.Error(), "WIKI_TOKEN") {
		t.Errorf("error %v", err)
	}
}
