//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// The endpoints that a document may name, and those that are refused without any request.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	servers, err := mcp.NewServers(mcp.Config{
		Servers: map[string]mcp.Server{
			"calc": {Command: []string{"calc", "--fast"}, Tools: []string{"add", "sub*"}},
			"wiki": {URL: "https://wiki.example.com/mcp"},
		},
		Allow: func(endpoint string) error {
			if strings.HasPrefix(endpoint, "https://open.example.com/") || strings.HasPrefix(endpoint, "wss://open.example.com/") {
				return nil
			}
			return errors.New("the policy says no")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	for endpoint, want := range map[string]string{
		"mcp://calc/add":                       "",
		"mcp://calc":                           "",
		"mcp://calc/":                          "",
		"mcp://calc/*":                         "",
		"mcp://calc/subtract":                  "",
		"MCP://calc/add":                       "",
		"mcp://wiki/any%20thing":               "",
		"stdio:calc --fast":                    "",
		"stdio://calc%20--fast#add":            "",
		"https://wiki.example.com/mcp#search":  "",
		"https://open.example.com/mcp":         "",
		"wss://open.example.com/mcp#a*":        "",
		"":                                     "needs an endpoint",
		"calc":                                 "want mcp://SERVER/TOOL",
		"mcp:calc/add":                         "want mcp://SERVER/TOOL",
		"mcp:///add":                           "want mcp://SERVER/TOOL",
		"mcp://calc/%zz":                       "want mcp://SERVER/TOOL",
		"mcp://Calc/add":                       "there are calc, wiki",
		"mcp://calc/multiply":                  "no tool \"multiply\"",
		"stdio:calc":                           "cannot have a program run",
		"stdio:calc --fast --more":             "cannot have a program run",
		"stdio:sh -c 'calc --fast'":            "cannot have a program run",
		"stdio:":                               "cannot have a program run",
		"https://wiki.example.com/mcp2":        "the policy says no",
		"http://open.example.com/mcp":          "the policy says no",
		"https://user:pass@open.example.com/x": "credential",
		"https:///mcp":                         "no host",
		"ftp://open.example.com/":              "not spoken over",
		"file:///etc/passwd":                   "not spoken over",
		"https://open.example.com/#%zz":        "fragment",
	} {
		_, err := servers.Open(&aaif.Tool{Name: "x", Protocol: aaif.ProtocolMCP, Endpoint: endpoint})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: the error tells the credential", endpoint)
		}
	}
}

// Entries of one program with different credentials: an address means the same one each time.
func TestAnAddressOfSeveralEntriesMeansTheFirstByName(t *testing.T) {
	t.Parallel()
	cfg := mcp.Config{Servers: map[string]mcp.Server{}}
	for i := range 8 {
		only := []string{fmt.Sprintf("tool%d", i)}
		cfg.Servers[fmt.Sprintf("calc%d", i)] = mcp.Server{Command: []string{"calc"}, Tools: only}
		cfg.Servers[fmt.Sprintf("wiki%d", i)] = mcp.Server{URL: "https://wiki.example.com/mcp", Tools: only}
	}
	servers, err := mcp.NewServers(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	for range 20 {
		for _, endpoint := range []string{"stdio:calc#tool0", "https://wiki.example.com/mcp#tool0"} {
			if _, err := servers.Open(&aaif.Tool{Name: "x", Protocol: aaif.ProtocolMCP, Endpoint: endpoint}); err != nil {
				t.Fatalf("%s: %v", endpoint, err)
			}
		}
	}
}

func TestServersAreChecked(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]mcp.Server{
		"it needs a command or a url":            {},
		"both a command and a url":               {Command: []string{"x"}, URL: "https://x"},
		"the program is empty":                   {Command: []string{""}},
		"command[1]: has a NUL":                  {Command: []string{"x", "\x00"}},
		"env[0]: it is NAME":                     {Command: []string{"x"}, Env: []string{"=secret"}},
		"the scheme \"ftp\"":                     {URL: "ftp://x"},
		"a credential has no place in it":        {URL: "https://a:b@x"},
		"auth and transport are for a url":       {Command: []string{"x"}, Auth: &aaif.Auth{}},
		"env and dir are for a command":          {URL: "https://x", Dir: "/"},
		"transport \"pigeon\"":                   {URL: "https://x", Transport: "pigeon"},
		"tools[0]: \"a*b\"":                      {Command: []string{"x"}, Tools: []string{"a*b"}},
		"mcp server \"it\": url: it has no host": {URL: "https://"},
	} {
		_, err := mcp.NewServers(mcp.Config{Servers: map[string]mcp.Server{"it": s}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := mcp.NewServers(mcp.Config{Servers: map[string]mcp.Server{"a/b": {Command: []string{"x"}}}}); err == nil {
		t.Error("a name with a slash is accepted")
	}
}

// A program gets the basic variables and the listed ones; other output than messages does no harm.
func TestProgramsEnvironmentAndOutput(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"PATH": "/usr/bin:/bin", "HOME": "/home/x", "LISTED": "1", "SECRET": "2"}
	var log strings.Builder
	servers := newServers(t, mcp.Server{Command: self(t, "chatter"), Env: []string{"LISTED", "SET=3", "ABSENT"}}, func(c *mcp.Config) {
		c.Env = func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	result, err := tools(t, open(t, servers, "mcp://it"))["environment"].Call(t.Context(), json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	var text string
	if err := json.Unmarshal(result, &text); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(text, "\n")
	slices.Sort(got)
	if want := []string{"HOME=/home/x", "LISTED=1", "PATH=/usr/bin:/bin", "SET=3"}; !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
	servers.Close()
	if said := log.String(); !strings.Contains(said, "xxxx") || strings.Count(said, "x") > 1100 {
		t.Errorf("%d characters of standard error in the log, want 1 KiB of the line", strings.Count(said, "x"))
	}
}

// Servers with a credential, refused ones, and answers beyond the bounds.
func TestHTTPServersAnswers(t *testing.T) {
	t.Parallel()
	s := newServer("", nil)
	s.AddTool(&sdk.Tool{Name: "large", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: strings.Repeat("x", 100_000)}}}, nil
	})
	srv := serveHTTP(t, s, nil)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	var status atomic.Int32
	status.Store(http.StatusOK)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := int(status.Load()); code != http.StatusOK {
			http.Error(w, "no", code)
			return
		}
		req, _ := http.NewRequestWithContext(r.Context(), r.Method, srv.URL+r.URL.Path, r.Body)
		req.Header = r.Header
		resp, err := transport.RoundTrip(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		buf := make([]byte, 32<<10)
		for {
			n, err := resp.Body.Read(buf)
			w.Write(buf[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	servers := newServers(t, mcp.Server{URL: front.URL + "/mcp"}, func(c *mcp.Config) { c.MaxMessage = 50_000 })
	byName := tools(t, open(t, servers, "mcp://it"))
	if _, err := byName["large"].Call(t.Context(), json.RawMessage(`{}`)); err == nil {
		t.Error("an answer beyond the bound is accepted")
	}
	for code, want := range map[int]tool.Kind{
		http.StatusUnauthorized:       tool.ErrFailed,
		http.StatusTooManyRequests:    tool.ErrUnavailable,
		http.StatusServiceUnavailable: tool.ErrUnavailable,
	} {
		eventually(t, "a session", func() bool {
			status.Store(http.StatusOK)
			_, err := byName["subject"].Call(t.Context(), json.RawMessage(`{}`))
			return err == nil
		})
		status.Store(int32(code))
		if _, err := byName["subject"].Call(t.Context(), json.RawMessage(`{}`)); !errors.Is(err, want) {
			t.Errorf("status %d: %v, want %v", code, err, want)
		}
	}
	status.Store(http.StatusForbidden)
	refused := newServers(t, mcp.Server{URL: front.URL + "/mcp?key=k3y"})
	if _, err := open(t, refused, "mcp://it").Tools(t.Context()); !errors.Is(err, tool.ErrUnavailable) || !strings.Contains(err.Error(), "refuses the credentials") || strings.Contains(err.Error(), "k3y") {
		t.Errorf("a server that refuses: %v", err)
	}
	status.Store(http.StatusOK)
}

// The older transport is used by itself if the server supports no other.
func TestOlderServersAreFound(t *testing.T) {
	t.Parallel()
	srv := serveHTTP(t, newServer("", nil), nil)
	byName := tools(t, open(t, newServers(t, mcp.Server{URL: srv.URL + "/sse"}), "mcp://it"))
	if got, err := byName["subject"].Call(t.Context(), json.RawMessage(`{"n":1}`)); err != nil || string(got) != `{"n":1}` {
		t.Errorf("result %s, error %v", got, err)
	}
}

// The annotations of a server that a document names itself do not count.
func TestOnlyListedServersAreBelieved(t *testing.T) {
	t.Parallel()
	s := newServer("", nil)
	s.AddTool(&sdk.Tool{Name: "read", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
	url := serveHTTP(t, s, nil).URL + "/mcp"
	for name, tt := range map[string]struct {
		server   mcp.Server
		endpoint string
		want     bool
	}{
		"listed":    {mcp.Server{URL: url}, "mcp://it/*", true},
		"untrusted": {mcp.Server{URL: url, Untrusted: true}, "mcp://it/*", false},
		"unlisted":  {mcp.Server{Command: []string{"x"}}, url + "#*", false},
	} {
		servers := newServers(t, tt.server, func(c *mcp.Config) { c.Allow = func(string) error { return nil } })
		byName := tools(t, open(t, servers, tt.endpoint))
		if got := tool.IsRepeatSafe(byName["read"]); got != tt.want || tool.IsRepeatSafe(byName["subject"]) {
			t.Errorf("%s: safe to repeat %v, want %v", name, got, tt.want)
		}
	}
}

// For a list without an end, the number of requested pages is bounded.
func TestAListIsReadWithinItsBound(t *testing.T) {
	t.Parallel()
	var pages atomic.Int32
	s := newServer("", nil)
	s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if method != "tools/list" {
				return next(ctx, method, req)
			}
			n := fmt.Sprint(pages.Add(1))
			schema := map[string]any{"type": "object", "title": strings.Repeat("x", 1<<20)}
			return &sdk.ListToolsResult{NextCursor: n, Tools: []*sdk.Tool{{Name: "t" + n, InputSchema: schema}}}, nil
		}
	})
	srv := serveHTTP(t, s, nil)
	servers := newServers(t, mcp.Server{URL: srv.URL + "/mcp"})
	if got, asked := len(tools(t, open(t, servers, "mcp://it"))), pages.Load(); got != 3 || asked != 4 {
		t.Errorf("%d tools of 1 MiB from %d pages, within a bound of 4 MiB", got, asked)
	}
}

// listedAs answers requests for pages of a list: each page has one tool with a description of 1 MiB,
// and a cursor that has never been used.
func listedAs(page int64) string {
	return fmt.Sprintf(`{"resultType":"complete","nextCursor":"c%d","tools":[{"name":"t%d","description":"%s","inputSchema":{"type":"object"}}]}`, page, page, strings.Repeat("x", 1<<20))
}

// What is not kept of a list counts, too, because the SDK keeps it.
func TestAListIsReadWithinABoundOfWhatIsReceived(t *testing.T) {
	if testing.Short() {
		t.Skip("lists of megabytes take seconds with the race detector")
	}
	t.Parallel()
	var pages atomic.Int64
	srv := httptest.NewServer(modern{func(_ http.ResponseWriter, _ *http.Request, method string, _ json.RawMessage) string {
		if method != "tools/list" {
			return ""
		}
		return listedAs(pages.Add(1))
	}})
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	servers := newServers(t, mcp.Server{URL: srv.URL})
	if got, asked := len(tools(t, open(t, servers, "mcp://it"))), pages.Load(); got != 8 || asked != 8 {
		t.Errorf("%d tools of %d pages of 1 MiB, within a bound of 8 MiB", got, asked)
	}
}

// failToList lists the tools of a server until that has failed four times.
func failToList(t *testing.T, srv *httptest.Server, failed *atomic.Int64) {
	t.Helper()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	src := open(t, newServers(t, mcp.Server{URL: srv.URL}), "mcp://it")
	eventually(t, "four lists that fail", func() bool {
		if _, err := src.Tools(t.Context()); err == nil {
			t.Error("a list without its last page")
		}
		return failed.Load() >= 4
	})
}

// The SDK keeps the pages of lists that fail as long as the session lasts: the session ends before
// they become many.
func TestListsThatFailAreNotKept(t *testing.T) {
	if testing.Short() {
		t.Skip("lists of megabytes take seconds with the race detector")
	}
	t.Parallel()
	var pages, failed, inSession, most atomic.Int64
	srv := httptest.NewServer(modern{func(w http.ResponseWriter, _ *http.Request, method string, _ json.RawMessage) string {
		switch method {
		case "server/discover":
			inSession.Store(0)
		case "tools/list":
			n := pages.Add(1)
			if n%5 == 0 {
				failed.Add(1)
				w.WriteHeader(http.StatusServiceUnavailable)
				return "null"
			}
			if now := inSession.Add(1); now > most.Load() {
				most.Store(now)
			}
			return listedAs(n)
		}
		return ""
	}})
	failToList(t, srv, &failed)
	if n := most.Load(); n > 12 {
		t.Errorf("the pages of one session have %d MiB, want at most the 8 MiB of one list and those of the last one", n)
	}
}

// A page that is listed again replaces the one that the SDK keeps: the session stays.
func TestAListThatFailsAgainAndAgainEndsNoSession(t *testing.T) {
	if testing.Short() {
		t.Skip("lists of megabytes take seconds with the race detector")
	}
	t.Parallel()
	var failed, sessions atomic.Int64
	page := strings.Replace(listedAs(1), strings.Repeat("x", 1<<20), strings.Repeat("x", 3<<20), 1)
	srv := httptest.NewServer(modern{func(w http.ResponseWriter, _ *http.Request, method string, p json.RawMessage) string {
		switch {
		case method == "server/discover":
			sessions.Add(1)
		case method == "tools/list" && strings.Contains(string(p), `"cursor":"`):
			failed.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return "null"
		case method == "tools/list":
			return page
		}
		return ""
	}})
	failToList(t, srv, &failed)
	if n := sessions.Load(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
}
