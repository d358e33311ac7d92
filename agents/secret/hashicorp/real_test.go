package hashicorp_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/hashicorp"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

// The suite against a real Vault or OpenBao, in development mode:
//
//	bao server -dev -dev-root-token-id=root &	# or vault; CONTRIBUTING.md says how to build one
//	AEEMESH_TEST_VAULT=http://127.0.0.1:8200 AEEMESH_TEST_VAULT_TOKEN=root go test ./agents/secret/hashicorp
func TestRealVaultPassesTheSuite(t *testing.T) {
	t.Parallel()
	address, root := os.Getenv("AEEMESH_TEST_VAULT"), os.Getenv("AEEMESH_TEST_VAULT_TOKEN")
	if address == "" {
		t.Skip("AEEMESH_TEST_VAULT names no Vault or OpenBao server")
	}
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, path string, body any) map[string]any {
		t.Helper()
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), method, address+"/v1/"+path, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Vault-Token", root)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 {
			t.Fatalf("%s: %d %s %v", path, resp.StatusCode, text, err)
		}
		var out map[string]any
		_ = json.Unmarshal(text, &out)
		return out
	}
	call := func(path string, body any) map[string]any { t.Helper(); return do(http.MethodPost, path, body) }
	get := func(path string) map[string]any { t.Helper(); return do(http.MethodGet, path, nil) }
	mount := func(at string, body map[string]any) { call("sys/mounts/"+at, body) }
	// Mounts of this run's own, so that it may be repeated on one server.
	own := "aeemesh-" + rand.Text()
	v2, v1 := own+"/two/", own+"/one/"
	mount(strings.Trim(v2, "/"), map[string]any{"type": "kv", "options": map[string]string{"version": "2"}})
	mount(strings.Trim(v1, "/"), map[string]any{"type": "kv", "options": map[string]string{"version": "1"}})
	entry := map[string]string{secrettest.MemberKey: secrettest.MemberValue, "n": "1"}
	// An engine that was just mounted as version 2 is upgraded for a moment.
	put := func(members map[string]string, path string) map[string]any {
		return call(v2+"data/"+path, map[string]any{"data": members})
	}
	first := firstVersion(t, put(map[string]string{"value": secrettest.OldValue}, "plain"))
	put(map[string]string{"value": secrettest.PlainValue}, "plain")
	put(entry, "map")
	call(v1+"plain", map[string]string{"value": secrettest.PlainValue})
	call(v1+"map", entry)
	call("sys/policies/acl/"+own, map[string]string{"policy": `path "` + v2 + `data/*" { capabilities = ["read"] }
path "` + v2 + `data/denied" { capabilities = ["deny"] }
path "` + v1 + `*" { capabilities = ["read"] }
path "` + v1 + `denied" { capabilities = ["deny"] }`})
	inside := func(answer map[string]any, object, member string) string {
		t.Helper()
		o, _ := answer[object].(map[string]any)
		s, _ := o[member].(string)
		if s == "" {
			t.Fatalf("no %s.%s in the vault's answer", object, member)
		}
		return s
	}
	files := t.TempDir()
	reference := func(name, value string) secret.Reference {
		t.Helper()
		if err := os.WriteFile(filepath.Join(files, name), []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return secret.Reference("file:" + filepath.Join(files, name))
	}
	token := inside(call("auth/token/create", map[string]any{"policies": []string{own}}), "auth", "client_token")
	call("sys/auth/"+own, map[string]string{"type": "approle"})
	call("auth/"+own+"/role/agent", map[string]any{"token_policies": []string{own}, "token_ttl": "1h"})
	roleID := inside(get("auth/"+own+"/role/agent/role-id"), "data", "role_id")
	secretID := inside(call("auth/"+own+"/role/agent/secret-id", map[string]any{}), "data", "secret_id")
	for login, cfg := range map[string]hashicorp.Config{
		"token":   {Token: reference("token", token)},
		"approle": {AppRole: &hashicorp.AppRole{RoleID: reference("role", roleID), SecretID: reference("secret", secretID), Mount: own}},
	} {
		for engine, at := range map[string]string{"version 2": v2, "version 2 by the API's paths": v2 + "data/", "version 1": v1} {
			t.Run(login+", "+engine, func(t *testing.T) {
				t.Parallel()
				secrettest.Run(t, func(t *testing.T) secrettest.Subject {
					front := httptest.NewServer(httputil.NewSingleHostReverseProxy(target)) // so that it can be taken down
					t.Cleanup(front.Close)
					cfg := cfg
					cfg.Address = front.URL
					v, err := hashicorp.New(cfg, secret.Operator(nil))
					if err != nil {
						t.Fatal(err)
					}
					s := secrettest.Subject{Vault: v, Plain: ref(at+"plain", "", ""), Member: ref(at+"map", secrettest.MemberKey, ""),
						Missing: ref(at+"none", "", ""), Denied: ref(at+"denied", "", ""),
						Credentials: map[string]string{"token": token, "role id": roleID, "secret id": secretID}, Break: front.Close}
					if at != v1 {
						s.Old, s.MissingVersion = ref(at+"plain", "", first), ref(at+"plain", "", "99999")
					}
					return s
				})
			})
		}
	}

	// A token that the vault revoked is replaced, a wrong secret id is a denial.
	t.Run("approle, revoked and refused", func(t *testing.T) {
		now := time.Now()
		cfg := hashicorp.Config{Address: address, Now: func() time.Time { return now },
			AppRole: &hashicorp.AppRole{RoleID: reference("role2", roleID), SecretID: reference("secret2", secretID), Mount: own}}
		v, err := hashicorp.New(cfg, secret.Operator(nil))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := v.Read(t.Context(), ref(v2+"plain", "", "")); err != nil || got.Reveal() != secrettest.PlainValue {
				t.Fatalf("read: %v", err)
			}
			call("sys/leases/revoke-prefix/auth/"+own+"/login", map[string]any{})
			now = now.Add(time.Minute)
		}
		cfg.AppRole.SecretID = reference("wrong", "wrong-secret-id")
		if v, err = hashicorp.New(cfg, secret.Operator(nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Read(t.Context(), ref(v2+"plain", "", "")); !errors.Is(err, secret.ErrDenied) {
			t.Errorf("a wrong secret id: %v", err)
		}
	})
}

// firstVersion is the version of what was just written.
func firstVersion(t *testing.T, written map[string]any) string {
	t.Helper()
	data, _ := written["data"].(map[string]any)
	n, ok := data["version"].(float64)
	if !ok || n < 1 {
		t.Fatalf("written: %v", written)
	}
	return strconv.Itoa(int(n))
}
