package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/rest"
	"github.com/aeemesh/aeemesh/agents/tool/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// access allows a server of the test.
func access(t testing.TB, allow ...string) outbound.Access {
	t.Helper()
	p, err := outbound.New(outbound.Config{Allow: allow})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return outbound.Access{Policy: p}
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestConforms(t *testing.T) {
	t.Parallel()
	tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool {
		hold := make(chan struct{})
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch b {
			case tooltest.Fail:
				http.Error(w, tooltest.FailText, http.StatusInsufficientStorage)
			case tooltest.Hang:
				<-hold
			default:
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(body)
			}
		})
		t.Cleanup(func() { close(hold) }) // before the server is closed
		def := tooltest.Definition()
		tl, err := rest.New(&aaif.Tool{Name: def.Name, Description: def.Description, Protocol: aaif.ProtocolHTTP, ParametersSchema: def.Parameters,
			OutputSchema: def.Output, Endpoint: url}, access(t, url))
		if err != nil {
			t.Fatal(err)
		}
		return tl
	})
}

// seen is a request as a server saw it.
type seen struct {
	Method, URI, Body, Type, Key, Trace string
}

func TestRequests(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object","properties":{"id":{},"a":{},"b":{},"list":{},"o":{}}}`)
	var last atomic.Pointer[seen]
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		last.Store(&seen{r.Method, r.URL.RequestURI(), string(body), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key"), r.Header.Get("Traceparent")})
		w.WriteHeader(http.StatusNoContent)
	})
	acc := access(t, url)
	for _, tt := range []struct {
		endpoint, args string
		want           seen
	}{
		{"{U}/x", `{"a":1}`, seen{Method: "POST", URI: "/x", Body: `{"a":1}`, Type: "application/json"}},
		{"{U}", `{}`, seen{Method: "POST", URI: "/", Body: `{}`, Type: "application/json"}},
		{"post {U}/x", ``, seen{Method: "POST", URI: "/x", Body: `{}`, Type: "application/json"}},
		{"PUT  {U}/x/{id}", `{"id":"a b/c?d#e","a":9007199254740993}`, seen{Method: "PUT", URI: "/x/a%20b%2Fc%3Fd%23e", Body: `{"a":9007199254740993}`, Type: "application/json"}},
		{"PATCH {U}/x/{id}.json", `{"id":7}`, seen{Method: "PATCH", URI: "/x/7.json", Body: `{}`, Type: "application/json"}},
		{"GET {U}/x?fixed=1&l={a}", `{"a":"ü&=","b":true,"list":[1,"two",null],"o":{"k":1}}`, seen{Method: "GET", URI: `/x?fixed=1&l=%C3%BC%26%3D&b=true&list=1&list=two&list=null&o=%7B%22k%22%3A1%7D`}},
		{"GET {U}/x?l={a}&m={list}", `{"list":["p,q",2]}`, seen{Method: "GET", URI: `/x?m=p%2Cq%2C2`}},
		{"GET {U}/x?l={a}", `{"a":null,"b":null}`, seen{Method: "GET", URI: `/x`}},
		{"DELETE {U}/x/{id}", `{"id":"..."}`, seen{Method: "DELETE", URI: "/x/..."}},
		{"OPTIONS {U}/x", `{"b":false}`, seen{Method: "OPTIONS", URI: "/x?b=false"}},
		{"HEAD {U}/x/{id}/{a}", `{"id":"x","a":true}`, seen{Method: "HEAD", URI: "/x/x/true"}},
	} {
		tl, err := rest.New(&aaif.Tool{Name: "t", Description: "d", ParametersSchema: schema, Endpoint: strings.Replace(tt.endpoint, "{U}", url, 1)}, acc)
		if err != nil {
			t.Errorf("%s: %v", tt.endpoint, err)
			continue
		}
		ctx := tool.WithTrace(tool.WithKey(t.Context(), "key-1"), "traceparent", "00-1-2-01")
		tt.want.Key, tt.want.Trace = "key-1", "00-1-2-01"
		result, err := tl.Call(ctx, json.RawMessage(tt.args))
		if err != nil || string(result) != `{"status":204}` || *last.Load() != tt.want {
			t.Errorf("%s with %s:\n%+v, want\n%+v (%s, %v)", tt.endpoint, tt.args, *last.Load(), tt.want, result, err)
		}
	}
}

func TestArgumentsDoNotLeadElsewhere(t *testing.T) {
	t.Parallel()
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the server was asked for %s", r.URL) })
	schema := json.RawMessage(`{"type":"object","properties":{"id":{},"q":{}}}`)
	for endpoint, args := range map[string][]string{
		"GET {U}/a/{id}/b": {`{}`, `{"id":null}`, `{"id":""}`, `{"id":"."}`, `{"id":".."}`, `{"id":"../admin"}`, `{"id":"x/../../admin"}`, `{"id":"..\\admin"}`,
			`{"id":"%2e%2e"}`, `{"id":"%2e%2e%2fadmin"}`, `{"id":"%252e%252e%252fadmin"}`, `{"id":"..;/admin"}`, `{"id":"a\u0000b"}`, `{"id":"a\r\nX: y"}`,
			`{"id":[1]}`, `{"id":{"a":1}}`, `[]`, `1`, `nonsense`},
		"GET {U}/a/.{id}":  {`{"id":"."}`},
		"GET {U}/a?q={q}":  {`{"q":{"a":1}}`, `{"q":[[1]]}`},
		"POST {U}/{id}{q}": {`{"id":".","q":"."}`, `{"id":"%2","q":"e%2e"}`, `{"id":"%2e.%2","q":"fx"}`},
	} {
		tl, err := rest.New(&aaif.Tool{Name: "t", Description: "d", ParametersSchema: schema, Endpoint: strings.Replace(endpoint, "{U}", url, 1)}, access(t, url))
		if err != nil {
			t.Errorf("%s: %v", endpoint, err)
			continue
		}
		for _, a := range args {
			if result, err := tl.Call(t.Context(), json.RawMessage(a)); !errors.Is(err, tool.ErrInvalidArguments) {
				t.Errorf("%s with %s: %s, %v", endpoint, a, result, err)
			}
		}
	}
}

// An argument that the document does not declare adds no second value to a parameter of the endpoint:
// some servers take the last one.
func TestArgumentsDoNotRepeatParametersOfTheEndpoint(t *testing.T) {
	t.Parallel()
	var uri atomic.Pointer[string]
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { u := r.URL.RequestURI(); uri.Store(&u) })
	schema := json.RawMessage(`{"type":"object","properties":{"q":{},"tag":{}}}`)
	for _, tt := range []struct{ endpoint, args, want string }{ // want is "" if the call is refused
		{"GET {U}/x?tenant=acme&q={q}", `{"q":"a","tenant":"other"}`, ""},
		{"GET {U}/x?%74enant=acme", `{"tenant":"other"}`, ""},
		{"DELETE {U}/x?tenant", `{"Tenant":"other"}`, ""},
		{"GET {U}/x?p={q}", `{"q":"a","p":"b"}`, ""},
		{"GET {U}/x?tenant=acme&q={q}", `{"q":"a","more":1}`, "/x?tenant=acme&q=a&more=1"},
		{"GET {U}/x?q={q}", `{"q":"a"}`, "/x?q=a"},
		{"GET {U}/x?tag=a", `{"tag":"b"}`, "/x?tag=a&tag=b"}, // the document declares it
		{"POST {U}/x?tenant=acme", `{"tenant":"other"}`, "/x?tenant=acme"},
	} {
		tl, err := rest.New(&aaif.Tool{Name: "t", Description: "d", ParametersSchema: schema, Endpoint: strings.Replace(tt.endpoint, "{U}", url, 1)}, access(t, url))
		if err != nil {
			t.Fatal(err)
		}
		switch _, err := tl.Call(t.Context(), json.RawMessage(tt.args)); {
		case tt.want == "" && !errors.Is(err, tool.ErrInvalidArguments):
			t.Errorf("%s with %s: %v, %s", tt.endpoint, tt.args, err, *uri.Load())
		case tt.want != "" && (err != nil || *uri.Load() != tt.want):
			t.Errorf("%s with %s: %v, %s", tt.endpoint, tt.args, err, *uri.Load())
		}
	}
}

func TestEndpointsThatAreRefused(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object","properties":{"id":{},"host":{}}}`)
	acc := access(t, "api.example.com", "https://docs.example/v1")
	for endpoint, want := range map[string]string{
		"":                                                     "no URL",
		"api.example.com/x":                                    "no URL",
		"FETCH https://api.example.com/":                       "no method",
		"https://{host}/":                                      "not into the host",
		"https://{host}.example.com/":                          "not into the host",
		"https://api.example.com:{id}/":                        "not into the host",
		"{host}://api.example.com/":                            "not into the host",
		"https://api.example.com/{+id}":                        "a place is",
		"https://api.example.com/{id":                          "a place is",
		"https://api.example.com/?{?id,host}":                  "a place is",
		"https://api.example.com/{missing}":                    "no property",
		"https://other.example.com/":                           `add "other.example.com" to outbound.allow`,
		"http://api.example.com/":                              "plain http",
		"https://docs.example/v2/{id}":                         "not allowed",
		"https://docs.example/v1/../v2":                        "not allowed",
		"https://user:pw@api.example.com/":                     "user name",
		"GET https://api.example.com@127.0.0.1/":               "user name",
		"GET https://api.example.com/ x":                       "",
		"https://api.example.com/" + strings.Repeat("x", 5000): "bytes",
	} {
		_, err := rest.Open(&aaif.Tool{Name: "t", Description: "d", ParametersSchema: schema, Endpoint: endpoint}, acc)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", endpoint, err, want)
		}
	}
	// Without any permission nothing can be opened.
	if _, err := rest.Open(&aaif.Tool{Name: "t", Description: "d", Endpoint: "https://api.example.com/"}, outbound.Access{}); !errors.Is(err, outbound.ErrRefused) {
		t.Error(err)
	}
}

// Unsupported settings of an auth block are an error of Open, not of a call.
func TestMTLSOverPlainHTTPIsRefused(t *testing.T) {
	t.Parallel()
	acc := access(t, "http://api.example.com", "api.example.com")
	auth := &aaif.Auth{Type: aaif.AuthMTLS, EnvVar: "T"}
	for endpoint, want := range map[string]string{"http://api.example.com/": "mtls needs https", "https://api.example.com/": ""} {
		_, err := rest.Open(&aaif.Tool{Name: "t", Description: "d", Endpoint: endpoint, Auth: auth}, acc)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status     int
		kind, body string
		want       string // the result
		fails      string
		as         error
	}{
		{200, "application/json", ` {"a": 1} `, `{"a": 1}`, "", nil},
		{201, "application/vnd.api+json; charset=utf-8", `[1]`, `[1]`, "", nil},
		{200, "text/plain", `{"a":1}`, `{"a":1}`, "", nil},
		{200, "text/plain", "hi", `{"content_type":"text/plain","text":"hi"}`, "", nil},
		{200, "text/plain; charset=iso-8859-1", "gr\xfc\xdfe", `{"content_type":"text/plain","text":"grüße"}`, "", nil},
		{200, "text/plain; charset=windows-1252", "5 \x80 \x96 \x93na\xefve\x94", `{"content_type":"text/plain","text":"5 € – “naïve”"}`, "", nil},
		{200, "text/html", "<b>\xff", `{"content_type":"text/html","text":"<b>` + "\uFFFD" + `"}`, "", nil},
		{200, "image/png", "\x89PNG", `{"bytes":4,"content_type":"image/png"}`, "", nil},
		{202, "application/json", "", `{"status":202}`, "", nil},
		{200, "application/json", "{", "", "says that it is JSON", tool.ErrFailed},
		{200, "application/json", "\"\xff\"", "", "says that it is JSON", tool.ErrFailed},
		{404, "application/json", `{"message":"no such order"}`, "", `404 Not Found: "no such order"`, tool.ErrFailed},
		{400, "application/problem+json", `{"title":"Bad","detail":"id is\n\u0007 too   long"}`, "", `400 Bad Request: "id is too long"`, tool.ErrFailed},
		{422, "application/json", `{"errors":[{"msg":"field required"}]}`, "", `"field required"`, tool.ErrFailed},
		{500, "application/json", `{"error":{"message":"boom"}}`, "", `"boom"`, tool.ErrFailed},
		{500, "text/html", `<html>secrets of the stack</html>`, "", `the server answered 500 Internal Server Error`, tool.ErrFailed},
		{502, "text/plain", strings.Repeat("ä", 3000), "", strings.Repeat("ä", 500) + `…"`, tool.ErrFailed},
		{429, "text/plain", "slow down", "", `429 Too Many Requests: "slow down"`, tool.ErrUnavailable},
		{304, "", "", "", "304 Not Modified", tool.ErrFailed},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{tt.kind}
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		})
		tl, err := rest.New(&aaif.Tool{Name: "t", Description: "d", Endpoint: url}, access(t, url))
		if err != nil {
			t.Fatal(err)
		}
		result, err := tl.Call(t.Context(), nil)
		if tt.as == nil && (err != nil || string(result) != tt.want) {
			t.Errorf("%d %s %.20q: %s, %v; want %s", tt.status, tt.kind, tt.body, result, err, tt.want)
		}
		if tt.as != nil && (!errors.Is(err, tt.as) || !strings.Contains(err.Error(), tt.fails) || len(err.Error()) > 3000) {
			t.Errorf("%d %s %.20q: %s, %v; want %v that says %q", tt.status, tt.kind, tt.body, result, err, tt.as, tt.fails)
		}
	}
}

func TestRetryAfterIsHonouredOnceWhereItIsSafe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method, retryAfter string
		fails              int32 // times
		asked              int32
		ok                 bool
	}{
		{"GET", "1", 1, 2, true},
		{"PUT", "1", 9, 2, false},
		{"POST", "1", 1, 1, false},
		{"GET", "", 1, 1, false},
		{"GET", "3600", 1, 1, false},
	} {
		t.Run(tt.method+tt.retryAfter, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) <= tt.fails {
					w.Header().Set("Retry-After", tt.retryAfter)
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			tl, err := rest.New(&aaif.Tool{Name: "t", Description: "d", Endpoint: tt.method + " " + url}, access(t, url))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = tl.Call(t.Context(), nil); (err == nil) != tt.ok || asked.Load() != tt.asked {
				t.Errorf("asked %d times, %v", asked.Load(), err)
			}
			if tl.RepeatSafe() != (tt.method != "POST") {
				t.Error("repeat safe", tl.RepeatSafe())
			}
		})
	}
}

func TestServersThatAreNotThere(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	tl, err := rest.New(&aaif.Tool{Name: "t", Description: "d", Endpoint: s.URL}, access(t, s.URL))
	if err != nil {
		t.Fatal(err)
	}
	_, err = tl.Call(t.Context(), nil)
	if !errors.Is(err, tool.ErrUnavailable) || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("%v; want it unavailable, without the address", err)
	}
}

// one is a limiter that permits one call.
type one struct{ made int }

func (l *one) Take(context.Context, int) (func(context.Context), error) {
	if l.made == 1 {
		return nil, &tool.Error{Kind: tool.ErrBusy}
	}
	l.made++
	return func(context.Context) { l.made-- }, nil
}
func (l *one) Spent(context.Context, int) {}

// A call that was answered with a redirect counts against the rate limit, and its error does not
// suggest a retry.
func TestACallThatWasRedirectedCounts(t *testing.T) {
	t.Parallel()
	var orders atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		orders.Add(1)
		http.Redirect(w, r, "https://forbidden.example/orders/1", http.StatusSeeOther)
	})
	tl, err := rest.New(&aaif.Tool{Name: "order", Description: "d", Endpoint: "POST " + url}, access(t, url))
	if err != nil {
		t.Fatal(err)
	}
	limited := tool.Limited(tl, new(one))
	_, err = limited.Call(t.Context(), nil)
	if !errors.Is(err, tool.ErrFailed) || !errors.Is(err, outbound.ErrRefused) || !strings.Contains(err.Error(), "may have been done") || strings.Contains(err.Error(), "forbidden.example") {
		t.Errorf("%v; want it failed, without the address", err)
	}
	if _, err := limited.Call(t.Context(), nil); !errors.Is(err, tool.ErrBusy) || orders.Load() != 1 {
		t.Errorf("the second call: %v, %d orders; want it limited", err, orders.Load())
	}
}

// A call is sent once if its connection ends before an answer, also over a connection that an earlier
// call used: net/http repeats a request with an Idempotency-Key there, and whether the server did the
// first one is not known.
func TestACallIsSentOnceOverAConnectionThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "PATCH", "PUT", "DELETE"} {
		for _, closes := range []bool{false, true} { // the server's listener: a second request could not be sent
			var calls, orders atomic.Int32
			var key atomic.Value
			var srv *httptest.Server
			srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				key.Store(r.Header.Get("Idempotency-Key"))
				if calls.Add(1) == 1 {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				orders.Add(1)
				if closes {
					_ = srv.Listener.Close()
				}
				panic(http.ErrAbortHandler)
			}))
			t.Cleanup(srv.Close)
			tl, err := rest.New(&aaif.Tool{Name: "order", Description: "d", Endpoint: method + " " + srv.URL}, access(t, srv.URL))
			if err != nil {
				t.Fatal(err)
			}
			ctx := tool.WithKey(t.Context(), "k")
			if _, err := tl.Call(ctx, nil); err != nil || key.Load() != "k" {
				t.Fatalf("%s: the first call, under the key %v: %v", method, key.Load(), err)
			}
			_, err = tl.Call(ctx, nil)
			var failed *tool.Error
			if !errors.As(err, &failed) || failed.NotMade || strings.Contains(err.Error(), "not made") || orders.Load() != 1 || key.Load() != "k" {
				t.Errorf("%s, closed: %t: %v after %d orders under the key %v", method, closes, err, orders.Load(), key.Load())
			}
		}
	}
}

// A call for which there was no connection or no credential was not made, and does not
// count against the rate limit; one that the server refused does.
func TestCallsThatWereNotMadeDoNotCount(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	var calls atomic.Int32
	busy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusTooManyRequests)
	})
	for name, c := range map[string]struct {
		url    string
		auth   *aaif.Auth
		counts int
	}{
		"no server":     {gone.URL, nil, 0},
		"no credential": {busy, &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "NOT_SET"}, 0},
		"too many":      {busy, nil, 1},
	} {
		tl, err := rest.New(&aaif.Tool{Name: "order", Description: "d", Endpoint: "POST " + c.url, Auth: c.auth}, access(t, c.url))
		if err != nil {
			t.Fatal(err)
		}
		var made one
		_, err = tool.Limited(tl, &made).Call(t.Context(), nil)
		var failed *tool.Error
		if !errors.As(err, &failed) || failed.NotMade != (c.counts == 0) || made.made != c.counts {
			t.Errorf("%s: %v; %d calls count, want %d", name, err, made.made, c.counts)
		}
	}
	tl, err := rest.New(&aaif.Tool{Name: "order", Description: "d", Endpoint: "GET " + busy + "/{id}", ParametersSchema: json.RawMessage(`{"properties":{"id":{}}}`)}, access(t, busy))
	if err != nil {
		t.Fatal(err)
	}
	var made one
	if _, err := tool.Limited(tl, &made).Call(t.Context(), json.RawMessage(`{"id":".."}`)); !errors.Is(err, tool.ErrInvalidArguments) || made.made != 0 {
		t.Errorf("arguments of which no URL is made: %v; %d calls count", err, made.made)
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls reached the server", calls.Load())
	}
}

func FuzzTemplate(f *testing.F) {
	p, err := outbound.New(outbound.Config{Allow: []string{"api.example.com"}})
	if err != nil {
		f.Fatal(err)
	}
	schema := json.RawMessage(`{"type":"object","properties":{"id":{},"q":{}}}`)
	f.Add("GET https://api.example.com/{id}?q={q}", "..", "x")
	f.Add("https://api.example.com/a/{id}.{q}", "%2e%2e", "/")
	f.Add("PUT https://api.example.com/?{q}={id}", "a&b", "#")
	f.Add("https://api.example.com/café/{id}", "a/b", "")
	f.Add("https://api.example.com/a b|\x96/{id}.{q}", "((", "/")
	f.Fuzz(func(t *testing.T, endpoint, id, q string) {
		tl, err := rest.New(&aaif.Tool{Name: "t", Description: "d", ParametersSchema: schema, Endpoint: endpoint}, outbound.Access{Policy: p})
		if err != nil {
			return
		}
		args, _ := json.Marshal(map[string]string{"id": id, "q": q})
		u, err := tl.URLOf(args)
		if err != nil {
			return
		}
		// Whatever is filled in, the URL keeps the host and the fixed part of the path.
		if u.Hostname() != "api.example.com" && !strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), "api.example.com") || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q with %s leads to %s", endpoint, args, u)
		}
		if plain, err := rest.New(&aaif.Tool{Name: "t", Description: "d", ParametersSchema: schema, Endpoint: endpoint}, outbound.Access{Policy: p}); err != nil {
			t.Fatalf("%q is taken, and then not: %v, %v", endpoint, plain, err)
		}
		path, _, _ := strings.Cut(endpoint, "?")
		if _, rest, ok := strings.Cut(path, "://"); ok && strings.Count(rest, "/") > 0 {
			if got, want := strings.Count(u.EscapedPath(), "/"), strings.Count(strings.Split(rest, "#")[0], "/"); got != want {
				t.Fatalf("%q with %s has %d segments, want %d: %s", endpoint, args, got, want, u)
			}
		}
	})
}

func TestCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	url := serve(t, func(http.ResponseWriter, *http.Request) { <-hold })
	t.Cleanup(func() { close(hold) })
	tl, err := rest.New(&aaif.Tool{Name: "t", Description: "d", Endpoint: url}, access(t, url))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if _, err := tl.Call(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
