package adapters

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// authorized is an MCP server whose clients get their token from an authorization server, as in
// MCP's authorization, by the grant client credentials.
type authorized struct {
	url, issuer string
	methods     string                       // the methods by which the token endpoint accepts credentials
	token       atomic.Int32                 // the number of the valid token
	asked       atomic.Pointer[http.Request] // the last request to the token endpoint
	grants      atomic.Int32
}

func newAuthorized(t *testing.T, methods string) *authorized {
	t.Helper()
	a := &authorized{methods: methods}
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/oauth-authorization-server":
			fmt.Fprintf(w, `{"issuer": %q, "authorization_endpoint": %q, "token_endpoint": %q, "jwks_uri": %q, "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": [%s]}`,
				a.issuer, a.issuer+"/authorize", a.issuer+"/token", a.issuer+"/jwks", a.methods)
		case "/token":
			_ = r.ParseForm()
			a.asked.Store(r)
			a.grants.Add(1)
			fmt.Fprintf(w, `{"access_token": "t0ken-%d", "token_type": "Bearer", "expires_in": 3600}`, a.token.Load())
		default:
			http.NotFound(w, r)
		}
	}))
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "hello", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "hello"}}}, nil
	})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/.well-known/oauth-protected-resource/mcp" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"resource": %q, "authorization_servers": [%q], "scopes_supported": ["all"]}`, a.url+"/mcp", a.issuer)
			return
		}
		if r.Header.Get("Authorization") != fmt.Sprintf("Bearer t0ken-%d", a.token.Load()) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp", scope="tools read"`, a.url))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		issuer.Close()
	})
	a.url, a.issuer = srv.URL, issuer.URL
	return a
}

// A server that names an authorization server gets a token from there, for the
// client in the auth block, if the operator permits that server.
func TestMCPAuthorizationIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		methods, scopes string
		inBody          bool
		scope           string // the requested scope
	}{
		{methods: `"client_secret_basic", "client_secret_post"`, scope: "tools read"},
		{methods: ``, scope: "tools read"},
		{methods: `"client_secret_post"`, inBody: true, scope: "tools read"},
		{methods: `"client_secret_basic"`, scopes: `, "scopes": ["mine"]`, scope: "mine"},
	} {
		a := newAuthorized(t, c.methods)
		set := newSet(t, `{"secrets": {"env": ["CLIENT"]}, "outbound": {"allow": ["`+a.issuer+`"]},
			"mcp_servers": {"wiki": {"url": "`+a.url+`/mcp", "auth": {"type": "oauth2", "env_var": "CLIENT"`+c.scopes+`}}}}`, env("CLIENT", "me:s3cret"))
		entry := &aaif.Tool{Name: "hello", Protocol: aaif.ProtocolMCP, Endpoint: "mcp://wiki/hello"}
		if err := callHello(t, set, entry); err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		r := a.asked.Load()
		id, password, basic := r.BasicAuth()
		if c.inBody {
			id, password = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
		}
		if basic == c.inBody || id != "me" || password != "s3cret" || r.PostForm.Get("scope") != c.scope || r.PostForm.Get("resource") != a.url+"/mcp" || r.PostForm.Get("grant_type") != "client_credentials" {
			t.Errorf("%+v: the token endpoint was asked %v, basic %v", c, r.PostForm, basic)
		}
		before := a.grants.Load()
		a.token.Add(1) // earlier tokens are not valid any more
		if err := callHello(t, set, entry); err != nil || a.grants.Load() != before+1 {
			t.Errorf("after the token has changed: %v, asked for %d times", err, a.grants.Load()-before)
		}
	}
}

// The client's secret is not sent to an authorization server that only the MCP
// server vouches for.
func TestMCPAuthorizationIsHeldToThePolicy(t *testing.T) {
	t.Parallel()
	a := newAuthorized(t, ``)
	set := newSet(t, `{"secrets": {"env": ["CLIENT"]}, "mcp_servers": {"wiki": {"url": "`+a.url+`/mcp", "auth": {"type": "oauth2", "env_var": "CLIENT"}}}}`, env("CLIENT", "me:s3cret"))
	err := callHello(t, set, &aaif.Tool{Name: "hello", Protocol: aaif.ProtocolMCP, Endpoint: "mcp://wiki/hello"})
	if err == nil || !strings.Contains(err.Error(), "its credential cannot be read") || a.grants.Load() != 0 {
		t.Errorf("%v, asked for %d times", err, a.grants.Load())
	}
}
