package hashicorp_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"testing"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/hashicorp"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

// The suite against a real Vault or OpenBao, in development mode:
//
//	bao server -dev -dev-root-token-id=root &
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
	call := func(path string, body any) map[string]any {
		t.Helper()
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/v1/"+path, bytes.NewReader(data))
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
	put := func(path string, members map[string]string) {
		call("secret/data/aeemesh-test/"+path, map[string]any{"data": members})
	}
	put("plain", map[string]string{"value": secrettest.OldValue})
	put("plain", map[string]string{"value": secrettest.PlainValue})
	put("map", map[string]string{secrettest.MemberKey: secrettest.MemberValue, "n": "1"})
	call("sys/policies/acl/aeemesh-test", map[string]string{"policy": `path "secret/data/aeemesh-test/*" { capabilities = ["read"] }
path "secret/data/aeemesh-test/denied" { capabilities = ["deny"] }`})
	auth, _ := call("auth/token/create", map[string]any{"policies": []string{"aeemesh-test"}})["auth"].(map[string]any)
	token, _ := auth["client_token"].(string)
	file := t.TempDir() + "/token"
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := firstVersion(t, call("secret/data/aeemesh-test/plain", map[string]any{"data": map[string]string{"value": secrettest.PlainValue}}))
	secrettest.Run(t, func(t *testing.T) secrettest.Subject {
		front := httptest.NewServer(httputil.NewSingleHostReverseProxy(target)) // so that it can be taken down
		t.Cleanup(front.Close)
		v, err := hashicorp.New(hashicorp.Config{Address: front.URL, Token: secret.Reference("file:" + file)}, secret.Operator(nil))
		if err != nil {
			t.Fatal(err)
		}
		at := "secret/aeemesh-test/"
		return secrettest.Subject{Vault: v, Plain: ref(at+"plain", "", ""), Member: ref(at+"map", secrettest.MemberKey, ""), Old: ref(at+"plain", "", first),
			Missing: ref(at+"none", "", ""), MissingVersion: ref(at+"plain", "", "99999"), Denied: ref(at+"denied", "", ""),
			Credentials: map[string]string{"token": token}, Break: front.Close}
	})
}

// firstVersion is the version of the first of the three that were just written.
func firstVersion(t *testing.T, written map[string]any) string {
	t.Helper()
	data, _ := written["data"].(map[string]any)
	n, ok := data["version"].(float64)
	if !ok || n < 3 {
		t.Fatalf("written: %v", written)
	}
	return strconv.Itoa(int(n) - 2)
}
