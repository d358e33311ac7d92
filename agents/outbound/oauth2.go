package outbound

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope/cert"
)

// How long a token is used.
const (
	// early is how long before it expires a token is replaced; half of its
	// life, if that is shorter.
	early = time.Minute
	// maxTokenLife is how long a token is used if its server does not say.
	maxTokenLife = time.Hour
	// spareTime is how long to wait for a new token while the last one is still
	// valid, and how long to use that one before the endpoint is tried again.
	spareTime = 5 * time.Second
)

// clientCredentials implements the grant of that name (RFC 6749, section 4.4).
// It gets a token for the client that the credential names, uses it until
// shortly before it expires, or until it expires if the token endpoint gives no
// other, and gets a new one, once, if the endpoint answers 401.
type clientCredentials struct {
	next       http.RoundTripper
	credential credential
	client     *http.Client // for the token endpoint
	find       func(context.Context, *http.Response) (Grant, error)

	turn  chan struct{} // a mutex that can be waited for with a context; it guards the following fields
	grant Grant         // without TokenURL until it is discovered
	token *oauth2.Token
	fresh time.Time        // when token has to be replaced
	ends  time.Time        // when token expires
	known [2]secret.Secret // the last tokens that the Redactor knows, the latest first
}

// Grant says where and for what to request a token.
type Grant struct {
	// TokenURL is the token endpoint. The policy must permit it.
	TokenURL string
	// Scopes are requested if the auth block has none.
	Scopes []string
	// Resource is the resource that the token is for (RFC 8707). Default: none
	// is sent.
	Resource string
	// InBody sends the client's credentials in the body instead of by HTTP's
	// basic authentication, for servers that support only that. If TokenURL
	// comes from the auth block, both are tried.
	InBody bool
}

func (p *Policy) oauth2(next http.RoundTripper, o Options, c credential) (*clientCredentials, error) {
	t := &clientCredentials{next: next, credential: c, grant: Grant{Scopes: o.Auth.Scopes}, turn: make(chan struct{}, 1)}
	switch {
	case o.Auth.TokenURL != "":
		u, err := p.Check(o.Auth.TokenURL)
		if err != nil {
			return nil, fmt.Errorf("auth oauth2: token_url: %w", err)
		}
		t.grant.TokenURL = u.String()
	case o.Discover == nil:
		return nil, errors.New("auth oauth2: token_url is missing")
	default:
		client, err := p.Client(Options{})
		if err != nil {
			return nil, err
		}
		t.find = func(ctx context.Context, refused *http.Response) (Grant, error) {
			g, err := o.Discover(ctx, refused, client)
			if err != nil {
				return g, fmt.Errorf("%w: the token endpoint cannot be found: %w", ErrCredential, Cause(err))
			}
			u, err := p.CheckToken(g.TokenURL, o.Endpoint)
			if err != nil {
				return g, fmt.Errorf("%w: the token endpoint that was found: %w", ErrCredential, err)
			}
			if g.TokenURL = u.String(); len(o.Auth.Scopes) > 0 {
				g.Scopes = o.Auth.Scopes
			}
			return g, nil
		}
	}
	// A redirect would send the client's secret to another server.
	var err error
	t.client, err = p.Client(Options{NoRedirects: true})
	return t, err
}

func (t *clientCredentials) RoundTrip(req *http.Request) (*http.Response, error) {
	token, err := t.get(req.Context(), nil, nil)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := t.with(req, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	again, ok := replay(req)
	if !ok {
		return resp, nil
	}
	if token, err = t.get(req.Context(), token, resp); err != nil {
		if t.find == nil || errors.Is(err, req.Context().Err()) {
			return resp, nil
		}
		discard(resp)
		return nil, err
	}
	discard(resp)
	return t.with(again, token)
}

func (t *clientCredentials) with(req *http.Request, token *oauth2.Token) (*http.Response, error) {
	if token == nil {
		return t.next.RoundTrip(req)
	}
	copied := req.Clone(req.Context())
	copied.Header.Set("Authorization", "Bearer "+token.AccessToken)
	return t.next.RoundTrip(copied)
}

// get returns the token. It gets a new one if the token has expired, or if it
// is the one that was refused with answer. One caller at a time asks the
// server; the others wait for it. The token is nil while the token endpoint is
// not known: the endpoint's first refusal tells where it is.
func (t *clientCredentials) get(ctx context.Context, refused *oauth2.Token, answer *http.Response) (*oauth2.Token, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if t.token != nil && t.token != refused && time.Now().Before(t.fresh) {
		return t.token, nil
	}
	if refused != nil || t.token == nil || !time.Now().Before(t.ends) {
		return t.request(ctx, refused, answer)
	}
	soon, cancel := context.WithTimeout(ctx, spareTime)
	defer cancel()
	token, err := t.request(soon, nil, nil)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		t.fresh = time.Now().Add(spareTime)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return t.token, nil
	}
	return token, nil
}

// request gets a new token.
func (t *clientCredentials) request(ctx context.Context, refused *oauth2.Token, answer *http.Response) (*oauth2.Token, error) {
	switch {
	case refused != nil:
		ctx = secret.Fresh(ctx) // the client's own secret may have changed
	case t.grant.TokenURL == "" && answer == nil:
		return nil, nil
	case t.grant.TokenURL == "":
		g, err := t.find(ctx, answer)
		if err != nil {
			return nil, err
		}
		t.grant = g
	}
	text, err := t.credential.text(ctx)
	if err != nil {
		return nil, err
	}
	id, password, err := clientOf(text)
	if err != nil {
		return nil, err
	}
	t.credential.know(password)
	cfg := clientcredentials.Config{ClientID: id, ClientSecret: password, TokenURL: t.grant.TokenURL, Scopes: t.grant.Scopes}
	if t.find != nil {
		cfg.AuthStyle = oauth2.AuthStyleInHeader
		if t.grant.InBody {
			cfg.AuthStyle = oauth2.AuthStyleInParams
		}
	}
	if t.grant.Resource != "" {
		cfg.EndpointParams = url.Values{"resource": {t.grant.Resource}}
	}
	begun := time.Now()
	token, err := cfg.Token(context.WithValue(ctx, oauth2.HTTPClient, t.client))
	if err != nil {
		return nil, tokenError(ctx, err)
	}
	if !strings.EqualFold(token.Type(), "Bearer") {
		return nil, fmt.Errorf("%w: the token endpoint gave a token that is not of type bearer", ErrCredential)
	}
	t.know(token.AccessToken)
	life := maxTokenLife
	if !token.Expiry.IsZero() {
		life = token.Expiry.Sub(begun)
	}
	t.token, t.fresh, t.ends = token, begun.Add(life-min(early, life/2)), begun.Add(life)
	return token, nil
}

// know registers the token with the Redactor, and drops the last but one: the last may still be in
// answers that are under way.
func (t *clientCredentials) know(token string) {
	var s secret.Secret
	if unlike(token) {
		s = secret.New(token)
	}
	if s.Equal(t.known[0]) {
		return
	}
	t.credential.set.Redactor().Replace(t.known[1], s)
	t.known = [2]secret.Secret{s, t.known[0]}
}

// minToken is the length of 128 random bits in base64, in bytes. Access tokens have no fewer
// (RFC 6749, section 10.10).
const minToken = 22

// unlike reports whether a token is unlike all other texts, so that it can be removed from them. The
// token is the endpoint's choice: if "text" or "true" were one, and removed, that would damage the
// results of all tools.
func unlike(token string) bool {
	digits := strings.ContainsAny(token, "0123456789")
	letters := strings.ContainsFunc(token, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' })
	return len(token) >= minToken && digits && letters && !strings.ContainsAny(token, " \t\r\n\"\\,{}[]")
}

// tokenError describes a failure of the token endpoint, without its text, which
// may quote the request. The code is one of RFC 6749, section 5.2.
func tokenError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var refused *oauth2.RetrieveError
	if !errors.As(err, &refused) {
		return fmt.Errorf("%w: no token: %w", ErrCredential, quiet(Cause(err)))
	}
	code := ""
	switch refused.ErrorCode {
	case "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope":
		code = " " + refused.ErrorCode
	}
	return fmt.Errorf("%w: the token endpoint answered %d%s", ErrCredential, refused.Response.StatusCode, code)
}

// quiet keeps only those parts of an error's text that this package or the
// network has written.
func quiet(err error) error {
	switch what, hint := cert.Fault(err, authorities); {
	case what != "":
		return fmt.Errorf("token endpoint: %s: %s", what, hint)
	case errors.Is(err, ErrRefused), errors.Is(err, ErrTooLarge):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	}
	return errors.New("the token endpoint cannot be reached, or its answer not be read")
}

// clientOf parses client_id:client_secret, or a JSON object with these two
// members.
func clientOf(text string) (id, password string, err error) {
	var pair struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
	}
	if strings.HasPrefix(text, "{") {
		if json.Unmarshal([]byte(text), &pair) == nil && pair.ID != "" {
			return pair.ID, pair.Secret, nil
		}
	} else if id, password, ok := strings.Cut(text, ":"); ok && id != "" {
		return id, password, nil
	}
	return "", "", fmt.Errorf(`%w: for oauth2 it is client_id:client_secret, or {"client_id": …, "client_secret": …}`, ErrCredential)
}
