package openapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// schemes are one of each kind.
const schemes = `"header":{"type":"apiKey","in":"header","name":"X-Key"},"query":{"type":"apiKey","in":"query","name":"key"},"cookie":{"type":"apiKey","in":"cookie","name":"sid"},
	"basic":{"type":"http","scheme":"Basic"},"bearer":{"type":"http","scheme":"bearer"},"oidc":{"type":"openIdConnect","openIdConnectUrl":"https://x.example"},
	"oauth":{"type":"oauth2","flows":{"clientCredentials":{"tokenUrl":"/token","scopes":{"read":""}}}},"implicit":{"type":"oauth2","flows":{"implicit":{"authorizationUrl":"https://x.example","scopes":{}}}}`

// The auth block combined with the description's security.
func TestSecuritySchemesAndTheAuthBlock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		security, operation string // of the description, of the operation; "" is absent
		auth                aaif.Auth
		want                string // X-Key|query|Cookie|Authorization|X-Api-Key
	}{
		{`[{"header":[]}]`, ``, aaif.Auth{Type: "api_key"}, "s3cr:et||||"},
		{`[{"query":[]}]`, ``, aaif.Auth{Type: "api_key"}, "|key=s3cr%3Aet|||"},
		{`[{"cookie":[]}]`, ``, aaif.Auth{Type: "api_key"}, "||sid=s3cr:et||"},
		{`[{"bearer":[]},{"query":[]}]`, ``, aaif.Auth{Type: "api_key"}, "|key=s3cr%3Aet|||"},
		{`[{"bearer":[]},{"query":[]}]`, ``, aaif.Auth{Type: "bearer"}, "|||Bearer s3cr:et|"},
		{`[{"oidc":[]}]`, ``, aaif.Auth{Type: "bearer"}, "|||Bearer s3cr:et|"},
		{`[{"implicit":[]}]`, ``, aaif.Auth{Type: "bearer"}, "|||Bearer s3cr:et|"},
		{`[{"basic":[]}]`, ``, aaif.Auth{Type: "basic"}, "|||Basic czNjcjpldA==|"},
		{`[{"oauth":["read"]}]`, ``, aaif.Auth{Type: "oauth2"}, "|||Bearer token for s3cr, read|"},
		{`[{"oauth":["read"]}]`, ``, aaif.Auth{Type: "oauth2", Scopes: []string{"mine"}}, "|||Bearer token for s3cr, mine|"},
		{``, ``, aaif.Auth{Type: "api_key"}, "||||s3cr:et"},
		{``, ``, aaif.Auth{Type: "api_key", Header: "X-Key"}, "s3cr:et||||"},
		{`[{"header":[]}]`, `[]`, aaif.Auth{Type: "api_key"}, "||||"},
		{`[{"header":[]}]`, `[{"query":[]}]`, aaif.Auth{Type: "api_key"}, "|key=s3cr%3Aet|||"},
		{`[{"header":[],"bearer":[]},{"cookie":[]}]`, ``, aaif.Auth{Type: "api_key"}, "||sid=s3cr:et||"},
		{`[{"basic":[]}]`, ``, aaif.Auth{Type: "bearer"}, "|||Bearer s3cr:et|"}, // unchanged, with a warning
		{`[{"missing":[]}]`, ``, aaif.Auth{Type: "api_key"}, "||||s3cr:et"},
		{`[{"header":[]}]`, ``, aaif.Auth{Type: "none"}, "||||"},
		{`[{"header":[]}]`, ``, aaif.Auth{}, "||||"},
	} {
		description := `{"openapi":"3.0.3","info":{"title":"t","version":"1"},"components":{"securitySchemes":{` + schemes + `}},`
		if tt.security != "" {
			description += `"security":` + tt.security + `,`
		}
		operation := `"operationId":"op","parameters":[{"name":"X-Key","in":"header","schema":{"type":"string"}}],"responses":{"200":{"description":"ok"}}`
		if tt.operation != "" {
			operation += `,"security":` + tt.operation
		}
		a := newAPI(t, description+`"paths":{"/x":{"get":{`+operation+`}}}}`)
		a.access.Secrets = &secret.Set{AllowEnv: []string{"S"}, Env: func(string) (string, bool) { return "s3cr:et", true }}
		a.answer = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == "/token" {
				id, _, _ := r.BasicAuth()
				var scope string
				for part := range strings.SplitSeq(a.seen().Body, "&") {
					if s, ok := strings.CutPrefix(part, "scope="); ok {
						scope = s
					}
				}
				fmt.Fprintf(w, `{"access_token":"token for %s, %s","token_type":"bearer"}`, id, scope)
				return
			}
			_, _ = io.WriteString(w, `{}`)
		}
		tt.auth.EnvVar = "S"
		if tt.auth.Type == "oauth2" { // so that the block is complete before the description is read
			tt.auth.TokenURL = a.url + "/token"
		}
		tools, err := a.tools(t, aaif.Tool{Auth: &tt.auth}, Options{})
		if err != nil {
			t.Errorf("%s %s %s: %v", tt.security, tt.operation, tt.auth.Type, err)
			continue
		}
		if _, err := tools["api"].Call(t.Context(), nil); err != nil {
			t.Errorf("%s %s %s: %v", tt.security, tt.operation, tt.auth.Type, err)
		}
		r := a.seen()
		_, query, _ := strings.Cut(r.URI, "?")
		got := strings.Join([]string{r.Header.Get("X-Key"), query, r.Header.Get("Cookie"), r.Header.Get("Authorization"), r.Header.Get("X-Api-Key")}, "|")
		if got != tt.want {
			t.Errorf("%s %s %s: %q, want %q", tt.security, tt.operation, tt.auth.Type, got, tt.want)
		}
		// A parameter that the credential fills is not an argument; otherwise it is one.
		filled := strings.HasPrefix(tt.want, "s3cr")
		if has := strings.Contains(string(tools["api"].Definition().Parameters), "X-Key"); has == filled {
			t.Errorf("%s %s: X-Key is an argument: %v", tt.security, tt.auth.Type, has)
		}
	}
}

// A credential that no cookie may hold is not sent in part.
func TestACredentialThatNoCookieMayHoldIsRefused(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`a;b"c`, `a\b`, "a\x01b", "caf\u00e9"} {
		a := newAPI(t, `{"openapi":"3.0.3","info":{"title":"t","version":"1"},"components":{"securitySchemes":{`+schemes+`}},"security":[{"cookie":[]}],
			"paths":{"/x":{"get":{"operationId":"op","responses":{"200":{"description":"ok"}}}}}}`)
		a.access.Secrets = &secret.Set{AllowEnv: []string{"S"}, Env: func(string) (string, bool) { return value, true }}
		a.answer = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/x" {
				t.Errorf("%q is sent as %s", value, r.Header.Get("Cookie"))
			}
		}
		tools, err := a.tools(t, aaif.Tool{Auth: &aaif.Auth{Type: "api_key", EnvVar: "S"}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tools["api"].Call(t.Context(), nil); !errors.Is(err, outbound.ErrCredential) || strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// The description's tokenUrl is used if the auth block has none, and the policy must permit it.
func TestTheTokenURLOfADescription(t *testing.T) {
	t.Parallel()
	set := &secret.Set{AllowEnv: []string{"S"}, Env: func(string) (string, bool) { return "a:b", true }}
	const text = `{"openapi":"3.0.3","info":{"title":"t","version":"1"},"security":[{"o":[]}],"components":{"securitySchemes":{"o":{"type":"oauth2","flows":{"clientCredentials":{"tokenUrl":"%","scopes":{}}}}}},
		"paths":{"/x":{"get":{"operationId":"op","responses":{"200":{"description":"ok"}}}}}}`
	a := newAPI(t, strings.Replace(text, "%", "/token", 1))
	a.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"tok","token_type":"bearer"}`)
	}
	a.access.Secrets = set
	tools, err := a.tools(t, aaif.Tool{Auth: &aaif.Auth{Type: "oauth2", EnvVar: "S"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tools["api"].Call(t.Context(), nil); err != nil || a.seen().Header.Get("Authorization") != "Bearer tok" {
		t.Errorf("%v, %v", a.seen().Header, err)
	}
	b := newAPI(t, strings.Replace(text, "%", "https://thief.example/token", 1))
	b.access.Secrets = set
	if _, err := b.tools(t, aaif.Tool{Auth: &aaif.Auth{Type: "oauth2", EnvVar: "S"}}, Options{}); err == nil || !strings.Contains(err.Error(), `add "thief.example" to outbound.allow`) {
		t.Error(err)
	}
}

// A description cannot send an OAuth client's secret to a host that only "*" permits, unless
// the description itself or the operation's server is there.
func TestADescriptionCannotTakeAnOAuthClientsSecretElsewhere(t *testing.T) {
	t.Parallel()
	text := func(server, token string) string {
		return `{"openapi":"3.0.3","info":{"title":"t","version":"1"},"servers":[{"url":"` + server + `"}],"security":[{"o":[]}],
			"components":{"securitySchemes":{"o":{"type":"oauth2","flows":{"clientCredentials":{"tokenUrl":"` + token + `","scopes":{}}}}}},
			"paths":{"/x":{"get":{"operationId":"op","responses":{"200":{"description":"ok"}}}}}}`
	}
	const named, hint = `https://login.example/token`, `add "thief.example" to outbound.allow`
	for name, c := range map[string]struct {
		server, token string
		auth          aaif.Auth
		want          string // in the error
	}{
		"another host":                  {"https://api.example", "https://thief.example/token", aaif.Auth{}, hint},
		"another port":                  {"https://thief.example", "https://thief.example:8443/token", aaif.Auth{}, `"thief.example:8443"`},
		"the server's host":             {"https://thief.example", "https://thief.example/token", aaif.Auth{}, ""},
		"the description's host":        {"https://api.example", "/token", aaif.Auth{}, ""},
		"a host of the configuration":   {"https://api.example", named, aaif.Auth{}, ""},
		"the document's own":            {"https://api.example", "https://thief.example/token", aaif.Auth{TokenURL: named}, ""},
		"any host that a document says": {"https://api.example", named, aaif.Auth{TokenURL: "https://other.example/token"}, ""},
	} {
		a := newAPI(t, text(c.server, c.token))
		p, err := outbound.New(outbound.Config{Allow: []string{"*", "login.example", a.url}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		a.access = outbound.Access{Policy: p, Secrets: &secret.Set{AllowEnv: []string{"S"}, Env: func(string) (string, bool) { return "a:b", true }}}
		c.auth.Type, c.auth.EnvVar = aaif.AuthOAuth2, "S"
		_, err = a.tools(t, aaif.Tool{Auth: &c.auth}, Options{})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A certificate is presented over TLS only: an entry with one is refused if its description, or an
// operation's server, is reached without TLS.
func TestMTLSOverPlainHTTPIsRefused(t *testing.T) {
	t.Parallel()
	const text = `{"openapi":"3.0.3","info":{"title":"t","version":"1"},"servers":[{"url":"%"}],"paths":{"/x":{"get":{"operationId":"op","responses":{"200":{"description":"ok"}}}}}}`
	auth := &aaif.Auth{Type: aaif.AuthMTLS, EnvVar: "S"}
	a := newAPI(t, text)
	a.access.Secrets = &secret.Set{AllowEnv: []string{"S"}, Env: func(string) (string, bool) { return "pem", true }}
	if _, err := a.tools(t, aaif.Tool{Auth: auth}, Options{}); err == nil || !strings.Contains(err.Error(), "mtls needs https") {
		t.Errorf("a description over http: %v", err)
	}
	dir := t.TempDir()
	policy, err := outbound.New(outbound.Config{Allow: []string{a.url, "api.example"}, Files: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(policy.Close)
	a.access.Policy = policy
	for server, want := range map[string]string{a.url: "mtls needs https", "https://api.example/v1": ""} {
		file := filepath.Join(dir, "api.json")
		if err := os.WriteFile(file, []byte(strings.Replace(text, "%", server, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := a.tools(t, aaif.Tool{Auth: auth, Endpoint: file}, Options{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a server at %s: %v, want %q", server, err, want)
		}
	}
	if a.seen().Method != "" {
		t.Error("the server was called")
	}
}

// A description behind a login is read with the entry's credential.
func TestADescriptionThatAsksForACredential(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; r.Header.Get("Authorization") != "Bearer tok-1" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, petstore)
	}))
	t.Cleanup(server.Close)
	p, err := outbound.New(outbound.Config{Allow: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	a := &api{access: outbound.Access{Policy: p, Secrets: &secret.Set{AllowEnv: []string{"S"}, Env: func(string) (string, bool) { return "tok-1", true }}}}
	tools, err := a.tools(t, aaif.Tool{Endpoint: server.URL, Auth: &aaif.Auth{Type: "bearer", EnvVar: "S"}}, Options{})
	if err != nil || len(tools) != 5 || asked != 2 {
		t.Errorf("%d tools after %d requests, %v", len(tools), asked, err)
	}
	if _, err := a.tools(t, aaif.Tool{Endpoint: server.URL}, Options{}); err == nil || !strings.Contains(err.Error(), "401") {
		t.Error(err)
	}
}
