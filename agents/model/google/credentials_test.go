package google_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/google"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
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
	m := newModel(t, modeltest.Serve(t, api), func(c *google.Config) {
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

// answers makes a client that gets a status and a body at a host, and a subject's token at any other.
func answers(host string, status int, body string) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		if r.URL.Host == host {
			rec.Header().Set("Retry-After", "7")
			rec.WriteHeader(status)
			io.WriteString(rec, body)
		} else {
			io.WriteString(rec, "subject-token")
		}
		return rec.Result(), nil
	})}
}

// A token endpoint that fails for a moment says nothing about the credentials: another try may have a
// token. What the endpoint or the network says is not part of the error.
func TestTokensThatCannotBeFetchedNow(t *testing.T) {
	t.Parallel()
	service := serviceAccount(t, "https://tokens.example/token")
	federated := filepath.Join(t.TempDir(), "federated.json")
	if err := os.WriteFile(federated, []byte(`{"type":"external_account","audience":"//iam.googleapis.com/pool","subject_token_type":"urn:ietf:params:oauth:token-type:jwt",
		"token_url":"https://sts.googleapis.com/v1/token","credential_source":{"url":"https://ids.example/token"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	down := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to " + testKey) })}
	broken := &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		res := rec.Result()
		res.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"access`), iotest.ErrReader(io.ErrUnexpectedEOF)))
		return res, nil
	})}
	for name, c := range map[string]struct {
		file   string
		client *http.Client
		now    bool
		text   string
		after  time.Duration
	}{
		"a service account, 500":     {service, answers("tokens.example", 500, testKey), true, "fetch a token: HTTP 500", 7 * time.Second},
		"a service account, 503":     {service, answers("tokens.example", 503, testKey), true, "fetch a token: HTTP 503", 7 * time.Second},
		"a service account, 429":     {service, answers("tokens.example", 429, testKey), true, "fetch a token: HTTP 429", 7 * time.Second},
		"a service account, 400":     {service, answers("tokens.example", 400, testKey), false, "fetch a token: HTTP 400", 0},
		"a service account, 403":     {service, answers("tokens.example", 403, testKey), false, "fetch a token: HTTP 403", 0},
		"no connection":              {service, down, true, "fetch a token: the token endpoint cannot be reached", 0},
		"an answer that breaks off":  {service, broken, true, "fetch a token: the token endpoint cannot be reached", 0},
		"an answer that is no token": {service, answers("tokens.example", 200, "<html>"+testKey), true, "fetch a token: the token endpoint does not answer as it should", 0},
		"a federated identity, 503":  {federated, answers("sts.googleapis.com", 503, testKey), true, "fetch a token: HTTP 503", 0},
		"a federated identity, 400":  {federated, answers("sts.googleapis.com", 400, "status code 503: "+testKey), false, "fetch a token: HTTP 400", 0},
		"its own token, 502":         {federated, answers("ids.example", 502, testKey), true, "fetch a token: HTTP 502", 0},
		"its own token, 404":         {federated, answers("ids.example", 404, testKey), false, "fetch a token: HTTP 404", 0},
		"a federated one, no answer": {federated, down, true, "fetch a token: the token endpoint cannot be reached", 0},
	} {
		token, err := google.Credentials(c.file, c.client)(t.Context())
		var failed *model.Error
		switch now := errors.As(err, &failed) && failed.Kind == model.ErrUnavailable; {
		case err == nil || token != "" || !strings.HasSuffix(strings.Split(err.Error(), " (retry")[0], c.text) || hasKey(err.Error()):
			t.Errorf("%s: token %q, error %v, want %q", name, token, err, c.text)
		case now != c.now || now && failed.RetryAfter != c.after || !now && failed != nil:
			t.Errorf("%s: error %v, for now: %v", name, err, now)
		}
		m := newModel(t, "http://127.0.0.1:1", vertex, func(cfg *google.Config) { cfg.Token = google.Credentials(c.file, c.client) })
		_, err = m.Generate(t.Context(), hi, nil)
		if want := map[bool]model.Kind{true: model.ErrUnavailable, false: model.ErrAuth}[c.now]; !errors.As(err, &failed) || failed.Kind != want || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: a turn fails with %v, want %s", name, err, want)
		}
	}
}

// The metadata server of Google Cloud may have too much to do for a moment, too.
func TestAMetadataServerThatFailsNow(t *testing.T) {
	status := http.StatusTooManyRequests
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, testKey)
	}))
	t.Cleanup(server.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(server.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir())
	token := google.Credentials("", nil)
	for _, status = range []int{http.StatusTooManyRequests, http.StatusNotFound} {
		_, err := token(t.Context())
		var failed *model.Error
		if now := errors.As(err, &failed) && failed.Kind == model.ErrUnavailable; err == nil || now != (status != http.StatusNotFound) || hasKey(err.Error()) {
			t.Errorf("HTTP %d: error %v, for now: %v", status, err, now)
		}
	}
}

// held makes a client whose token endpoint answers when release is closed, and says when it is asked.
func held(release chan struct{}) (client *http.Client, asked chan struct{}) {
	asked = make(chan struct{}, 8)
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		asked <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		rec := httptest.NewRecorder()
		io.WriteString(rec, `{"access_token":"`+testKey+`","expires_in":3600,"token_type":"Bearer"}`)
		return rec.Result(), nil
	})}, asked
}

// Calls share one fetch of a token. Each stops waiting when its own context ends, and the fetch goes
// on for the others.
func TestACallWaitsForATokenAsLongAsItsOwnContext(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	client, asked := held(release)
	token := google.Credentials(serviceAccount(t, "https://tokens.example/token"), client)
	type result struct {
		token string
		err   error
	}
	call := func(ctx context.Context) chan result {
		got := make(chan result, 1)
		go func() {
			token, err := token(ctx)
			got <- result{token, err}
		}()
		return got
	}
	wait := func(got chan result) result {
		t.Helper()
		select {
		case r := <-got:
			return r
		case <-time.After(10 * time.Second):
			t.Fatal("the call still waits")
		}
		return result{}
	}
	first, leave := context.WithCancel(t.Context())
	a := call(first)
	<-asked
	hurried, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if r := wait(call(hurried)); r.err != context.DeadlineExceeded {
		t.Errorf("a call whose deadline is over: %v", r.err)
	}
	b := call(t.Context())
	leave()
	if r := wait(a); r.err != context.Canceled {
		t.Errorf("the call that began the fetch, and was cancelled: %v", r.err)
	}
	close(release)
	if r := wait(b); r.err != nil || r.token != testKey {
		t.Errorf("a call that waited: %q, %v", r.token, r.err)
	}
	if len(asked) != 0 {
		t.Errorf("the endpoint was asked %d times more", len(asked))
	}
}

// A token endpoint that never answers does not hold a call without a deadline for ever.
func TestAFetchOfATokenIsBounded(t *testing.T) {
	t.Parallel()
	file := serviceAccount(t, "https://tokens.example/token")
	synctest.Test(t, func(t *testing.T) {
		client, _ := held(make(chan struct{}))
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := google.Credentials(file, client)(ctx)
		var failed *model.Error
		if took := time.Since(begun); !errors.As(err, &failed) || failed.Kind != model.ErrUnavailable || took != 30*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}
