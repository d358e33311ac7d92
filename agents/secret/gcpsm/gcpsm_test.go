package gcpsm_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/gcpsm"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

const accessToken = "ya29.double-Access_Tok3n"

// privateKey is a service account's. Making one takes a while.
var privateKey = sync.OnceValue(func() string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
})

// double is Secret Manager's REST API, and the token endpoint of its service
// accounts.
type double struct {
	*httptest.Server
	down, deny atomic.Bool
	logins     atomic.Int32
	hold       func() // before a sign-in is answered; nil: nothing
}

func start(t *testing.T) *double {
	d := &double{}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	fail := func(status int, code string) {
		answer(status, map[string]any{"error": map[string]any{"code": status, "status": code, "message": "with " + r.Header.Get("Authorization")}})
	}
	payload := func(value string, sum uint32) {
		answer(200, map[string]any{"name": r.URL.Path, "payload": map[string]any{"data": []byte(value), "dataCrc32c": strconv.FormatUint(uint64(sum), 10)}})
	}
	crc := func(s string) uint32 { return crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli)) }
	path, version, _ := strings.Cut(strings.TrimSuffix(r.URL.Path, ":access"), "/versions/")
	switch {
	case r.URL.Path == "/token":
		_ = r.ParseForm()
		if d.hold != nil {
			d.hold()
		}
		if d.deny.Load() || r.Form.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || r.Form.Get("assertion") == "" {
			answer(400, map[string]string{"error": "invalid_grant", "error_description": "bad assertion " + r.Form.Get("assertion")})
			return
		}
		d.logins.Add(1)
		answer(200, map[string]any{"access_token": accessToken, "token_type": "Bearer", "expires_in": 3599})
	case d.down.Load():
		fail(503, "UNAVAILABLE")
	case r.Header.Get("Authorization") != "Bearer "+accessToken || !strings.HasSuffix(r.URL.Path, ":access"):
		fail(401, "UNAUTHENTICATED")
	case path == "/v1/projects/p-1/secrets/denied":
		fail(403, "PERMISSION_DENIED")
	case path == "/v1/projects/p-1/secrets/torn":
		payload("torn", 7)
	case path == "/v1/projects/p-1/secrets/plain" && version == "1":
		payload(secrettest.OldValue, crc(secrettest.OldValue))
	case path == "/v1/projects/p-1/secrets/plain" && version == "2":
		fail(400, "FAILED_PRECONDITION") // destroyed
	case path == "/v1/projects/p-1/secrets/plain" && version == "latest":
		payload(secrettest.PlainValue, crc(secrettest.PlainValue))
	case path == "/v1/projects/p-1/secrets/map" && version == "latest":
		text, _ := json.Marshal(map[string]string{secrettest.MemberKey: secrettest.MemberValue})
		payload(string(text), crc(string(text)))
	default:
		fail(404, "NOT_FOUND")
	}
}

// account is the file of a service account.
func account(d *double) secret.Lookup {
	text, _ := json.Marshal(map[string]string{"type": "service_account", "client_email": "worker@p-1.iam.gserviceaccount.com", "private_key_id": "k1",
		"private_key": privateKey(), "token_uri": d.URL + "/token"})
	return func(context.Context, secret.Reference) (secret.Secret, error) { return secret.New(string(text)), nil }
}

func open(t *testing.T, d *double, lookup secret.Lookup) *gcpsm.Vault {
	t.Helper()
	v, err := gcpsm.New(gcpsm.Config{Project: "p-1", Credentials: "file:/key.json", Endpoint: d.URL}, lookup)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ref(path, key, version string) aaif.VaultRef {
	return aaif.VaultRef{Provider: aaif.VaultGCPSecretManager, Path: path, Key: key, Version: version}
}

func TestVaultPassesTheSuite(t *testing.T) {
	t.Parallel()
	for form, prefix := range map[string]string{"names": "", "whole paths": "projects/p-1/secrets/"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			secrettest.Run(t, func(t *testing.T) secrettest.Subject {
				d := start(t)
				return secrettest.Subject{Vault: open(t, d, account(d)), Plain: ref(prefix+"plain", "", ""), Member: ref(prefix+"map", secrettest.MemberKey, "latest"),
					Old: ref(prefix+"plain", "", "1"), Missing: ref(prefix+"none", "", ""), MissingVersion: ref(prefix+"plain", "", "2"), Denied: ref(prefix+"denied", "", ""),
					Credentials: map[string]string{"key": privateKey(), "token": accessToken}, Break: func() { d.down.Store(true) }}
			})
		})
	}
}

func TestATokenIsUsedAgain(t *testing.T) {
	t.Parallel()
	d := start(t)
	v := open(t, d, account(d))
	for range 3 {
		if _, err := v.Read(t.Context(), ref("projects/p-1/secrets/plain/versions/1", "", "")); err != nil {
			t.Fatal(err)
		}
	}
	if d.logins.Load() != 1 {
		t.Errorf("%d sign-ins", d.logins.Load())
	}
}

func TestOddReferencesAndAnswers(t *testing.T) {
	t.Parallel()
	d := start(t)
	v := open(t, d, account(d))
	for path, want := range map[string]secret.Kind{"torn": secret.ErrUnavailable, "a/b": secret.ErrInvalid, "projects/p-1/secrets/x:y": secret.ErrInvalid,
		"projects/p-1/secrets/x/versions/a:b": secret.ErrInvalid, "projects/p-1/secrets/..": secret.ErrInvalid} {
		if _, err := v.Read(t.Context(), ref(path, "", "")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %q", path, err, string(want))
		}
	}
	none, err := gcpsm.New(gcpsm.Config{Endpoint: d.URL}, account(d))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Read(t.Context(), ref("plain", "", "")); !errors.Is(err, secret.ErrInvalid) {
		t.Errorf("a name without a project: %v", err)
	}
}

func TestSignInThatFails(t *testing.T) {
	t.Parallel()
	d := start(t)
	d.deny.Store(true)
	if _, err := open(t, d, account(d)).Read(t.Context(), ref("plain", "", "")); !errors.Is(err, secret.ErrDenied) || strings.Contains(err.Error(), "assertion") {
		t.Errorf("refused: %v", err)
	}
	for name, lookup := range map[string]secret.Lookup{
		"no file": secret.Operator(nil),
		"no key":  func(context.Context, secret.Reference) (secret.Secret, error) { return secret.New("hello-77Kq"), nil },
		"another way": func(context.Context, secret.Reference) (secret.Secret, error) {
			return secret.New(`{"type":"external_account","audience":"hello-77Kq"}`), nil
		},
	} {
		if _, err := open(t, d, lookup).Read(t.Context(), ref("plain", "", "")); !errors.Is(err, secret.ErrUnavailable) || strings.Contains(err.Error(), "hello") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := gcpsm.New(gcpsm.Config{Endpoint: "ftp://x"}, nil); err == nil {
		t.Error("an endpoint that is none is accepted")
	}
}

// The library makes one call wait for the token that another one fetches.
func TestAReadEndsWithItsContextWhileAnotherSignsIn(t *testing.T) {
	t.Parallel()
	d := start(t)
	asked, release := make(chan struct{}, 1), make(chan struct{})
	d.hold = func() { asked <- struct{}{}; <-release }
	v := open(t, d, account(d))
	read := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := v.Read(ctx, ref("plain", "", ""))
			done <- err
		}()
		return done
	}
	first := read(t.Context())
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	second := read(ctx)
	cancel()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) || !errors.Is(err, secret.ErrUnavailable) {
			t.Errorf("Read = %v", err)
		}
	case err := <-first:
		close(release)
		t.Fatalf("the first read ends first: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// The library logs requests and answers to standard error if this variable says so.
func TestTokensAreNotLogged(t *testing.T) {
	t.Setenv("GOOGLE_SDK_GO_LOGGING_LEVEL", "debug")
	log, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stderr
	os.Stderr = log
	d := start(t)
	_, err = open(t, d, account(d)).Read(t.Context(), ref("plain", "", ""))
	os.Stderr = before
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(log.Name()); err != nil || len(text) > 0 {
		t.Errorf("logged %.300s, %v", text, err)
	}
	_ = log.Close()
}

func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"payload":{"data":"eA==","dataCrc32c":"1"}}`))
	f.Add(400, []byte(`{"error":{"status":"FAILED_PRECONDITION"}}`))
	var body []byte
	status := 200
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			_, _ = w.Write([]byte(`{"access_token":"t","token_type":"Bearer","expires_in":3599}`))
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	f.Cleanup(srv.Close)
	d := &double{Server: srv}
	v, err := gcpsm.New(gcpsm.Config{Project: "p-1", Credentials: "file:/k", Endpoint: srv.URL}, account(d))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s int, data []byte) {
		if status, body = s, data; s < 200 || s > 999 {
			return
		}
		if got, err := v.Read(t.Context(), ref("x", "", "")); (err == nil) == got.IsZero() {
			t.Errorf("Read = %v, %v", got, err)
		}
	})
}
