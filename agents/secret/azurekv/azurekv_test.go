package azurekv_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/azurekv"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

const (
	tenant, clientID = "6f0d2b1e-3c4d-4a5b-9e8f-112233445566", "0a1b2c3d-4e5f-4a6b-8c7d-998877665544"
	clientSecret     = "az-client~Secret.8Q~x9"
	accessToken      = "eyJ0eXAiOi.azure-access.Tok3n9"
	oldVersion       = "4387e9f3d6e14c459867679a90fd0f79"
)

// double is a Key Vault and the authority that it sends one to: the first call
// without a token is answered with a challenge, as the real one does.
type double struct {
	*httptest.Server
	down   atomic.Bool
	tokens atomic.Int32
	secret string
}

func start(t *testing.T) *double {
	d := &double{secret: clientSecret}
	d.Server = httptest.NewTLSServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	fail := func(status int, code, words string) {
		answer(status, map[string]any{"error": map[string]string{"code": code, "message": words}})
	}
	auth := r.Header.Get("Authorization")
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/.well-known/openid-configuration"):
		answer(200, map[string]string{"issuer": d.URL + "/" + tenant + "/v2.0", "authorization_endpoint": d.URL + "/" + tenant + "/oauth2/v2.0/authorize",
			"token_endpoint": d.URL + "/" + tenant + "/oauth2/v2.0/token"})
	case strings.HasSuffix(path, "/oauth2/v2.0/token"):
		_ = r.ParseForm()
		if r.Form.Get("client_secret") != d.secret {
			answer(401, map[string]any{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided: " + r.Form.Get("client_secret")})
			return
		}
		d.tokens.Add(1)
		answer(200, map[string]any{"token_type": "Bearer", "expires_in": 3599, "access_token": accessToken})
	case d.down.Load():
		fail(503, "ServiceUnavailable", auth)
	case auth == "":
		w.Header().Set("WWW-Authenticate", `Bearer authorization="`+d.URL+"/"+tenant+`", resource="https://vault.azure.net"`)
		fail(401, "Unauthorized", "AKV10000: Request is missing a Bearer or PoP token.")
	case auth != "Bearer "+accessToken || r.URL.Query().Get("api-version") == "":
		fail(401, "Unauthorized", "invalid token "+auth)
	case path == "/secrets/denied" || path == "/secrets/denied/":
		fail(403, "Forbidden", "the caller with "+auth+" does not have secrets get permission")
	default:
		values := map[string]string{"/secrets/plain": secrettest.PlainValue, "/secrets/plain/" + oldVersion: secrettest.OldValue,
			"/secrets/map": func() string {
				text, _ := json.Marshal(map[string]string{secrettest.MemberKey: secrettest.MemberValue})
				return string(text)
			}()}
		if v, ok := values[strings.TrimSuffix(path, "/")]; ok {
			answer(200, map[string]any{"value": v, "id": d.URL + path, "attributes": map[string]any{"enabled": true}})
			return
		}
		fail(404, "SecretNotFound", "A secret with (name/id) none was not found in this key vault.")
	}
}

func open(t *testing.T, d *double, lookup secret.Lookup) *azurekv.Vault {
	t.Helper()
	v, err := azurekv.New(azurekv.Config{URLs: []string{d.URL}, TenantID: tenant, ClientID: clientID, ClientSecret: "env:SECRET", AuthorityHost: d.URL,
		AnyDomain: true, HTTPClient: d.Client()}, lookup)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func gives(value string) secret.Lookup {
	return func(context.Context, secret.Reference) (secret.Secret, error) { return secret.New(value), nil }
}

func ref(path, key, version string) aaif.VaultRef {
	return aaif.VaultRef{Provider: aaif.VaultAzureKeyVault, Path: path, Key: key, Version: version}
}

func TestVaultPassesTheSuite(t *testing.T) {
	t.Parallel()
	for form, prefix := range map[string]func(*double) string{"names": func(*double) string { return "" }, "identifiers": func(d *double) string { return d.URL + "/secrets/" }} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			secrettest.Run(t, func(t *testing.T) secrettest.Subject {
				d := start(t)
				at := prefix(d)
				return secrettest.Subject{Vault: open(t, d, gives(clientSecret)), Plain: ref(at+"plain", "", ""), Member: ref(at+"map", secrettest.MemberKey, "latest"),
					Old: ref(at+"plain", "", oldVersion), Missing: ref(at+"none", "", ""), MissingVersion: ref(at+"plain", "", "0"+oldVersion[1:]), Denied: ref(at+"denied", "", ""),
					Credentials: map[string]string{"client secret": clientSecret, "access token": accessToken}, Break: func() { d.down.Store(true) }}
			})
		})
	}
}

func TestAnIdentifierMayHaveItsVersion(t *testing.T) {
	t.Parallel()
	d := start(t)
	if got, err := open(t, d, gives(clientSecret)).Read(t.Context(), ref(d.URL+"/secrets/plain/"+oldVersion, "", "")); err != nil || got.Reveal() != secrettest.OldValue {
		t.Errorf("Read = %q, %v", got.Reveal(), err)
	}
}

// A document cannot send the worker's token to a vault of its own.
func TestOnlyConfiguredVaultsAreAsked(t *testing.T) {
	t.Parallel()
	d, evil := start(t), start(t)
	v := open(t, d, gives(clientSecret))
	for path, want := range map[string]secret.Kind{
		evil.URL + "/secrets/plain":              secret.ErrNotAllowed,
		d.URL + ".evil.example/secrets/plain":    secret.ErrNotAllowed,
		d.URL + "@evil.example/secrets/plain":    secret.ErrNotAllowed,
		"http" + d.URL[5:] + "/secrets/plain":    secret.ErrNotAllowed,
		d.URL + "/keys/plain":                    secret.ErrInvalid,
		d.URL + "/secrets/pl_ain":                secret.ErrInvalid,
		d.URL + "/secrets/plain/../../keys/list": secret.ErrInvalid,
	} {
		if _, err := v.Read(t.Context(), ref(path, "", "")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %q", path, err, string(want))
		}
	}
	if evil.tokens.Load() != 0 {
		t.Error("the other vault got a token")
	}
}

// A sign-in that fails quotes nothing, and a client secret that has changed is
// used.
func TestSignIn(t *testing.T) {
	t.Parallel()
	d := start(t)
	wrong := "az-wrong~Secret.77"
	value := wrong
	v := open(t, d, func(context.Context, secret.Reference) (secret.Secret, error) { return secret.New(value), nil })
	_, err := v.Read(t.Context(), ref("plain", "", ""))
	if !errors.Is(err, secret.ErrDenied) || !strings.Contains(err.Error(), "sign-in") || secrettest.Find(err.Error(), map[string]string{"wrong": wrong}) != nil {
		t.Errorf("err = %v", err)
	}
	value = clientSecret
	if got, err := v.Read(t.Context(), ref("plain", "", "")); err != nil || got.Reveal() != secrettest.PlainValue {
		t.Errorf("with the new client secret: %v", err)
	}
	if _, err := open(t, d, secret.Operator(nil)).Read(t.Context(), ref("plain", "", "")); !errors.Is(err, secret.ErrUnavailable) || !strings.Contains(err.Error(), "env:SECRET") {
		t.Errorf("without a client secret: %v", err)
	}
}

func TestNewRefusesAConfigThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, cfg := range []azurekv.Config{{}, {URLs: []string{"http://v.example"}}, {URLs: []string{"https://v.example/secrets/x"}}, {URLs: []string{"https://u@v.example"}},
		{URLs: []string{"https://v.example"}, ClientSecret: "env:S"}} {
		if _, err := azurekv.New(cfg, gives("x")); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
