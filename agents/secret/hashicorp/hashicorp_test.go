package hashicorp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/hashicorp"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

// double speaks Vault's HTTP API: engines of both versions, logins, namespaces.
// What it denies it denies with words that quote what it was sent.
type double struct {
	*httptest.Server
	mu     sync.Mutex
	tokens map[string]bool
	logins int
	tried  int // logins, also those that failed
	asked  []string
	down   bool
	closed bool // logins are refused for a while
	opened bool // nothing is denied any more
	other  bool // both engines have got the other version
}

const (
	roleID, secretID = "role-5d1e0f7a9b", "secret-id-8c2b7d9e1f"
	jwt              = "eyJhbGciOi.service-account.Jwt7x"
	staticToken      = "hvs.static-4Kd8sM2x"
)

func start(t *testing.T) *double {
	d := &double{tokens: map[string]bool{staticToken: true}}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	d.asked = append(d.asked, path)
	token := r.Header.Get("X-Vault-Token")
	fail := func(status int, words ...string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": append([]string{}, words...)})
	}
	answer := func(data any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"request_id": "r", "lease_duration": 2764800, "data": data})
	}
	var body map[string]string
	_ = json.NewDecoder(r.Body).Decode(&body)
	login := func(ok bool) {
		d.tried++
		if d.closed {
			fail(429, "request path rate limited")
			return
		}
		if !ok {
			fail(400, fmt.Sprintf("invalid role or secret ID %v", body))
			return
		}
		d.logins++
		issued := fmt.Sprintf("hvs.issued-%d-Wq9z", d.logins)
		d.tokens[issued] = true
		_ = json.NewEncoder(w).Encode(map[string]any{"auth": map[string]any{"client_token": issued, "accessor": "acc-77Kd", "lease_duration": 3600, "renewable": true}})
	}
	switch {
	case r.Header.Get("X-Vault-Namespace") != "team-a", r.Header.Get("X-Vault-Request") != "true":
		fail(404, "namespace not found")
	case d.down:
		fail(503, "Vault is sealed; token "+token)
	case path == "auth/approle/login":
		login(token == "" && body["role_id"] == roleID && body["secret_id"] == secretID)
	case path == "auth/k8s/login":
		login(token == "" && body["role"] == "aeemesh" && body["jwt"] == jwt)
	case !d.tokens[token], !d.opened && strings.Contains(path, "denied"):
		fail(403, "permission denied for token "+token)
	case d.other && strings.HasPrefix(path, "sys/internal/ui/mounts/secret/"):
		answer(map[string]any{"path": "secret/", "type": "kv", "options": nil})
	case d.other && strings.HasPrefix(path, "sys/internal/ui/mounts/team/old/"):
		answer(map[string]any{"path": "team/old/", "type": "kv", "options": map[string]string{"version": "2"}})
	case d.other && (path == "team/old/plain" || path == "team/old/hidden"):
		w.WriteHeader(404)
		_ = json.NewEncoder(w).Encode(map[string]any{"warnings": []string{"Invalid path for a versioned K/V secrets engine."}})
	case d.other && path == "team/old/strict":
		fail(403, "permission denied")
	case d.other && (path == "team/old/data/plain" || path == "team/old/data/strict"):
		answer(map[string]any{"data": map[string]any{"only": secrettest.PlainValue}, "metadata": map[string]any{"version": 1}})
	case d.other && path == "secret/plain":
		answer(map[string]any{"value": secrettest.PlainValue})
	case d.other:
		fail(404)
	case strings.HasPrefix(path, "sys/internal/ui/mounts/secret/"):
		answer(map[string]any{"path": "secret/", "type": "kv", "options": map[string]string{"version": "2"}})
	case strings.HasPrefix(path, "sys/internal/ui/mounts/team/old/"):
		answer(map[string]any{"path": "team/old/", "type": "kv", "options": nil})
	case path == "secret/data/plain":
		versions := map[string]any{"": secrettest.PlainValue, "2": secrettest.PlainValue, "1": secrettest.OldValue}
		if v, ok := versions[r.URL.Query().Get("version")]; ok {
			answer(map[string]any{"data": map[string]any{"value": v, "other": 1}, "metadata": map[string]any{"version": 2}})
		} else if r.URL.Query().Get("version") == "3" { // deleted
			w.WriteHeader(404)
			answer(map[string]any{"data": nil, "metadata": map[string]any{"deletion_time": "2026-01-01T00:00:00Z"}})
		} else {
			fail(404)
		}
	case path == "secret/data/denied":
		answer(map[string]any{"data": map[string]any{"value": secrettest.PlainValue}, "metadata": map[string]any{"version": 1}})
	case path == "secret/data/map":
		answer(map[string]any{"data": map[string]any{secrettest.MemberKey: secrettest.MemberValue, "n": 42}, "metadata": map[string]any{"version": 1}})
	case path == "team/old/plain":
		answer(map[string]any{"only": secrettest.PlainValue})
	case path == "team/old/map":
		answer(map[string]any{secrettest.MemberKey: secrettest.MemberValue, "n": 42})
	default:
		fail(404)
	}
}

func lookup(_ context.Context, r secret.Reference) (secret.Secret, error) {
	return secret.New(map[secret.Reference]string{"env:TOKEN": staticToken, "env:ROLE": roleID, "env:SID": secretID, "env:WRONG": "wrong-secret-id-55", "file:/jwt": jwt}[r]), nil
}

func ref(path, key, version string) aaif.VaultRef {
	return aaif.VaultRef{Provider: aaif.VaultHashiCorp, Path: path, Key: key, Version: version}
}

var logins = map[string]hashicorp.Config{
	"token":      {Token: "env:TOKEN"},
	"approle":    {AppRole: &hashicorp.AppRole{RoleID: "env:ROLE", SecretID: "env:SID"}},
	"kubernetes": {Kubernetes: &hashicorp.Kubernetes{Role: "aeemesh", Token: "file:/jwt", Mount: "k8s"}},
}

func open(t *testing.T, d *double, cfg hashicorp.Config) *hashicorp.Vault {
	t.Helper()
	cfg.Address, cfg.Namespace = d.URL, "team-a"
	v, err := hashicorp.New(cfg, lookup)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVaultPassesTheSuite(t *testing.T) {
	t.Parallel()
	credentials := map[string]string{"token": staticToken, "role id": roleID, "secret id": secretID, "jwt": jwt, "issued": "hvs.issued-1-Wq9z"}
	for login, cfg := range logins {
		for form, prefix := range map[string]string{"the tool's paths": "secret/", "the API's paths": "secret/data/"} {
			t.Run(login+", version 2, "+form, func(t *testing.T) {
				t.Parallel()
				secrettest.Run(t, func(t *testing.T) secrettest.Subject {
					d := start(t)
					return secrettest.Subject{Vault: open(t, d, cfg), Plain: ref(prefix+"plain", "", ""), Member: ref(prefix+"map", secrettest.MemberKey, "latest"),
						Old: ref(prefix+"plain", "", "1"), Missing: ref(prefix+"none", "", ""), MissingVersion: ref(prefix+"plain", "", "3"), Denied: ref(prefix+"denied", "", ""),
						Credentials: credentials, Break: func() { d.mu.Lock(); d.down = true; d.mu.Unlock() }}
				})
			})
		}
		t.Run(login+", version 1", func(t *testing.T) {
			t.Parallel()
			secrettest.Run(t, func(t *testing.T) secrettest.Subject {
				d := start(t)
				return secrettest.Subject{Vault: open(t, d, cfg), Plain: ref("team/old/plain", "", ""), Member: ref("team/old/map", secrettest.MemberKey, ""),
					Missing: ref("team/old/none", "", ""), Denied: ref("team/old/denied", "", ""), Credentials: credentials, Break: d.Close}
			})
		})
	}
}

// With kv in the configuration the vault is not asked where its engine is.
func TestAConfiguredEngineIsNotAskedFor(t *testing.T) {
	t.Parallel()
	d := start(t)
	for _, tt := range []struct {
		cfg  hashicorp.Config
		path string
	}{
		{hashicorp.Config{Token: "env:TOKEN", KV: 2}, "secret/plain"},
		{hashicorp.Config{Token: "env:TOKEN", KV: 1, Mount: "team/old"}, "team/old/plain"},
	} {
		if got, err := open(t, d, tt.cfg).Read(t.Context(), ref(tt.path, "", "")); err != nil || got.Reveal() != secrettest.PlainValue {
			t.Errorf("%s: %v", tt.path, err)
		}
	}
	if _, err := open(t, d, hashicorp.Config{Token: "env:TOKEN", KV: 1, Mount: "team/old"}).Read(t.Context(), ref("secret/plain", "", "")); !errors.Is(err, secret.ErrNotFound) {
		t.Errorf("below another mount: %v", err)
	}
	if all := strings.Join(d.asked, " "); strings.Contains(all, "sys/") {
		t.Errorf("asked: %s", all)
	}
}

// The version of an engine is asked for again where a read fails as one of another version does: an
// engine can be upgraded under a running worker. An entry that is not there is not asked for twice.
func TestAnEngineMayGetAnotherVersion(t *testing.T) {
	t.Parallel()
	for _, r := range []aaif.VaultRef{ref("team/old/plain", "", ""), ref("team/old/plain", "", "1"), ref("team/old/data/plain", "", ""), ref("team/old/strict", "", ""), ref("secret/plain", "", "")} {
		d := start(t)
		v := open(t, d, logins["token"])
		for _, first := range []string{"team/old/plain", "secret/plain"} {
			if got, err := v.Read(t.Context(), ref(first, "", "")); err != nil || got.Reveal() != secrettest.PlainValue {
				t.Fatalf("%s: %v", first, err)
			}
		}
		d.mu.Lock()
		d.other = true
		d.mu.Unlock()
		for range 2 {
			if got, err := v.Read(t.Context(), r); err != nil || got.Reveal() != secrettest.PlainValue {
				t.Errorf("%+v: %v", r, err)
			}
		}
		d.asked = nil
		if _, err := v.Read(t.Context(), ref("team/old/none", "", "")); !errors.Is(err, secret.ErrNotFound) {
			t.Errorf("an entry that is not there: %v", err)
		}
		if n := len(d.asked); n > 3 {
			t.Errorf("%d requests for an entry that is not there: %v", n, d.asked)
		}
	}
}

// A token is used until shortly before it ends, and replaced at once where the
// vault has revoked it; what is denied to a new token is not asked for again.
func TestTokensAreRenewed(t *testing.T) {
	t.Parallel()
	d, now := start(t), time.Unix(1_800_000_000, 0)
	cfg := logins["approle"]
	cfg.Now = func() time.Time { return now }
	v := open(t, d, cfg)
	read := func(path string, want error, logins int) {
		t.Helper()
		if _, err := v.Read(t.Context(), ref(path, "", "")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		if d.logins != logins {
			t.Errorf("%s: %d logins, want %d", path, d.logins, logins)
		}
	}
	read("secret/plain", nil, 1)
	now = now.Add(53 * time.Minute)
	read("secret/plain", nil, 1)
	now = now.Add(2 * time.Minute)
	read("secret/plain", nil, 2)
	d.tokens = map[string]bool{} // revoked
	now = now.Add(time.Minute)
	read("secret/plain", nil, 3)
	now = now.Add(time.Second)
	read("secret/denied", secret.ErrDenied, 3)
	now = now.Add(time.Minute)
	read("secret/denied", secret.ErrDenied, 4)
}

// While the vault refuses logins, a token is used until it expires: neither a read that is denied
// nor the last tenth of its life ends it.
func TestATokenIsUsedWhileLoginsFail(t *testing.T) {
	t.Parallel()
	d, now := start(t), time.Unix(1_800_000_000, 0)
	cfg := logins["kubernetes"]
	cfg.Now = func() time.Time { return now }
	v := open(t, d, cfg)
	read := func(path string, want error, words string) {
		t.Helper()
		if _, err := v.Read(t.Context(), ref(path, "", "")); !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %v: %s", path, err, want, words)
		}
	}
	read("secret/plain", nil, "")
	d.closed = true
	now = now.Add(time.Minute)
	read("secret/denied", secret.ErrUnavailable, "secret/denied: the vault is not available: login") // a new token could be permitted
	tried := d.tried
	read("secret/plain", nil, "")
	read("secret/denied", secret.ErrUnavailable, "secret/denied: the vault is not available: login")
	if d.tried != tried {
		t.Errorf("%d more logins at once", d.tried-tried)
	}
	now = now.Add(54 * time.Minute) // the last tenth
	read("secret/plain", nil, "")
	if d.tried == tried {
		t.Error("no login was tried")
	}
	now = now.Add(5 * time.Minute)
	read("secret/plain", secret.ErrUnavailable, "login") // it has expired
	d.closed = false
	read("secret/plain", nil, "")
	d.tokens, d.closed = map[string]bool{}, true // revoked
	now = now.Add(time.Minute)
	for range 2 {
		read("secret/plain", secret.ErrUnavailable, "login")
	}
	d.closed = false
	now = now.Add(time.Minute)
	read("secret/plain", nil, "")
}

// An entry that is denied to new tokens too makes the vault log in less and less often: each login
// is a lease, and the uses of a secret_id may be counted. Other entries do not wait for that.
func TestADeniedEntryCostsFewLogins(t *testing.T) {
	t.Parallel()
	d, now := start(t), time.Unix(1_800_000_000, 0)
	cfg := logins["approle"]
	cfg.Now = func() time.Time { return now }
	v := open(t, d, cfg)
	for range 9 * 60 { // ten leases
		now = now.Add(time.Minute)
		if _, err := v.Read(t.Context(), ref("secret/denied", "", "")); !errors.Is(err, secret.ErrDenied) {
			t.Fatal(err)
		}
	}
	if d.logins > 10+6 {
		t.Errorf("%d logins in ten leases", d.logins)
	}
	d.tokens = map[string]bool{} // revoked
	if _, err := v.Read(t.Context(), ref("secret/plain", "", "")); err != nil {
		t.Errorf("another entry: %v", err)
	}
}

// An entry that was denied once and is permitted now is read with a new token when the old one is
// revoked, however old that was.
func TestAnEntryThatWasDeniedOnce(t *testing.T) {
	t.Parallel()
	d, now := start(t), time.Unix(1_800_000_000, 0)
	cfg := logins["approle"]
	cfg.Now = func() time.Time { return now }
	v := open(t, d, cfg)
	read := func(path string, want error) {
		t.Helper()
		if _, err := v.Read(t.Context(), ref(path, "", "")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	read("secret/plain", nil)
	now = now.Add(20 * time.Minute)
	read("secret/denied", secret.ErrDenied)
	d.opened = true
	read("secret/denied", nil)
	d.tokens = map[string]bool{} // revoked
	now = now.Add(time.Minute)
	read("secret/denied", nil)
}

func TestALoginThatFails(t *testing.T) {
	t.Parallel()
	d := start(t)
	for _, cfg := range []hashicorp.Config{
		{AppRole: &hashicorp.AppRole{RoleID: "env:ROLE", SecretID: "env:WRONG"}},
		{AppRole: &hashicorp.AppRole{RoleID: "env:ROLE", SecretID: "env:SID", Mount: "elsewhere"}},
	} {
		_, err := open(t, d, cfg).Read(t.Context(), ref("secret/plain", "", ""))
		if !errors.Is(err, secret.ErrDenied) || !strings.Contains(err.Error(), "login") {
			t.Errorf("err = %v", err)
		}
		if found := secrettest.Find(err.Error(), map[string]string{"role": roleID, "sid": secretID, "wrong": "wrong-secret-id-55"}); found != nil {
			t.Errorf("%v quotes %v", err, found)
		}
	}
	// The operator's own credential cannot be read.
	v, err := hashicorp.New(hashicorp.Config{Address: d.URL, Token: "env:UNSET"}, secret.Operator(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Read(t.Context(), ref("secret/plain", "", "")); !errors.Is(err, secret.ErrUnavailable) || !strings.Contains(err.Error(), "env:UNSET") {
		t.Errorf("err = %v", err)
	}
}

func TestOddReferences(t *testing.T) {
	t.Parallel()
	v := open(t, start(t), logins["token"])
	for path, r := range map[string]aaif.VaultRef{
		"several keys, and none named":   ref("secret/map", "", ""),
		"a version that is no number":    ref("secret/plain", "", "AWSCURRENT"),
		"a version of a version 1 entry": ref("team/old/plain", "", "1"),
	} {
		if _, err := v.Read(t.Context(), r); !errors.Is(err, secret.ErrInvalid) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got, err := v.Read(t.Context(), ref("secret/map", "n", "")); err != nil || got.Reveal() != "42" {
		t.Errorf("a number: %q, %v", got.Reveal(), err)
	}
}

func TestNewRefusesAConfigThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, cfg := range []hashicorp.Config{
		{}, {Address: "https://v.example"}, {Address: "v.example", Token: "env:T"}, {Address: "https://u:p@v.example", Token: "env:T"},
		{Address: "https://v.example", Token: "env:T", AppRole: &hashicorp.AppRole{RoleID: "env:R"}}, {Address: "https://v.example", AppRole: &hashicorp.AppRole{}},
		{Address: "https://v.example", Kubernetes: &hashicorp.Kubernetes{}}, {Address: "https://v.example", Token: "env:T", KV: 3},
		{Address: "https://v.example", Token: "env:T", Mount: "x"}, {Address: "https://v.example", Token: "env:T", CAFile: "/nonexistent"},
	} {
		if _, err := hashicorp.New(cfg, lookup); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
