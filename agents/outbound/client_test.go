package outbound

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t testing.TB, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return parsed(t, s.URL)
}

func parsed(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func newClient(t testing.TB, p *Policy, o Options) *http.Client {
	t.Helper()
	c, err := p.Client(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(t testing.TB, c *http.Client, u string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(body)), err
}

// nameServer answers every question with the addresses that next gives, over real
// DNS.
func nameServer(t *testing.T, next func(name string) []netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) == 0 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			q := m.Questions[0]
			for _, ip := range next(q.Name.String()) {
				h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0}
				switch {
				case q.Type == dnsmessage.TypeA && ip.Is4():
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}})
				case q.Type == dnsmessage.TypeAAAA && ip.Is6():
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
				}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	})
	t.Cleanup(func() { conn.Close(); wg.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// Names are checked by what they stand for when a connection is made.
func TestNamesOfPrivateAddressesAreRefused(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	u := serve(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	addresses := map[string][]netip.Addr{
		"loop.example.":      {netip.MustParseAddr("127.0.0.1")},
		"mapped.example.":    {netip.MustParseAddr("::ffff:127.0.0.1")},
		"six.example.":       {netip.MustParseAddr("::1")},
		"meta.example.":      {netip.MustParseAddr("169.254.169.254")},
		"nat64.example.":     {netip.MustParseAddr("64:ff9b::7f00:1")},
		"sixtofour.example.": {netip.MustParseAddr("2002:7f00:1::1")},
		"ten.example.":       {netip.MustParseAddr("10.0.0.1")},
		"zero.example.":      {netip.MustParseAddr("0.0.0.0")},
		"several.example.":   {netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fe80::1")},
		"allowed.example.":   {netip.MustParseAddr("127.0.0.1")},
	}
	resolver := nameServer(t, func(name string) []netip.Addr { return addresses[name] })
	var allow []string
	for name := range addresses {
		allow = append(allow, "http://"+strings.TrimSuffix(name, ".")+":"+u.Port())
	}
	p := newPolicy(t, Config{Allow: allow, Private: []string{"allowed.example"}, Resolver: resolver})
	c := newClient(t, p, Options{})
	for name := range addresses {
		target := "http://" + strings.TrimSuffix(name, ".") + ":" + u.Port() + "/"
		_, err := get(t, c, target)
		if name == "allowed.example." {
			if err != nil || reached.Load() != 1 {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v; want it refused", name, err)
		}
		_, err = Access{Policy: p}.Call(t.Context(), c, Request{Method: "GET", URL: parsed(t, target)})
		var f *Failure
		if !errors.As(err, &f) || f.Reason != ReasonRefused || strings.Contains(f.Message, "1") {
			t.Errorf("%s: what the model is told: %v", name, err)
		}
	}
	if reached.Load() != 1 {
		t.Errorf("the server was reached %d times", reached.Load())
	}
}

// A name that stands for a permitted address when it is looked up first, and for another when it is
// looked up again.
func TestDNSRebindingChangesNothing(t *testing.T) {
	t.Parallel()
	var reached, asked atomic.Int32
	u := serve(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	p := newPolicy(t, Config{
		Allow: []string{"http://rebind.example:" + u.Port()}, Private: []string{"127.0.0.2"},
		Resolver: nameServer(t, func(string) []netip.Addr {
			if asked.Add(1) <= 2 { // one look-up: A and AAAA
				return []netip.Addr{netip.MustParseAddr("127.0.0.2")}
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		}),
	})
	target := "http://rebind.example:" + u.Port()
	if _, err := p.Check(target); err != nil { // no look-up: there is nothing to rebind
		t.Fatal(err)
	}
	if asked.Load() != 0 {
		t.Error("Check resolved the name")
	}
	c := newClient(t, p, Options{})
	if _, err := get(t, c, target); err == nil || errors.Is(err, ErrRefused) { // the server does not listen on the permitted address
		t.Errorf("the first: %v; want it connected to 127.0.0.2, in vain", err)
	}
	if _, err := get(t, c, target); !errors.Is(err, ErrRefused) {
		t.Errorf("the second: %v; want it refused", err)
	}
	if reached.Load() != 0 {
		t.Errorf("the server was reached %d times", reached.Load())
	}
}

// A client that needs no entry for what is public: names that stand for something
// inside are refused when it connects, and so are redirects there, unless an entry
// allows the endpoint and the address.
func TestPublicEndpointsNeedNoEntry(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	var u *url.URL
	u = serve(t, func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		switch r.URL.Path {
		case "/v1/inside":
			http.Redirect(w, r, "http://inside.example:"+u.Port()+"/", http.StatusTemporaryRedirect)
		case "/v1/literal":
			http.Redirect(w, r, "http://127.0.0.1:"+u.Port()+"/", http.StatusTemporaryRedirect)
		case "/v1/meta":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusTemporaryRedirect)
		}
	})
	loop := func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} }
	p := newPolicy(t, Config{
		Allow:    []string{"http://allowed.example:" + u.Port() + "/v1"},
		Private:  []string{"allowed.example", "private.example", "127.0.0.0/8"},
		Resolver: nameServer(t, loop),
	})
	c := newClient(t, p, Options{Public: true})
	for host, want := range map[string]string{
		"allowed.example/v1":         "",
		"allowed.example/v1/inside":  "to outbound.allow, and \"inside.example\" to outbound.private",
		"allowed.example/v1/literal": "plain http to 127.0.0.1",
		"allowed.example/v1/meta":    "metadata",
		"allowed.example/v2":         "loopback", // the entry is about another path, and its connections are not used
		"private.example":            "loopback", // an address that may be connected to, of an endpoint that is not allowed
		"inside.example":             "the address 127.0.0.1 of inside.example is loopback",
	} {
		name, path, _ := strings.Cut(host, "/")
		before := reached.Load()
		_, err := get(t, c, "http://"+name+":"+u.Port()+"/"+path)
		if want == "" {
			if err != nil || reached.Load() != before+1 {
				t.Errorf("%s: %v", host, err)
			}
			continue
		}
		redirected := int32(strings.Count(host, "/v1"))
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) || reached.Load() != before+redirected {
			t.Errorf("%s: %v, reached %d times; want %q", host, err, reached.Load()-before, want)
		}
	}
	g := c.Transport.(*guard)
	if way, err := g.way(parsed(t, "https://models.example/v1")); err != nil || way != http.RoundTripper(p.outside) {
		t.Errorf("a name that may be public: %v, %v", way, err)
	}
	var none *Policy
	if _, err := get(t, newClient(t, none, Options{Public: true}), u.String()); !errors.Is(err, ErrRefused) {
		t.Errorf("without a policy: %v", err)
	}
}

// What follows a redirect, and what does not.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var last atomic.Pointer[http.Request]
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		last.Store(r)
		_, _ = io.WriteString(w, "other")
	})
	var u *url.URL
	u = serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/away":
			http.Redirect(w, r, other.String()+"/x", http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/private":
			http.Redirect(w, r, "http://10.0.0.1/", http.StatusFound)
		case "/meta":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		case "/decimal":
			http.Redirect(w, r, "http://2130706433/", http.StatusFound)
		case "/stranger":
			http.Redirect(w, r, "https://evil.example/", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/user":
			http.Redirect(w, r, "http://u:p@"+u.Host+"/end", http.StatusFound)
		case "/end":
			last.Store(r)
			_, _ = io.WriteString(w, "end")
		}
	})
	p := newPolicy(t, Config{Allow: []string{u.String(), other.String()}})
	c := newClient(t, p, Options{})
	headers := http.Header{"X-Api-Key": {"k"}, "Authorization": {"a"}, "Cookie": {"c=1"}, "Idempotency-Key": {"i"}, "X-Own": {"o"}, "Accept": {"application/json"}, "Content-Type": {"text/plain"}}
	post := func(path string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.String()+path+"?secret=argument", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = headers.Clone()
		resp, err := c.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	if got, err := post("/same"); err != nil || got != "end" || last.Load().Header.Get("X-Api-Key") != "k" || last.Load().Header.Get("Idempotency-Key") != "i" || last.Load().Header.Get("Referer") != "" {
		t.Errorf("within an origin: %q, %v, %v", got, err, last.Load().Header)
	}
	if got, err := post("/away"); err != nil || got != "other" {
		t.Errorf("to another origin: %q, %v", got, err)
	}
	for name := range last.Load().Header {
		if !travels[name] && name != "Accept-Encoding" && name != "Content-Length" {
			t.Errorf("%s travels to another origin", name)
		}
	}
	for _, path := range []string{"/loop", "/private", "/meta", "/decimal", "/stranger", "/file", "/user"} {
		if got, err := post(path); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %q, %v; want it refused", path, got, err)
		}
	}
	// From https to http, also where both are allowed.
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.String(), http.StatusFound) }))
	t.Cleanup(secure.Close)
	roots := secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	p = newPolicy(t, Config{Allow: []string{parsed(t, secure.URL).Host, other.String()}, RootCAs: roots})
	if got, err := get(t, newClient(t, p, Options{}), secure.URL); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("from https to http: %q, %v", got, err)
	}
	if got, err := get(t, newClient(t, p, Options{NoRedirects: true}), secure.URL); err != nil || !strings.HasPrefix(got, "302") {
		t.Errorf("without redirects: %q, %v", got, err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = io.Copy(z, io.LimitReader(zeros{}, 64<<20))
	z.Close()
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/exact":
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		case "/stated":
			_, _ = io.WriteString(w, strings.Repeat("x", 1001))
		case "/chunked":
			for range 100 {
				_, _ = io.WriteString(w, strings.Repeat("x", 100))
				w.(http.Flusher).Flush()
			}
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		case "/deflate":
			w.Header().Set("Content-Encoding", "deflate")
			_, _ = io.WriteString(w, "x")
		case "/headers":
			w.Header().Set("X-Big", strings.Repeat("x", 128<<10))
		case "/cookie":
			w.Header().Set("Set-Cookie", "a=b; Path=/")
			_, _ = io.WriteString(w, r.Header.Get("Cookie"))
		}
	})
	p := newPolicy(t, Config{Allow: []string{u.String()}, MaxResponseBytes: 1000})
	c := newClient(t, p, Options{})
	if got, err := get(t, c, u.String()+"/exact"); err != nil || len(got) != 1004 {
		t.Errorf("exactly the bound: %d bytes, %v", len(got), err)
	}
	for _, path := range []string{"/stated", "/chunked", "/gzip"} {
		if _, err := get(t, c, u.String()+path); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v; want it too large", path, err)
		}
	}
	if _, err := get(t, c, u.String()+"/headers"); err == nil {
		t.Error("headers of 128 KiB are read")
	}
	for range 2 {
		if got, err := get(t, c, u.String()+"/cookie"); err != nil || got != "200 " {
			t.Errorf("a cookie came back: %q, %v", got, err)
		}
	}
	var f *Failure
	for path, reason := range map[string]Reason{"/gzip": ReasonTooLarge, "/deflate": ReasonBroken, "/headers": ReasonBroken} {
		if _, err := (Access{Policy: p}).Call(t.Context(), c, Request{Method: "GET", URL: parsed(t, u.String()+path)}); !errors.As(err, &f) || f.Reason != reason {
			t.Errorf("%s: %v, want %s", path, err, reason)
		}
	}
	// A stream has no bound.
	if got, err := get(t, newClient(t, p, Options{MaxResponse: -1, Timeout: -1}), u.String()+"/chunked"); err != nil || len(got) != 10_004 {
		t.Errorf("a stream: %d bytes, %v", len(got), err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A server that takes its time with the headers, or with the body, is cut off.
func TestSlowServersAreCutOff(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "x")
			w.(http.Flusher).Flush()
		}
		<-hold
	})
	drip, err := net.Listen("tcp", "127.0.0.1:0") // a header for ever
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := drip.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				// What comes before it is asked for breaks the connection.
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-")
				<-hold
			})
		}
	})
	t.Cleanup(func() { close(hold); drip.Close(); wg.Wait() })
	p := newPolicy(t, Config{Allow: []string{u.String(), "http://" + drip.Addr().String()}})
	for seconds, want := range map[float64]time.Duration{0: DefaultTimeout, 7: 7 * time.Second} {
		if c := newClient(t, newPolicy(t, Config{TimeoutSeconds: seconds}), Options{}); c.Timeout != want {
			t.Errorf("timeout_seconds %g: a client waits %v", seconds, c.Timeout)
		}
	}
	c := newClient(t, p, Options{Timeout: 50 * time.Millisecond})
	for _, target := range []string{u.String() + "/headers", u.String() + "/body", "http://" + drip.Addr().String() + "/"} {
		_, err := (Access{Policy: p}).Call(t.Context(), c, Request{Method: "GET", URL: parsed(t, target)})
		var f *Failure
		if !errors.As(err, &f) || f.Reason != ReasonTimeout {
			t.Errorf("%s: %v; want a timeout", target, err)
		}
	}
}

// A proxy of the environment would connect to an unchecked address.
func TestProxiesOfTheEnvironmentAreNotAsked(t *testing.T) {
	var asked atomic.Int32
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.String())
	}
	p := newPolicy(t, Config{Allow: []string{"http://nowhere.example"}, Resolver: nameServer(t, func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.0.0.1")} })})
	if _, err := get(t, newClient(t, p, Options{}), "http://nowhere.example/"); !errors.Is(err, ErrRefused) || asked.Load() != 0 {
		t.Errorf("%v, the proxy was asked %d times", err, asked.Load())
	}
	var none *Policy
	if _, err := get(t, newClient(t, none, Options{}), proxy.String()); !errors.Is(err, ErrRefused) {
		t.Errorf("without a policy: %v", err)
	}
}

func TestFilesAreReadBelowTheirFolders(t *testing.T) {
	t.Parallel()
	if _, _, err := (*Policy)(nil).ReadFile("x.json", 10); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	if _, _, err := newPolicy(t, Config{Files: []string{"policy_test.go"}}).ReadFile("policy.go", 1<<20); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	p := newPolicy(t, Config{Files: []string{"policy_test.go", "testdata"}})
	if data, _, err := p.ReadFile("policy_test.go", 1<<20); err != nil || len(data) == 0 {
		t.Error(err)
	}
	folder := t.TempDir()
	allowed, inner, other := filepath.Join(folder, "allowed"), filepath.Join(folder, "allowed", "inner"), filepath.Join(folder, "other")
	if err := errors.Join(os.MkdirAll(inner, 0o700), os.WriteFile(other, nil, 0o600), os.Symlink(other, filepath.Join(allowed, "link"))); err != nil {
		t.Fatal(err)
	}
	p = newPolicy(t, Config{Files: []string{"policy_test.go", allowed, t.TempDir()}})
	for _, name := range []string{other, "../other", inner + "/../../other", "file://elsewhere" + allowed + "/x", "file://" + other, "../policy_test.go"} {
		if _, _, err := p.ReadFile(name, 10); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v; want it refused", name, err)
		}
	}
	for name, want := range map[string]string{inner: "is not a file", "link": "escapes"} {
		if _, _, err := p.ReadFile(name, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	p = newPolicy(t, Config{Files: []string{"policy_test.go", "testdata"}})
	if _, _, err := p.ReadFile("policy_test.go", 10); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func FuzzCheck(f *testing.F) {
	p := newPolicy(f, Config{Allow: []string{"*", "https://api.example.com/v1"}})
	for _, seed := range []string{"https://a/", "https://127.1/", "https://[::ffff:7f00:1]/", "https://a\\@b/", "https://①/", "https://a%2f/", "https://xn--0/", "https://a.:443/.."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := p.Check(raw)
		if err != nil {
			if !errors.Is(err, ErrRefused) {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		// What is allowed is allowed in its one form, too, and is no private address.
		again, err := p.Check(u.String())
		if err != nil || again.String() != u.String() {
			t.Fatalf("%q becomes %s, and then %v, %v", raw, u, again, err)
		}
		if ip, err := netip.ParseAddr(u.Hostname()); err == nil && notPublic(ip) != "" {
			t.Fatalf("%q is allowed to reach %s", raw, ip)
		}
	})
}

// A server whose certificate is not trusted gets no request, and no secret: the error says what
// is wrong, and to the operator what to do.
func TestUntrustedCertificates(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request") }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	u := parsed(t, srv.URL)
	p := newPolicy(t, Config{Allow: []string{u.Host}})
	a := Access{Policy: p, Secrets: newSecrets("PAIR", "me:s3cret").set}
	for name, c := range map[string]struct {
		auth    *aaif.Auth
		message string
	}{
		"the endpoint":       {nil, "the server's certificate is of an unknown authority; the call was not made"},
		"the token endpoint": {&aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "PAIR", TokenURL: srv.URL + "/token"}, "its credential could not be read; the call was not made"},
	} {
		client := newClient(t, p, Options{Endpoint: u, Auth: c.auth, Secrets: a.Secrets})
		_, err := a.Call(t.Context(), client, Request{Method: http.MethodGet, URL: u, Again: true})
		var f *Failure
		if !errors.As(err, &f) || f.Message != c.message || !strings.Contains(err.Error(), "of an unknown authority") && !strings.Contains(err.Error(), "signed by unknown authority") || !strings.Contains(err.Error(), "outbound.ca_file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// net/http takes any request with one of these headers for idempotent, and repeats it when a used
// connection ends. The server gets the headers all the same, with HTTP/2 too, and after a redirect.
func TestNoHeaderMakesNetHTTPRepeatARequest(t *testing.T) {
	t.Parallel()
	for _, proto := range []int{1, 2} {
		var asked atomic.Int32
		var got atomic.Pointer[http.Request]
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch asked.Add(1) {
			case 1:
				http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
			case 2:
				got.Store(r)
			default:
				panic(http.ErrAbortHandler)
			}
		}))
		srv.EnableHTTP2 = proto == 2
		srv.StartTLS()
		t.Cleanup(srv.Close)
		p := newPolicy(t, Config{Allow: []string{srv.URL}, RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
		c := newClient(t, p, Options{})
		post := func() (*http.Request, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"Idempotency-Key": {"a"}, "X-Idempotency-Key": {"b", "c"}, "X-Own": {"o"}}
			resp, err := c.Do(req)
			if err == nil {
				resp.Body.Close()
			}
			return req, err
		}
		req, err := post()
		if err != nil {
			t.Fatal(err)
		}
		r := got.Load()
		if h := r.Header; r.ProtoMajor != proto || r.URL.Path != "/there" || h.Get("Idempotency-Key") != "a" || !slices.Equal(h["X-Idempotency-Key"], []string{"b", "c"}) || h.Get("X-Own") != "o" {
			t.Errorf("the server got by %s at %s: %v", r.Proto, r.URL, h)
		}
		if want := (http.Header{"Idempotency-Key": {"a"}, "X-Idempotency-Key": {"b", "c"}, "X-Own": {"o"}}); !reflect.DeepEqual(req.Header, want) {
			t.Errorf("the caller's own request was changed: %v", req.Header)
		}
		if _, err := post(); err == nil || asked.Load() != 3 {
			t.Errorf("HTTP/%d: %v after %d requests, want a failure after 3", proto, err, asked.Load())
		}
	}
}
