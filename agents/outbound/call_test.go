package outbound

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// A server may make the call and answer with a redirect. If the redirect cannot be
// followed, the error must not say that the call was not made.
func TestACallThatWasRedirectedMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	untrusted := httptest.NewUnstartedServer(nil)
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0) // the failed handshake
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	secrets := newSecrets("TOKEN", "abc")
	var done atomic.Int32
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			done.Add(1)
		}
		switch to := strings.TrimPrefix(r.URL.Path, "/"); to {
		case "busy":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case "closed":
			http.Redirect(w, r, closed.URL, http.StatusSeeOther)
		case "unknown":
			http.Redirect(w, r, "http://unknown.example/", http.StatusSeeOther)
		case "untrusted":
			http.Redirect(w, r, untrusted.URL, http.StatusSeeOther)
		case "refused":
			http.Redirect(w, r, "https://forbidden.example/", http.StatusSeeOther)
		case "private":
			http.Redirect(w, r, "http://private.example/", http.StatusSeeOther)
		case "loop":
			http.Redirect(w, r, "/loop", http.StatusSeeOther)
		case "credential":
			secrets.Delete("TOKEN")
			http.Redirect(w, r, "/end", http.StatusSeeOther)
		case "limited":
			http.Redirect(w, r, "/busy", http.StatusSeeOther)
		}
	})
	p := newPolicy(t, Config{
		Allow: []string{u.String(), closed.URL, untrusted.URL, "http://unknown.example", "http://private.example"},
		Resolver: nameServer(t, func(name string) []netip.Addr {
			if name == "private.example." {
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}
			}
			return nil
		}),
	})
	access := Access{Policy: p, Secrets: secrets.set}
	call := func(path string) *Failure {
		t.Helper()
		c := newClient(t, p, Options{Endpoint: u, Auth: &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "TOKEN"}, Secrets: secrets.set})
		_, err := access.Call(t.Context(), c, Request{Method: http.MethodPost, URL: u.JoinPath(path), Body: []byte("{}")})
		var f *Failure
		if !errors.As(err, &f) {
			t.Fatalf("%s: %v, want a failure", path, err)
		}
		return f
	}
	for _, path := range []string{"closed", "unknown", "untrusted", "refused", "private", "loop", "credential"} {
		before := done.Load()
		f := call(path)
		secrets.Store("TOKEN", "abc")
		if f.Reason != ReasonBroken || f.Err == nil || strings.Contains(f.Message, "not made") || !strings.Contains(f.Message, "redirect") || done.Load() != before+1 {
			t.Errorf("%s: %s, %v, after %d calls", path, f.Reason, f, done.Load()-before)
		}
	}
	if f := call("limited"); f.Reason != ReasonStatus || f.Status != http.StatusTooManyRequests || !strings.Contains(f.Message, "may have been done") {
		t.Errorf("a limit after a redirect: %s, %v", f.Reason, f)
	}
	// Without a redirect the reasons are as they were.
	if f := call("busy"); f.Reason != ReasonLimited || strings.Contains(f.Message, "redirect") {
		t.Errorf("a limit: %s, %v", f.Reason, f)
	}
	secrets.Delete("TOKEN")
	if f := call("closed"); f.Reason != ReasonCredential {
		t.Errorf("without a credential: %s, %v", f.Reason, f)
	}
}

// A server's words are cut after the credential was removed, also where characters that do not
// print stand between its letters and are left out.
func TestACredentialAtTheCutOfAServersWordsIsRemoved(t *testing.T) {
	t.Parallel()
	const token = "t0ken-Kq7Zx2Wd9Lm4"
	secrets := newSecrets("TOKEN", token)
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, strings.Repeat("x", 490)+"t0ken-\u200bKq7Zx2Wd9Lm4 is bad")
	})
	p := newPolicy(t, Config{Allow: []string{u.String()}})
	c := newClient(t, p, Options{Endpoint: u, Auth: &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "TOKEN"}, Secrets: secrets.set})
	_, err := Access{Policy: p, Secrets: secrets.set}.Call(t.Context(), c, Request{Method: http.MethodGet, URL: u})
	var f *Failure
	if !errors.As(err, &f) || strings.Contains(f.Message, token[:4]) || !strings.Contains(f.Message, "xxx[redacted") {
		t.Errorf("%v", err)
	}
}

// A server does not keep a call waiting for longer than maxRetryAfter.
func TestALongRetryAfterIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "11")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	access := Access{Policy: newPolicy(t, Config{Allow: []string{u.String()}})}
	_, err := access.Call(t.Context(), newClient(t, access.Policy, Options{}), Request{Method: "GET", URL: u, Again: true})
	var f *Failure
	if !errors.As(err, &f) || f.Reason != ReasonLimited || !strings.Contains(f.Message, "in 11 s") || asked.Load() != 1 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}
