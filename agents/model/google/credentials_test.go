package google_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model/google"
)

// serviceAccount writes the file of a service account whose tokens are at url.
func serviceAccount(t *testing.T, url string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "p-1", "private_key_id": "k", "client_email": "a@p-1.iam.gserviceaccount.com", "client_id": "1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": url,
	})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCredentialsOfAServiceAccount(t *testing.T) {
	t.Parallel()
	asked, broken := 0, false
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		body, _ := io.ReadAll(r.Body)
		if broken || !strings.Contains(string(body), "assertion=") {
			w.WriteHeader(403)
			io.WriteString(w, "no: "+string(body))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"access_token":"`+testKey+`","expires_in":3600,"token_type":"Bearer"}`)
	}))
	t.Cleanup(tokens.Close)
	file := serviceAccount(t, tokens.URL)
	api := &canned{answers: []string{fine}}
	m := newModel(t, serve(t, api), func(c *google.Config) {
		vertex(c)
		c.Token = google.Credentials(file, nil)
	})
	if asked != 0 {
		t.Errorf("%d tokens were fetched before any was needed", asked)
	}
	for range 2 {
		if _, err := m.Generate(t.Context(), hi, nil); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 || api.headers[1].Get("Authorization") != "Bearer "+testKey {
		t.Errorf("%d tokens were fetched for two calls, the second had %v", asked, api.headers[1])
	}
	broken = true
	_, err := google.Credentials(file, nil)(t.Context())
	if err == nil || err.Error() != "fetch a token: HTTP 403" {
		t.Errorf("error %v, want one without what the endpoint says", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := google.Credentials(file, nil)(ctx); err != context.Canceled {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestCredentialsThatAreNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	odd := filepath.Join(dir, "odd.json")
	if err := os.WriteFile(odd, []byte(`{"type":"service_account","private_key":"not a key `+testKey+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(dir, "none.json"), odd} {
		if token, err := google.Credentials(file, nil)(t.Context()); err == nil || token != "" || hasKey(err.Error()) {
			t.Errorf("%s: token %q, error %v", file, token, err)
		}
	}
}
