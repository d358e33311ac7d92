package gcpsm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// Config says how Secret Manager is reached. The zero Config reads complete
// resource names with the application default credentials.
type Config struct {
	// Project is the project of secrets that are named without one.
	Project string `json:"project,omitzero"`
	// Credentials is the JSON of a service account's key. Default: the application
	// default credentials.
	Credentials secret.Reference `json:"credentials,omitzero"`
	// Endpoint replaces https://secretmanager.googleapis.com, for a regional
	// endpoint or a double.
	Endpoint string `json:"endpoint,omitzero"`

	// HTTPClient reaches Google. Default: one made by [secret.HTTPClient].
	HTTPClient *http.Client `json:"-"`
}

const (
	defaultEndpoint = "https://secretmanager.googleapis.com"
	scope           = "https://www.googleapis.com/auth/cloud-platform"
)

// Vault reads from Secret Manager. It is safe for concurrent use.
type Vault struct {
	cfg    Config
	lookup secret.Lookup

	mu     sync.Mutex
	signed secret.Secret // the key with which tokens was made
	tokens auth.TokenProvider
}

// New makes a Vault. It does no I/O.
func New(cfg Config, lookup secret.Lookup) (*Vault, error) {
	cfg.Endpoint = strings.TrimSuffix(cmp.Or(cfg.Endpoint, defaultEndpoint), "/")
	if u, err := url.Parse(cfg.Endpoint); err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil {
		return nil, errors.New("endpoint: it is no URL")
	}
	if cfg.HTTPClient == nil {
		var err error
		if cfg.HTTPClient, err = secret.HTTPClient(""); err != nil {
			return nil, err
		}
	}
	return &Vault{cfg: cfg, lookup: lookup}, nil
}

// longest bounds the resource name of a secret: 255 characters for the secret, as Google allows,
// and as many for its project and location.
const longest = 510

var (
	bareForm  = pattern.Of(`^[A-Za-z0-9_-]+$`)
	wholeForm = pattern.Of(`^projects/[a-z0-9.:-]+(/locations/[a-z0-9-]+)?/secrets/[A-Za-z0-9_-]+$`)
)

// locate returns the resource name of the version that a reference means.
func (v *Vault) locate(ref aaif.VaultRef) (string, error) {
	name, version, _ := strings.Cut(strings.Trim(ref.Path, "/"), "/versions/")
	version = cmp.Or(ref.Version, version, "latest")
	if bareForm.RE().MatchString(name) {
		if v.cfg.Project == "" {
			return "", secret.Errorf(secret.ErrInvalid, ref, "a name alone needs a project in the worker's configuration")
		}
		name = "projects/" + v.cfg.Project + "/secrets/" + name
	}
	if !wholeForm.RE().MatchString(name) || !bareForm.RE().MatchString(version) || len(name) > longest || len(version) > longest {
		return "", secret.Errorf(secret.ErrInvalid, ref, "a path is a secret's name, or projects/P/secrets/S")
	}
	return name + "/versions/" + version, nil
}

// Read reads a secret.
func (v *Vault) Read(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
	name, err := v.locate(ref)
	if err != nil {
		return secret.Secret{}, err
	}
	token, err := v.token(ctx, ref)
	if err != nil {
		return secret.Secret{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.cfg.Endpoint+"/v1/"+name+":access", nil)
	if err != nil {
		return secret.Secret{}, secret.Errorf(secret.ErrInvalid, ref, "the path is no part of a URL")
	}
	req.Header.Set("Authorization", "Bearer "+token.Value)
	resp, err := v.cfg.HTTPClient.Do(req)
	if err != nil {
		return secret.Secret{}, secret.Failed(ref, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return secret.Secret{}, secret.Failed(ref, err)
	}
	if resp.StatusCode != http.StatusOK {
		return secret.Secret{}, refused(ref, resp.StatusCode, body)
	}
	return value(ref, body)
}

// value decodes the payload of an answer.
func value(ref aaif.VaultRef, body []byte) (secret.Secret, error) {
	var answer struct {
		Payload struct {
			Data   []byte `json:"data"`
			CRC32C string `json:"dataCrc32c"` // int64 in proto3 JSON
		} `json:"payload"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return secret.Secret{}, secret.Errorf(secret.ErrUnavailable, ref, "the answer is not that of Secret Manager")
	}
	sum := crc32.Checksum(answer.Payload.Data, crc32.MakeTable(crc32.Castagnoli))
	if given := answer.Payload.CRC32C; given != "" && given != strconv.FormatUint(uint64(sum), 10) {
		return secret.Secret{}, secret.Errorf(secret.ErrUnavailable, ref, "the value does not fit its checksum")
	}
	return secret.Member(ref, string(answer.Payload.Data))
}

var codeForm = pattern.Of(`^[A-Z_]+$`)

// refused converts an answer that is not 200: its status and code, without its
// text.
func refused(ref aaif.VaultRef, status int, body []byte) error {
	var answer struct {
		Error struct {
			Status string `json:"status"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &answer)
	words, kind := fmt.Sprintf("status %d", status), secret.OfStatus(status)
	if code := answer.Error.Status; len(code) <= 60 && codeForm.RE().MatchString(code) {
		words += " " + code
		switch code {
		case "FAILED_PRECONDITION": // the version is disabled or destroyed
			kind = secret.ErrNotFound
		case "INVALID_ARGUMENT":
			kind = secret.ErrInvalid
		}
	}
	return secret.Errorf(kind, ref, "%s", words)
}

// token returns an access token, which the library caches until it expires.
func (v *Vault) token(ctx context.Context, ref aaif.VaultRef) (*auth.Token, error) {
	var key secret.Secret
	if v.cfg.Credentials != "" {
		var err error
		if key, err = v.lookup(ctx, v.cfg.Credentials); err != nil {
			return nil, secret.Errorf(secret.ErrUnavailable, ref, "its credential for the sign-in cannot be read: %v", err)
		}
	}
	tokens, err := v.source(key, ref)
	if err != nil {
		return nil, err
	}
	type result struct {
		token *auth.Token
		err   error
	}
	got := make(chan result, 1)
	go func() { // the library waits for the token of another call without looking at the context
		token, err := tokens.Token(ctx)
		got <- result{token, err}
	}()
	var r result
	select {
	case r = <-got:
	case <-ctx.Done():
	}
	var answer *auth.Error
	switch {
	case ctx.Err() != nil:
		return nil, secret.Failed(ref, ctx.Err())
	case r.err == nil:
		return r.token, nil
	case errors.As(r.err, &answer) && answer.Response != nil:
		kind := secret.OfStatus(answer.Response.StatusCode)
		if kind == secret.ErrNotFound {
			kind = secret.ErrUnavailable
		}
		return nil, secret.Errorf(kind, ref, "sign-in: status %d", answer.Response.StatusCode)
	}
	return nil, secret.Errorf(secret.ErrUnavailable, ref, "sign-in: it could not be reached")
}

// source makes the source of tokens when it is first needed, and again when the
// key has changed.
func (v *Vault) source(key secret.Secret, ref aaif.VaultRef) (auth.TokenProvider, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tokens != nil && v.signed.Equal(key) {
		return v.tokens, nil
	}
	client := *v.cfg.HTTPClient
	client.Timeout = secret.DefaultTimeout
	// Without a logger, the library would log tokens if GOOGLE_SDK_GO_LOGGING_LEVEL is debug.
	opts := &credentials.DetectOptions{Scopes: []string{scope}, Client: &client, Logger: slog.New(slog.DiscardHandler)}
	var found *auth.Credentials
	var err error
	if key.IsZero() {
		found, err = credentials.DetectDefault(opts)
	} else {
		found, err = credentials.NewCredentialsFromJSON(credentials.ServiceAccount, []byte(key.Reveal()), opts)
	}
	if err != nil {
		return nil, secret.Errorf(secret.ErrUnavailable, ref, "there is nothing to sign in with: neither a service account's key nor default credentials")
	}
	v.signed, v.tokens = key, found
	return found, nil
}
