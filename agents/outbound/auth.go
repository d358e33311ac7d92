package outbound

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// DefaultKeyHeader is the header of an api_key whose auth block names none.
const DefaultKeyHeader = "X-API-Key"

// authorize adds the credential to requests for o.Endpoint's origin. Requests
// that were redirected from or to another origin get none.
func (p *Policy) authorize(next http.RoundTripper, o Options) (http.RoundTripper, error) {
	if o.Auth == nil || o.Auth.Type == "" || o.Auth.Type == aaif.AuthNone {
		return next, nil
	}
	if o.Endpoint == nil {
		return nil, fmt.Errorf("auth %s: a credential needs an endpoint", o.Auth.Type)
	}
	if o.Auth.EnvVar == "" && o.Auth.VaultRef == nil {
		return nil, fmt.Errorf("auth %s: neither env_var nor vault_ref says where the credential is", o.Auth.Type)
	}
	c := credential{o.Secrets, o.Auth}
	own := func(with http.RoundTripper) http.RoundTripper {
		return &ownOrigin{endpoint: o, with: with, without: next}
	}
	switch o.Auth.Type {
	case aaif.AuthBearer, aaif.AuthBasic, aaif.AuthAPIKey:
		put, err := headerOf(o, c)
		if err != nil {
			return nil, err
		}
		return own(&putting{next: next, credential: c, put: put}), nil
	case aaif.AuthOAuth2:
		t, err := p.oauth2(next, o, c)
		if err != nil {
			return nil, err
		}
		return own(t), nil
	case aaif.AuthAWSSigV4:
		s, err := newSigner(o, c)
		if err != nil {
			return nil, err
		}
		return own(&putting{next: next, credential: c, put: s.sign}), nil
	case aaif.AuthMTLS:
		if scheme := o.Endpoint.Scheme; scheme != "https" && scheme != "wss" {
			return nil, fmt.Errorf("auth mtls needs https: the endpoint is %s", clip.Text(scheme, 200))
		}
		if p == nil {
			return next, nil // that client refuses every request
		}
		g, t := *next.(*guard), p.transport(p.checkAddress, certificates(c))
		p.keep(t)
		g.next = t
		return own(&g), nil
	}
	return nil, fmt.Errorf("auth type %q is not known", o.Auth.Type)
}

// ownOrigin sends requests that stay within the endpoint's origin with the
// credential, others without.
type ownOrigin struct {
	endpoint      Options
	with, without http.RoundTripper
}

func (t *ownOrigin) RoundTrip(req *http.Request) (*http.Response, error) {
	if sameOrigin(req.URL, t.endpoint.Endpoint) && oneOrigin(req) {
		return t.with.RoundTrip(req)
	}
	return t.without.RoundTrip(req)
}

// putting adds a credential to a copy of each request. If the endpoint answers
// 401, it reads the credential anew, once, because it may have changed.
type putting struct {
	next       http.RoundTripper
	credential credential
	put        func(req *http.Request, text string) error
}

func (t *putting) RoundTrip(req *http.Request) (*http.Response, error) {
	text, err := t.credential.text(req.Context())
	if err != nil {
		closeBody(req)
		return nil, err
	}
	resp, err := t.with(req, text)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	changed, err := t.credential.text(secret.Fresh(req.Context()))
	if err != nil || changed == text {
		return resp, nil
	}
	again, ok := replay(req)
	if !ok {
		return resp, nil
	}
	discard(resp)
	return t.with(again, changed)
}

func (t *putting) with(req *http.Request, text string) (*http.Response, error) {
	copied := req.Clone(req.Context())
	if err := t.put(copied, text); err != nil {
		closeBody(req)
		return nil, err
	}
	return t.next.RoundTrip(copied)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// replay returns the request with its body from the beginning, if the body can
// be read again.
func replay(req *http.Request) (*http.Request, bool) {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, false
	}
	again.Body = body
	return again, true
}

// discard drains and closes an answer that is not used, so that its connection
// can be reused.
func discard(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10))
	resp.Body.Close()
}

// headerOf returns a function that adds the credential of bearer, basic or
// api_key to a request.
func headerOf(o Options, c credential) (func(*http.Request, string) error, error) {
	in, name := "header", o.Auth.Header
	if o.Auth.Type == aaif.AuthAPIKey {
		name = cmp.Or(name, DefaultKeyHeader)
		if o.KeyIn != "" {
			in, name = o.KeyIn, o.KeyName
		}
	} else if name == "" {
		name = "Authorization"
	}
	if in == "header" && (!httpguts.ValidHeaderFieldName(name) || notForCredentials[http.CanonicalHeaderKey(name)]) {
		return nil, fmt.Errorf("auth %s: %q cannot be the header of a credential", o.Auth.Type, clip.Text(name, 200))
	}
	if in != "header" && (name == "" || in != "query" && in != "cookie") {
		return nil, fmt.Errorf("auth %s: a credential cannot go in %q as %q", o.Auth.Type, clip.Text(in, 200), clip.Text(name, 200))
	}
	return func(req *http.Request, value string) error {
		switch o.Auth.Type {
		case aaif.AuthBearer:
			value = "Bearer " + value
		case aaif.AuthBasic:
			_, password, ok := strings.Cut(value, ":")
			if !ok {
				return fmt.Errorf("%w: for basic it is user:password", ErrCredential)
			}
			c.know(password)
			value = "Basic " + base64.StdEncoding.EncodeToString([]byte(value))
		}
		switch in {
		case "query":
			req.URL.RawQuery = withPair(req.URL.RawQuery, name, value)
		case "cookie":
			if strings.ContainsFunc(value, notInCookie) { // net/http would leave these bytes out, and log them
				return fmt.Errorf("%w: it cannot stand in a cookie", ErrCredential)
			}
			own := req.Header.Get("Cookie") // the arguments of a call
			req.Header.Del("Cookie")
			req.AddCookie(&http.Cookie{Name: name, Value: value})
			for c := range strings.SplitSeq(own, ";") {
				if c = strings.TrimSpace(c); c != "" && c != name && !strings.HasPrefix(c, name+"=") {
					req.Header.Set("Cookie", req.Header.Get("Cookie")+"; "+c)
				}
			}
		default:
			if !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("%w: it cannot stand in a header", ErrCredential)
			}
			req.Header.Set(name, value)
		}
		return nil
	}, nil
}

// notInCookie reports whether net/http sends a character in no cookie.
func notInCookie(r rune) bool {
	return r < ' ' || r > '~' || r == '"' || r == ';' || r == '\\'
}

// withPair sets a pair in a query, in place of all pairs of that name. The other pairs stay as
// they are written. Some servers also treat a semicolon as a separator.
func withPair(query, name, value string) string {
	var out []string
	for pairs := range strings.SplitSeq(query, "&") {
		var kept []string
		for pair := range strings.SplitSeq(pairs, ";") {
			escaped, _, _ := strings.Cut(pair, "=")
			if n, err := url.QueryUnescape(escaped); err != nil || n != name {
				kept = append(kept, pair)
			}
		}
		if text := strings.Join(kept, ";"); text != "" {
			out = append(out, text)
		}
	}
	return strings.Join(append(out, url.QueryEscape(name)+"="+url.QueryEscape(value)), "&")
}

// notForCredentials are headers with another meaning, which must not carry a
// credential.
var notForCredentials = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Upgrade": true, "Te": true, "Trailer": true,
	"Content-Type": true, "Content-Encoding": true, "Accept-Encoding": true, "Idempotency-Key": true, "Expect": true, "Keep-Alive": true,
}

// credential refers to a credential.
type credential struct {
	set  *secret.Set
	auth *aaif.Auth
}

// text reads it. White space around it, such as the newline at the end of a
// file, is removed.
func (c credential) text(ctx context.Context) (string, error) {
	value, err := c.set.Resolve(ctx, c.auth)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCredential, err)
	}
	text := strings.TrimSpace(value.Reveal())
	if text == "" {
		return "", fmt.Errorf("%w: it is empty", ErrCredential)
	}
	c.know(text)
	return text, nil
}

// know registers a part that is secret by itself with the Redactor.
func (c credential) know(part string) { c.set.Redactor().Add(secret.New(part)) }
