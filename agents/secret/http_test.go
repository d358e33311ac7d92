package secret_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/secret"
)

func TestHTTPClientBoundsAnswersAndStaysWithTheVault(t *testing.T) {
	t.Parallel()
	away := false
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "/elsewhere":
			away = true
		case "/endless":
			_, _ = io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("x", 3<<20)), 3<<20))
		}
	}))
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := secret.HTTPClient(ca)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	resp, err := client.Get(srv.URL + "/away")
	if err != nil || resp.StatusCode != http.StatusTemporaryRedirect || away {
		t.Fatalf("a redirect is followed: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if resp, err = client.Get(srv.URL + "/endless"); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err == nil || len(data) > 1<<20+1 {
		t.Errorf("%d bytes are read, %v", len(data), err)
	}
	strict, err := secret.HTTPClient("")
	if err != nil {
		t.Fatal(err)
	}
	var unknown x509.UnknownAuthorityError
	if resp, err := strict.Get(srv.URL); !errors.As(err, &unknown) {
		t.Errorf("an authority that nobody named is trusted: %v, %v", resp, err)
	}
	for _, name := range []string{filepath.Join(t.TempDir(), "none"), os.Args[0]} {
		if _, err := secret.HTTPClient(name); err == nil {
			t.Errorf("ca_file %s is accepted", name)
		}
	}
}

func TestOperatorReadsReferences(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(name, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(name)
	for file, text := range map[string]string{"empty": "\n", "large": strings.Repeat("x", 64<<10+1)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lookup := secret.Operator(func(name string) (string, bool) { return "from-env", name == "TOKEN" })
	for r, want := range map[secret.Reference]string{"env:TOKEN": "from-env", secret.Reference("file:" + name): "from-file", "env:OTHER": "", "file:/none": "", "env:": "",
		secret.Reference("path:" + name): "", secret.Reference("file:" + dir + "/empty"): "", secret.Reference("file:" + dir + "/large"): "", "hvs.abcdef": "", "": ""} {
		got, err := lookup(t.Context(), r)
		if got.Reveal() != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", r, got.Reveal(), err)
		}
		if err != nil && strings.Contains(err.Error(), "hvs.") {
			t.Errorf("a credential in the place of a reference is quoted: %v", err)
		}
	}
	var r secret.Reference
	if err := r.UnmarshalText([]byte("hvs.abcdef")); err == nil || strings.Contains(err.Error(), "hvs") {
		t.Errorf("UnmarshalText = %v", err)
	}
}
