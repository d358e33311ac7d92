package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Limits of a connection.
const (
	dialTimeout = 10 * time.Second
	idleTimeout = 90 * time.Second
)

// Options are the settings of one client, which usually belongs to one tool.
type Options struct {
	// Endpoint is the URL that credentials are for: they are sent to its
	// scheme, host and port only. It is required if Auth names a credential.
	Endpoint *url.URL

	// Auth says how the credential is sent. Nil: no credential.
	Auth *aaif.Auth

	// Secrets reads the credential that Auth names: for each request that needs
	// it, and once more, with [secret.Fresh], if the endpoint refused it; with
	// mtls for each connection.
	Secrets *secret.Set

	// Discover finds the token endpoint for an Auth of type oauth2 without
	// token_url, when the endpoint first answers 401: refused is that answer,
	// and client enforces the policy. Default: such an Auth is an error.
	Discover func(ctx context.Context, refused *http.Response, client *http.Client) (Grant, error)

	// KeyIn and KeyName say where an api_key is sent, if not in the header that
	// Auth names: "header", "query" or "cookie", and the name there. They are
	// for descriptions that define it (OpenAPI's securitySchemes).
	KeyIn, KeyName string

	// Timeout bounds one exchange, including redirects and the body. Default:
	// the policy's; negative: only the context's, for streams.
	Timeout time.Duration

	// MaxResponse bounds the body of an answer, after decompression, in bytes.
	// Default: the policy's; negative: none, for streams.
	MaxResponse int64

	// NoRedirects returns a redirect as an ordinary answer.
	NoRedirects bool

	// Public permits requests without an entry in Config.Allow if they are
	// connected to a public address. Every request and every redirect is
	// checked by [Policy.CheckLiteral].
	Public bool
}

// Client returns a client that enforces the policy. The error says which part
// of Auth is not supported; no secret is read yet.
func (p *Policy) Client(o Options) (*http.Client, error) {
	g := &guard{policy: p, limit: o.MaxResponse}
	client := &http.Client{Transport: g, Timeout: o.Timeout, CheckRedirect: g.redirect}
	if p != nil {
		g.next = p.shared
		if o.Public {
			g.outside = p.outside
		}
		if o.Timeout == 0 {
			client.Timeout = p.timeout
		}
		if o.MaxResponse == 0 {
			g.limit = p.maxResponse
		}
	}
	if client.Timeout < 0 {
		client.Timeout = 0
	}
	if o.NoRedirects {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	var err error
	client.Transport, err = p.authorize(g, o)
	return client, err
}

// transport returns a transport that checks each connection. certificate is for
// mtls; nil: none.
func (p *Policy) transport(check addressCheck, certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // a proxy from the environment would connect without the check
		DialContext:            p.dial(check),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.roots, GetClientCertificate: certificate},
		TLSHandshakeTimeout:    dialTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
}

// An addressCheck checks the address that a connection for host is made to.
type addressCheck func(host string, ip netip.Addr) error

// dial connects after it has checked the address that the name currently
// resolves to.
func (p *Policy) dial(check addressCheck) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		name, _, err := canonicalHost(host)
		if err != nil {
			return nil, err
		}
		d := net.Dialer{Timeout: dialTimeout, Resolver: p.resolver, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return refusef("the address %q", clip.Text(address, 200))
			}
			return check(name, to.Addr())
		}}
		return d.DialContext(ctx, network, addr)
	}
}

// guard is the transport of every client: it checks each request against the
// policy and limits each answer.
type guard struct {
	policy *Policy
	next   http.RoundTripper
	limit  int64

	// outside sends requests that no entry permits to public addresses only;
	// nil if such requests are refused. It never shares connections with next.
	outside http.RoundTripper
}

// way returns the transport for a URL, if the URL is permitted.
func (g *guard) way(u *url.URL) (http.RoundTripper, error) {
	_, err := g.policy.check(u, false)
	if err == nil || g.outside == nil {
		return g.next, err
	}
	return g.outside, g.policy.checkPublic(u)
}

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	next, err := g.way(req.URL)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := next.RoundTrip(sentOnce(req))
	if err != nil {
		return nil, err
	}
	if g.limit < 0 || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, nil
	}
	if resp.ContentLength > g.limit && req.Method != http.MethodHead {
		resp.Body.Close()
		return nil, fmt.Errorf("%w: %d bytes exceed the bound of %d", ErrTooLarge, resp.ContentLength, g.limit)
	}
	resp.Body = &bounded{ReadCloser: resp.Body, left: g.limit, limit: g.limit}
	return resp, nil
}

// repeated are the headers that make net/http take any request for idempotent, by their keys in the
// map. It sends such a request again if a connection that was used before ends without an answer,
// although the server may have done the first one; and if the second one cannot be sent, its error is
// all that the caller sees.
var repeated = []string{"Idempotency-Key", "X-Idempotency-Key"}

// sentOnce returns the request as net/http sends it once only, with such headers under keys that
// net/http does not look for: whether a call may be repeated is decided by its caller. The server sees
// the same headers, because their names are not case-sensitive. Requests that only read stay as they are.
func sentOnce(req *http.Request) *http.Request {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return req
	}
	own := req // a RoundTripper must not change its request
	for _, name := range repeated {
		values, ok := req.Header[name]
		if !ok {
			continue
		}
		if own == req {
			own = req.Clone(req.Context())
		}
		delete(own.Header, name)
		own.Header[strings.ToLower(name)] = values
	}
	return own
}

// redirect checks a redirect, for [http.Client].
func (g *guard) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > DefaultMaxRedirects {
		return refusef("more than %d redirects", DefaultMaxRedirects)
	}
	if _, err := g.way(req.URL); err != nil {
		return fmt.Errorf("redirected: %w", err)
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return refusef("a redirect from https to %s", req.URL.Scheme)
	}
	req.Header.Del("Referer")
	if len(hops(req)) == 0 || !oneOrigin(req) {
		for name := range req.Header {
			if !travels[name] {
				delete(req.Header, name)
			}
		}
	}
	return nil
}

// travels are the headers that may follow a redirect to another origin. All
// others are meant for the endpoint only: credentials, keys of any name, the
// Idempotency-Key.
var travels = map[string]bool{"Accept": true, "Accept-Language": true, "Content-Type": true, "User-Agent": true}

// hops returns the requests that led to this one, the first last.
func hops(req *http.Request) []*http.Request {
	var all []*http.Request
	for r := req; r.Response != nil && r.Response.Request != nil && len(all) <= DefaultMaxRedirects+1; r = r.Response.Request {
		all = append(all, r.Response.Request)
	}
	return all
}

// oneOrigin reports whether the request and all that led to it have the same
// origin. A request that was redirected from another origin gets no
// credentials, because that origin chose what it asks for.
func oneOrigin(req *http.Request) bool {
	return !slices.ContainsFunc(hops(req), func(r *http.Request) bool { return !sameOrigin(r.URL, req.URL) })
}

// bounded is a body that fails, instead of ending, when it exceeds the limit.
type bounded struct {
	io.ReadCloser
	left, limit int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, b.limit)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, b.limit)
	}
	return n, err
}

// Cause removes net/http's wrapping from an error: the URL, which may contain
// arguments of a call.
func Cause(err error) error {
	if e := new(url.Error); errors.As(err, &e) {
		if e.Timeout() && !errors.Is(e.Err, context.DeadlineExceeded) && !errors.Is(e.Err, context.Canceled) {
			return fmt.Errorf("%s: %w", strings.ToLower(e.Op), context.DeadlineExceeded)
		}
		return e.Err
	}
	return err
}
