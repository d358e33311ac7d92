package outbound

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// The defaults of [Config].
const (
	DefaultMaxResponse  = 1 << 20         // bytes
	DefaultTimeout      = 5 * time.Minute // of one exchange, redirects included
	DefaultMaxRedirects = 5
	maxResponseHeader   = 64 << 10 // bytes
)

// Config is what the operator permits: section outbound of a worker's
// configuration. The zero Config permits nothing.
type Config struct {
	// Allow lists the permitted endpoints: a host (https, port 443), host:port,
	// *.domain, a URL prefix such as https://example.com/v1, or * for every
	// host over https. Only an entry that begins with http:// permits plain
	// http. An address that is not public, or localhost, is permitted by its
	// own entry.
	Allow []string `json:"allow,omitempty"`

	// Private lists the addresses and blocks (10.1.0.0/16) in private,
	// loopback, link-local or reserved space that may be connected to, and the
	// names that may resolve to such addresses. It does not permit an endpoint;
	// Allow does.
	Private []string `json:"private,omitempty"`

	// Files lists the permitted files, and folders with everything below them,
	// for descriptions of tools (OpenAPI) and of subagents. A relative endpoint
	// is looked up in these folders.
	Files []string `json:"files,omitempty"`

	// MaxResponseBytes bounds the body of one answer, after decompression.
	// Default 1 MiB.
	MaxResponseBytes int64 `json:"max_response_bytes,omitempty"`

	// TimeoutSeconds bounds one exchange, including redirects and the body,
	// whatever a tool's own timeout. Default 300.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`

	// CAFile is a PEM file of certificates to trust in addition to the
	// system's.
	CAFile string `json:"ca_file,omitempty"`

	// Resolver resolves names. Default net.DefaultResolver.
	Resolver *net.Resolver `json:"-"`

	// RootCAs replaces the trusted certificates.
	RootCAs *x509.CertPool `json:"-"`
}

// A Policy is a parsed Config. A nil Policy permits nothing.
type Policy struct {
	allow       []entry
	private     []private
	files       []string // absolute
	maxResponse int64
	timeout     time.Duration
	resolver    *net.Resolver
	roots       *x509.CertPool

	shared  *http.Transport // of all clients but those with a certificate
	outside *http.Transport // of requests to public addresses that no entry permits

	mu  sync.Mutex
	own map[weak.Pointer[http.Transport]]bool // the transports with a certificate that are in use
}

// New parses a Config, and reports all its errors together.
func New(c Config) (*Policy, error) {
	p := &Policy{maxResponse: c.MaxResponseBytes, timeout: time.Duration(c.TimeoutSeconds * float64(time.Second)), resolver: c.Resolver, roots: c.RootCAs}
	var bad []error
	for i, raw := range c.Allow {
		e, err := parseEntry(raw)
		if err != nil {
			bad = append(bad, fmt.Errorf("outbound.allow[%d]: %w", i, err))
			continue
		}
		p.allow = append(p.allow, e)
		// An entry for an address, or for localhost, permits it even if it is
		// private.
		switch {
		case e.ip.IsValid():
			p.private = append(p.private, private{prefix: netip.PrefixFrom(e.ip, e.ip.BitLen())})
		case e.host == "localhost":
			p.private = append(p.private, private{host: e.host})
		}
	}
	for i, raw := range c.Private {
		e, err := parsePrivate(raw)
		if err != nil {
			bad = append(bad, fmt.Errorf("outbound.private[%d]: %w", i, err))
			continue
		}
		p.private = append(p.private, e)
	}
	for i, name := range c.Files {
		abs, err := filepath.Abs(name)
		if err != nil || name == "" {
			bad = append(bad, fmt.Errorf("outbound.files[%d]: %q is no path", i, name))
			continue
		}
		p.files = append(p.files, abs)
	}
	if c.CAFile != "" && p.roots == nil {
		roots, err := readRoots(c.CAFile)
		if err != nil {
			bad = append(bad, fmt.Errorf("outbound.ca_file: %w", err))
		}
		p.roots = roots
	}
	if p.maxResponse < 0 || p.timeout < 0 {
		bad = append(bad, errors.New("outbound: max_response_bytes and timeout_seconds cannot be negative"))
	}
	p.maxResponse = cmp.Or(p.maxResponse, DefaultMaxResponse)
	p.timeout = cmp.Or(p.timeout, DefaultTimeout)
	p.shared = p.transport(p.checkAddress, nil)
	p.outside = p.transport(checkOutside, nil)
	p.own = make(map[weak.Pointer[http.Transport]]bool)
	return p, errors.Join(bad...)
}

func readRoots(name string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", name)
	}
	return roots, nil
}

// entry is an entry of Config.Allow.
type entry struct {
	any    bool       // *
	scheme string     // https, or http
	host   string     // a name or an address
	sub    bool       // the subdomains of host, not host itself
	ip     netip.Addr // if host is an address
	port   int        // 0: any
	prefix string     // of the path; "": any
}

func parseEntry(raw string) (entry, error) {
	e := entry{scheme: "https", port: 443}
	text := strings.TrimSpace(raw)
	if text == "*" {
		return entry{any: true, scheme: "https"}, nil
	}
	if strings.Contains(text, "://") {
		return parsePrefix(text)
	}
	host := text
	if h, port, err := net.SplitHostPort(text); err == nil {
		host = h
		if e.port, err = parsePort(port); err != nil {
			return e, fmt.Errorf("%q: %w", clip.Text(raw, 200), err)
		}
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if domain, ok := strings.CutPrefix(host, "*."); ok {
		host, e.sub = domain, true
	}
	var err error
	if e.host, e.ip, err = canonicalHost(host); err != nil || e.sub && e.ip.IsValid() {
		return e, fmt.Errorf("%q is not a host, host:port, *.domain or URL", clip.Text(raw, 200))
	}
	return e, nil
}

func parsePort(port string) (int, error) {
	if port == "*" {
		return 0, nil
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("%q is no port", clip.Text(port, 200))
	}
	return n, nil
}

func parsePrefix(text string) (entry, error) {
	// url.Parse does not accept a wildcard as a host; it is added again below.
	sub := strings.Contains(text, "://*.")
	u, err := url.Parse(strings.Replace(text, "://*.", "://", 1))
	if err != nil {
		return entry{}, fmt.Errorf("%q is no URL", clip.Text(text, 200))
	}
	t, err := targetOf(u)
	switch {
	case err != nil:
		return entry{}, fmt.Errorf("%q: %w", clip.Text(text, 200), err)
	case u.RawQuery != "" || u.Fragment != "":
		return entry{}, fmt.Errorf("%q: a URL to begin with has no query and no fragment", clip.Text(text, 200))
	case sub && t.ip.IsValid():
		return entry{}, fmt.Errorf("%q: an address has no subdomains", clip.Text(text, 200))
	case ambiguousPath(u):
		return entry{}, fmt.Errorf("%q: its path is ambiguous: it has dot segments, an empty segment, a backslash, a semicolon, %%2F or %%25", clip.Text(text, 200))
	}
	e := entry{scheme: t.scheme, host: t.host, ip: t.ip, port: t.port, sub: sub}
	if t.path != "/" {
		e.prefix = strings.TrimSuffix(t.path, "/")
	}
	return e, nil
}

func parsePrivate(raw string) (private, error) {
	text := strings.TrimSpace(raw)
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix.Masked() != prefix {
			return private{}, fmt.Errorf("%q: it is %s", clip.Text(raw, 200), prefix.Masked())
		}
		return private{prefix: prefix}, nil
	}
	host, ip, err := canonicalHost(strings.Trim(text, "[]"))
	switch {
	case err != nil:
		return private{}, fmt.Errorf("%q is not a host, an address or a block of addresses", clip.Text(raw, 200))
	case ip.IsValid():
		return private{prefix: netip.PrefixFrom(ip, ip.BitLen())}, nil
	}
	return private{host: host}, nil
}

// matches reports whether the entry permits the target.
func (e entry) matches(t target, u *url.URL) bool {
	switch {
	case e.scheme != t.scheme:
		return false
	case e.any:
		return true
	case e.port != 0 && e.port != t.port:
		return false
	case e.sub && !strings.HasSuffix(t.host, "."+e.host), !e.sub && e.host != t.host:
		return false
	case e.prefix == "":
		return true
	}
	return !ambiguousPath(u) && (t.path == e.prefix || strings.HasPrefix(t.path, e.prefix+"/"))
}

// ambiguousPath reports whether servers may read a path differently than this
// package: it has dot segments or separators, plain or encoded. No prefix
// matches it.
func ambiguousPath(u *url.URL) bool {
	escaped := strings.ToLower(u.EscapedPath())
	if strings.Contains(escaped, "%2f") || strings.Contains(escaped, "%25") || strings.ContainsAny(u.Path, `\;`) || strings.Contains(u.Path, "//") {
		return true
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// Check checks whether the policy permits an endpoint, and returns its URL with
// a normalised host. The error is an [ErrRefused] that names the line of
// configuration to add. Names are not resolved here: that is done, and checked,
// for each connection.
func (p *Policy) Check(rawURL string) (*url.URL, error) {
	if len(rawURL) > maxURL {
		return nil, refusef("a URL of %d bytes", len(rawURL))
	}
	u, err := url.Parse(rawURL)
	if err != nil || strings.ContainsFunc(rawURL, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return nil, refusef("%q is no URL", clip.Text(rawURL, 200))
	}
	t, err := p.check(u, false)
	if err != nil {
		return nil, err
	}
	if port := u.Port(); port != "" {
		u.Host = net.JoinHostPort(t.host, port)
	} else if u.Host = t.host; t.ip.Is6() {
		u.Host = "[" + t.host + "]"
	}
	return u, nil
}

// CheckNamed is [Policy.Check] without the entry "*": it checks whether the
// operator has listed the endpoint itself.
func (p *Policy) CheckNamed(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return refusef("%q is no URL", clip.Text(rawURL, 200))
	}
	_, err = p.check(u, true)
	return err
}

// CheckToken is [Policy.Check] for a token endpoint that a description or a server names. The
// secret of an OAuth client is sent there, so the entry "*" permits it only if it has the
// origin of one of the endpoints.
func (p *Policy) CheckToken(rawURL string, endpoints ...*url.URL) (*url.URL, error) {
	u, err := p.Check(rawURL)
	if err == nil && !slices.ContainsFunc(endpoints, func(e *url.URL) bool { return sameOrigin(u, e) }) {
		err = p.CheckNamed(rawURL)
	}
	return u, err
}

// CheckLiteral checks an endpoint that needs no entry if it is public, such as
// the endpoint of a document's model. A private address or localhost is refused
// unless the configuration permits it, and so is an ambiguous URL. Names are
// not resolved.
func (p *Policy) CheckLiteral(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return refusef("%q is no URL", clip.Text(rawURL, 200))
	}
	return p.checkPublic(u)
}

// checkPublic checks one request that needs no entry if it is public.
func (p *Policy) checkPublic(u *url.URL) error {
	t, err := targetOf(u)
	if err != nil {
		return err
	}
	local := t.host == "localhost" || strings.HasSuffix(t.host, ".localhost") // RFC 6761, section 6.3
	if !local && (!t.ip.IsValid() || notPublic(t.ip) == "") {
		return nil
	}
	if _, err := p.check(u, false); err != nil {
		return err
	}
	if local {
		return p.checkAddress(t.host, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	return nil
}

// check checks one request. named ignores the entry "*".
func (p *Policy) check(u *url.URL, named bool) (target, error) {
	t, err := targetOf(u)
	if err != nil {
		return t, err
	}
	allowed := false
	if p != nil {
		for _, e := range p.allow {
			allowed = allowed || !(named && e.any) && e.matches(t, u)
		}
	}
	if !allowed {
		if slices.Contains(metadata, t.ip) { // no hint: operators are not told how to permit it
			return t, refusef("%s is the address of a cloud's metadata service", t.host)
		}
		if t.scheme == "http" {
			return t, refusef("plain http to %s is not allowed", t.hostPort()).allowHint("allow", "http://"+t.hostPort())
		}
		return t, refusef("%s is not allowed", t.hostPort()).allowHint("allow", t.hostPort())
	}
	if t.ip.IsValid() {
		return t, p.checkAddress(t.host, t.ip)
	}
	return t, nil
}

// Close closes idle connections. The Policy can still be used.
func (p *Policy) Close() {
	if p == nil {
		return
	}
	p.shared.CloseIdleConnections()
	p.outside.CloseIdleConnections()
	p.mu.Lock()
	defer p.mu.Unlock()
	for ref := range p.own {
		if t := ref.Value(); t != nil {
			t.CloseIdleConnections()
		}
	}
}
