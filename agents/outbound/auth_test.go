package outbound

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// variables is a set of secrets that a test may change.
type variables struct {
	sync.Map
	set *secret.Set
}

func newSecrets(values ...string) *variables {
	v := &variables{}
	for i := 0; i < len(values); i += 2 {
		v.Store(values[i], values[i+1])
	}
	v.set = &secret.Set{AllowEnv: []string{"*"}, Env: func(name string) (string, bool) {
		value, ok := v.Load(name)
		text, _ := value.(string)
		return text, ok
	}}
	return v
}

// echoHeaders answers with what it was sent.
func echoHeaders(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s|%s|%s|%s", r.Header.Get("Authorization"), r.Header.Get("X-Api-Key")+r.Header.Get("X-Own"), r.URL.RawQuery, r.Header.Get("Cookie"))
}

func TestCredentialsAreSent(t *testing.T) {
	t.Parallel()
	u := serve(t, echoHeaders)
	p := newPolicy(t, Config{Allow: []string{u.String()}})
	secrets := newSecrets("TOKEN", " tok-1234\n", "PAIR", "ann:pass:word", "EMPTY", " ", "LINES", "a\r\nX: b", "PLAIN", "no-colon")
	for _, tt := range []struct {
		auth     aaif.Auth
		in, name string
		want     string
	}{
		{aaif.Auth{Type: aaif.AuthNone, EnvVar: "TOKEN"}, "", "", "200 |||"},
		{aaif.Auth{EnvVar: "TOKEN"}, "", "", "200 |||"},
		{aaif.Auth{Type: aaif.AuthBearer, EnvVar: "TOKEN"}, "", "", "200 Bearer tok-1234|||"},
		{aaif.Auth{Type: aaif.AuthBearer, EnvVar: "TOKEN", Header: "X-Own"}, "", "", "200 |Bearer tok-1234||"},
		{aaif.Auth{Type: aaif.AuthBasic, EnvVar: "PAIR"}, "", "", "200 Basic YW5uOnBhc3M6d29yZA==|||"},
		{aaif.Auth{Type: aaif.AuthAPIKey, EnvVar: "TOKEN"}, "", "", "200 |tok-1234||"},
		{aaif.Auth{Type: aaif.AuthAPIKey, EnvVar: "TOKEN", Header: "x-own"}, "", "", "200 |tok-1234||"},
		{aaif.Auth{Type: aaif.AuthAPIKey, EnvVar: "TOKEN"}, "query", "key", "200 ||key=tok-1234|"},
		{aaif.Auth{Type: aaif.AuthAPIKey, EnvVar: "TOKEN"}, "cookie", "key", "200 |||key=tok-1234"},
		{aaif.Auth{Type: aaif.AuthBearer, EnvVar: "MISSING"}, "", "", "!env_var MISSING"},
		{aaif.Auth{Type: aaif.AuthBearer, EnvVar: "EMPTY"}, "", "", "!it is empty"},
		{aaif.Auth{Type: aaif.AuthBearer, EnvVar: "LINES"}, "", "", "!cannot stand in a header"},
		{aaif.Auth{Type: aaif.AuthBasic, EnvVar: "PLAIN"}, "", "", "!user:password"},
	} {
		c, err := p.Client(Options{Endpoint: u, Auth: &tt.auth, Secrets: secrets.set, KeyIn: tt.in, KeyName: tt.name})
		if err != nil {
			t.Fatal(err)
		}
		got, err := get(t, c, u.String())
		if want, fails := strings.CutPrefix(tt.want, "!"); fails {
			if !errors.Is(err, ErrCredential) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "no-colon") {
				t.Errorf("%+v: %q, %v; want %q", tt.auth, got, err, want)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%+v: %q, %v; want %q", tt.auth, got, err, tt.want)
		}
	}
	for _, auth := range []aaif.Auth{
		{Type: aaif.AuthBearer},
		{Type: "kerberos", EnvVar: "TOKEN"},
		{Type: aaif.AuthAPIKey, EnvVar: "TOKEN", Header: "Host"},
		{Type: aaif.AuthAPIKey, EnvVar: "TOKEN", Header: "Content-Length"},
		{Type: aaif.AuthAPIKey, EnvVar: "TOKEN", Header: "a b"},
		{Type: aaif.AuthOAuth2, EnvVar: "TOKEN"},
		{Type: aaif.AuthOAuth2, EnvVar: "TOKEN", TokenURL: "https://evil.example/token"},
		{Type: aaif.AuthAWSSigV4, EnvVar: "TOKEN"},
		{Type: aaif.AuthAWSSigV4, EnvVar: "TOKEN", Scopes: []string{"admin"}},
	} {
		if _, err := p.Client(Options{Endpoint: u, Auth: &auth, Secrets: secrets.set}); err == nil {
			t.Errorf("%+v is accepted", auth)
		}
	}
	for _, o := range []Options{{}, {Endpoint: u, KeyIn: "query"}, {Endpoint: u, KeyIn: "cookie"}, {Endpoint: u, KeyIn: "path", KeyName: "key"}} {
		o.Auth, o.Secrets = &aaif.Auth{Type: aaif.AuthAPIKey, EnvVar: "TOKEN"}, secrets.set
		if _, err := p.Client(o); err == nil {
			t.Errorf("a key of %v in %q as %q is accepted", o.Endpoint, o.KeyIn, o.KeyName)
		}
	}
}

// Each part of a credential that is secret by itself is known to the Redactor, because a server
// may repeat it alone.
func TestEachPartOfACredentialIsRedacted(t *testing.T) {
	t.Parallel()
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"access-1234-Kd82mQz71pL","token_type":"bearer"}`)
	})
	for _, tt := range []struct {
		auth  aaif.Auth
		value string
		parts []string
	}{
		{aaif.Auth{Type: aaif.AuthBearer}, " token-1234\n", []string{"token-1234"}},
		{aaif.Auth{Type: aaif.AuthBasic}, "ann:password-1", []string{"password-1"}},
		{aaif.Auth{Type: aaif.AuthOAuth2, TokenURL: u.String()}, "app:client-1234", []string{"client-1234", "access-1234-Kd82mQz71pL"}},
		{aaif.Auth{Type: aaif.AuthAWSSigV4, Scopes: []string{"service=lambda", "region=eu-west-1"}}, "AKID:secret-1234:session-1234", []string{"secret-1234", "session-1234"}},
	} {
		access := Access{Policy: newPolicy(t, Config{Allow: []string{u.String()}}), Secrets: newSecrets("T", tt.value).set}
		tt.auth.EnvVar = "T"
		c, err := access.Client(u, &tt.auth)
		if err == nil {
			_, err = get(t, c, u.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range tt.parts {
			if got := access.Secrets.Redactor().Scrub("it is " + part); got != "it is "+secret.Redacted {
				t.Errorf("%s: %q", tt.auth.Type, got)
			}
		}
	}
}

// A client's tokens are known to the Redactor for as long as one may be under way: the current one
// and the one before it. Those of other clients stay.
func TestOldTokensAreForgotten(t *testing.T) {
	t.Parallel()
	var given atomic.Int32
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"access-1234-Kd82mQz71pL-%d","token_type":"bearer"}`, given.Load())
			return
		}
		if r.Header.Get("Authorization") != fmt.Sprintf("Bearer access-1234-Kd82mQz71pL-%d", given.Load()) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	access := Access{Policy: newPolicy(t, Config{Allow: []string{u.String()}}), Secrets: newSecrets("T", "app:client-1234").set}
	client := func() *http.Client {
		c, err := access.Client(u, &aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "T", TokenURL: u.String() + "/token"})
		if err == nil {
			_, err = get(t, c, u.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	client() // its only token is number 0
	given.Add(1)
	client() // and of this one number 1, which the next client gets, too
	c := client()
	for range 3 {
		given.Add(1)
		if got, err := get(t, c, u.String()); err != nil || got != "200 " {
			t.Fatal(got, err)
		}
	}
	var known []int
	for i := range 5 {
		if access.Secrets.Redactor().Holds(fmt.Sprintf("access-1234-Kd82mQz71pL-%d", i)) {
			known = append(known, i)
		}
	}
	if want := []int{0, 1, 3, 4}; !slices.Equal(known, want) {
		t.Errorf("the tokens %v are known, want %v", known, want)
	}
}

// The access token is the token endpoint's choice: one that may be a part of other texts is not
// removed from them, because that would damage the results of all tools.
func TestATokenEndpointCannotBlankWords(t *testing.T) {
	t.Parallel()
	for token, texts := range map[string][]string{
		"text":                           {`{"text":"hello"}`},
		"true":                           {`{"ok":true}`},
		"12345678":                       {`{"amount":12345678}`},
		"unevaluatedProperties":          {`{"unevaluatedProperties":false}`},
		"customer_billing_address_line":  {`{"customer_billing_address_line":"5 High Street"}`},
		"finance.department@example.com": {`{"to":"finance.department@example.com"}`},
		`1","properties":{"a":{"type"`:   {`{"version":"1","properties":{"a":{"type":"string"}}}`},
		"[0,0,0,0,0,0,0,0,0,0,0,0,0]":    {`{"vector":[0,0,0,0,0,0,0,0,0,0,0,0,0]}`},
		"is 1 of the orders of today":    {`{"text":"this is 1 of the orders of today"}`},
	} {
		answer, err := json.Marshal(map[string]string{"access_token": token, "token_type": "bearer"})
		if err != nil {
			t.Fatal(err)
		}
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer)
		})
		access := Access{Policy: newPolicy(t, Config{Allow: []string{u.String()}}), Secrets: newSecrets("T", "app:client-1234").set}
		c, err := access.Client(u, &aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "T", TokenURL: u.String()})
		if err == nil {
			_, err = get(t, c, u.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if got := access.Secrets.Redactor().JSON(json.RawMessage(text)); string(got) != text {
				t.Errorf("with the token %s, %s becomes %s", token, text, got)
			}
		}
	}
}

// The address that a server redirects to may repeat a credential, and the operator's log has it.
func TestARefusedRedirectDoesNotRepeatCredentials(t *testing.T) {
	t.Parallel()
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "ftp://elsewhere.example/"+r.Header.Get(DefaultKeyHeader), http.StatusFound)
	})
	access := Access{Policy: newPolicy(t, Config{Allow: []string{u.String()}}), Secrets: newSecrets("T", "key-1234").set}
	c, err := access.Client(u, &aaif.Auth{Type: aaif.AuthAPIKey, EnvVar: "T"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = access.Call(t.Context(), c, Request{Method: "GET", URL: u})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "ftp://elsewhere.example/") || strings.Contains(err.Error(), "key-1234") {
		t.Error(err)
	}
}

// A query is sent as it was written, with the credential added: servers may
// tell encoded characters from plain ones. No pair has the credential's name.
func TestACredentialInAQueryLeavesTheOtherPairsAsTheyAre(t *testing.T) {
	t.Parallel()
	u := serve(t, echoHeaders)
	p := newPolicy(t, Config{Allow: []string{u.String()}})
	c := newClient(t, p, Options{Endpoint: u, Auth: &aaif.Auth{Type: aaif.AuthAPIKey, EnvVar: "T"}, Secrets: newSecrets("T", "t k&=").set, KeyIn: "query", KeyName: "a key"})
	for query, want := range map[string]string{
		"":                                 "a+key=t+k%26%3D",
		"z=1,2&b=%2C&a=x%20y":              "z=1,2&b=%2C&a=x%20y&a+key=t+k%26%3D",
		"a+key=mine&b=1&a%20key=2&a%20key": "b=1&a+key=t+k%26%3D",
		"b=1;c=2;a+key=mine;d":             "b=1;c=2;d&a+key=t+k%26%3D",
		"a+key=mine":                       "a+key=t+k%26%3D",
		"a+keys=1&%zz=2":                   "a+keys=1&%zz=2&a+key=t+k%26%3D",
	} {
		to := *u
		to.RawQuery = query
		if got, err := get(t, c, to.String()); err != nil || got != "200 ||"+want+"|" {
			t.Errorf("%s: %q, %v; want %q", query, got, err, want)
		}
	}
}

// An argument of a call, which may be a cookie of any name, does not stand in for the credential.
func TestACredentialInACookieIsTheOnlyOneOfItsName(t *testing.T) {
	t.Parallel()
	u := serve(t, echoHeaders)
	p := newPolicy(t, Config{Allow: []string{u.String()}})
	c := newClient(t, p, Options{Endpoint: u, Auth: &aaif.Auth{Type: aaif.AuthAPIKey, EnvVar: "T"}, Secrets: newSecrets("T", "tok").set, KeyIn: "cookie", KeyName: "sid"})
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", "a=1; sid=mine; sid2=2;sid=again")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "|||sid=tok; a=1; sid2=2" {
		t.Errorf("%q, %v", got, err)
	}
}

// A credential goes to its endpoint's origin, and to no other that this origin names.
func TestCredentialsStayWithTheirOrigin(t *testing.T) {
	t.Parallel()
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if back := r.URL.Query().Get("back"); back != "" {
			http.Redirect(w, r, back, http.StatusFound)
			return
		}
		echoHeaders(w, r)
	})
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		echoHeaders(w, r)
	})
	p := newPolicy(t, Config{Allow: []string{u.String(), other.String()}})
	c := newClient(t, p, Options{Endpoint: u, Auth: &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "T"}, Secrets: newSecrets("T", "tok").set})
	for target, want := range map[string]string{
		u.String():                             "200 Bearer tok|||",
		other.String():                         "200 |||",
		u.String() + "?to=" + other.String():   "200 |||",
		u.String() + "?to=/x":                  "200 Bearer tok|||",
		other.String() + "?back=" + u.String(): "200 |||", // a stranger chose what to ask for
		u.String() + "?to=" + other.String() + "%3Fback=" + u.String(): "200 |||",
	} {
		if got, err := get(t, c, target); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", target, got, err, want)
		}
	}
}

// What was changed in a vault is read again when the endpoint says 401, once.
func TestChangedCredentialsAreReadAgain(t *testing.T) {
	t.Parallel()
	secrets := newSecrets("T", "old")
	var asked atomic.Int32
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "Bearer new" || string(body) != "body" {
			secrets.Store("T", "new")
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	p := newPolicy(t, Config{Allow: []string{u.String()}})
	c := newClient(t, p, Options{Endpoint: u, Auth: &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "T"}, Secrets: secrets.set})
	if _, err := (Access{Policy: p}).Call(t.Context(), c, Request{Method: "POST", URL: u, Body: []byte("body")}); err != nil || asked.Load() != 2 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
	secrets.Store("T", "wrong")
	asked.Store(0)
	c = newClient(t, p, Options{Endpoint: u, Auth: &aaif.Auth{Type: aaif.AuthBearer, EnvVar: "W"}, Secrets: newSecrets("W", "wrong").set})
	if _, err := (Access{Policy: p}).Call(t.Context(), c, Request{Method: "POST", URL: u, Body: []byte("body")}); err == nil || asked.Load() != 1 {
		t.Errorf("%v after %d requests; want one", err, asked.Load())
	}
}

// What a server repeats of a credential is taken out of answers and errors.
func TestAnswersDoNotRepeatCredentials(t *testing.T) {
	t.Parallel()
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/fail" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprintf(w, `{"message":"no such key: %s"}`, r.Header.Get("Authorization"))
	})
	access := Access{Policy: newPolicy(t, Config{Allow: []string{u.String()}}), Secrets: newSecrets("P", "ann:sup3r-s3cret-w0rd").set}
	c, err := access.Client(u, &aaif.Auth{Type: aaif.AuthBasic, EnvVar: "P"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := access.Call(t.Context(), c, Request{Method: "GET", URL: u})
	if err != nil {
		t.Fatal(err)
	}
	result, err := a.JSON()
	if err != nil || strings.Contains(string(result), "YW5uOnN1cDNy") || !strings.Contains(string(result), "no such key") {
		t.Errorf("%s, %v", result, err)
	}
	_, err = access.Call(t.Context(), c, Request{Method: "GET", URL: u.JoinPath("fail")})
	if err == nil || strings.Contains(err.Error(), "YW5uOnN1cDNy") || !strings.Contains(err.Error(), "no such key") {
		t.Error(err)
	}
}

// The call was made: what its answer looks like must not turn it into one that failed.
func TestAnAnswerIsJSONWhereverItsCredentialsAreAndWhateverItBeginsWith(t *testing.T) {
	t.Parallel()
	access := Access{Secrets: newSecrets("P", "123456789").set}
	if _, err := access.Secrets.Variable("P"); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"key":123456789,"n":1.0}`: `{"key":"[redacted]","n":1.0}`,
		"\ufeff{\"n\":1.0}\r\n":     `{"n":1.0}`,
		"\ufeff ":                   `{"status":200}`,
	} {
		for _, kind := range []string{"application/json", "text/plain", ""} {
			got, err := (&Answer{Status: 200, Type: kind, Body: []byte(body), secrets: access.Secrets.Redactor()}).JSON()
			if err != nil || string(got) != want {
				t.Errorf("%q of type %q is %s, %v; want %s", body, kind, got, err, want)
			}
		}
	}
}

func TestOAuth2ClientCredentials(t *testing.T) {
	t.Parallel()
	var tokens, calls atomic.Int32
	var valid atomic.Value
	valid.Store("")
	grant := serve(t, func(w http.ResponseWriter, r *http.Request) {
		id, password, _ := r.BasicAuth()
		if id != "app" || password != "s3cret" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "read write" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client","error_description":"wrong secret s3cret"}`)
			return
		}
		token := fmt.Sprintf("token-%d", tokens.Add(1))
		valid.Store(token)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"bearer","expires_in":3600}`, token)
	})
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	p := newPolicy(t, Config{Allow: []string{u.String(), grant.String()}})
	auth := &aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "T", TokenURL: grant.String() + "/token", Scopes: []string{"read", "write"}}
	for _, format := range []string{"app:s3cret", `{"client_id":"app","client_secret":"s3cret"}`} {
		tokens.Store(0)
		access := Access{Policy: p, Secrets: newSecrets("T", format).set}
		c, err := access.Client(u, auth)
		if err != nil {
			t.Fatal(err)
		}
		call := func() error {
			a, err := access.Call(t.Context(), c, Request{Method: "POST", URL: u, Body: []byte("body")})
			if err == nil && string(a.Body) != "body" {
				err = fmt.Errorf("body %q", a.Body)
			}
			return err
		}
		var wg sync.WaitGroup
		for range 8 { // one token for all
			wg.Go(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if tokens.Load() != 1 {
			t.Errorf("%d tokens for 8 calls", tokens.Load())
		}
		valid.Store("revoked")
		if err := call(); err != nil || tokens.Load() != 2 {
			t.Errorf("after a revocation: %v, %d tokens", err, tokens.Load())
		}
	}
	// What is refused is refused once, and the token endpoint's words stay there.
	for _, bad := range []string{"app:wrong", "nonsense", `{"client":1}`} {
		access := Access{Policy: p, Secrets: newSecrets("T", bad).set}
		c, err := access.Client(u, auth)
		if err != nil {
			t.Fatal(err)
		}
		_, err = access.Call(t.Context(), c, Request{Method: "POST", URL: u})
		var f *Failure
		if !errors.As(err, &f) || f.Reason != ReasonCredential || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	// A token of another type is not sent as one of type bearer.
	mac := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"x","token_type":"mac"}`)
	})
	unasked := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a token of type mac was sent") })
	p = newPolicy(t, Config{Allow: []string{unasked.String(), mac.String()}})
	auth = &aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "T", TokenURL: mac.String()}
	if _, err := get(t, newClient(t, p, Options{Endpoint: unasked, Auth: auth, Secrets: newSecrets("T", "app:s3cret").set}), unasked.String()); !errors.Is(err, ErrCredential) {
		t.Error(err)
	}
	// A redirect would carry the secret off.
	thief := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the secret was carried off") })
	moved := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.String(), http.StatusTemporaryRedirect)
	})
	p = newPolicy(t, Config{Allow: []string{u.String(), thief.String(), moved.String()}})
	auth = &aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "T", TokenURL: moved.String()}
	c := newClient(t, p, Options{Endpoint: u, Auth: auth, Secrets: newSecrets("T", "app:s3cret").set})
	if _, err := get(t, c, u.String()); !errors.Is(err, ErrCredential) {
		t.Error(err)
	}
}

// A server that is asked for its token endpoint cannot name one that only "*" permits, unless
// it is its own.
func TestAServerCannotTakeAnOAuthClientsSecretElsewhere(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"access_token":"tok","token_type":"bearer"}`)
		case r.Header.Get("Authorization") != "Bearer tok":
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	p := newPolicy(t, Config{Allow: []string{"*"}, Private: []string{"127.0.0.1"}, RootCAs: roots})
	secrets := newSecrets("PAIR", "me:s3cret")
	for token, want := range map[string]string{srv.URL + "/token": "", "https://thief.example/token": `add "thief.example" to outbound.allow`} {
		c := newClient(t, p, Options{
			Endpoint: parsed(t, srv.URL), Auth: &aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "PAIR"}, Secrets: secrets.set,
			Discover: func(context.Context, *http.Response, *http.Client) (Grant, error) { return Grant{TokenURL: token}, nil },
		})
		_, err := get(t, c, srv.URL+"/x")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", token, err, want)
		}
	}
}

// tokenServer is a transport that gives tokens, for tests of time.
type tokenServer struct{ tokens, lifetime int }

func (s *tokenServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body := "ok"
	if r.URL.Path == "/token" {
		s.tokens++
		body = fmt.Sprintf(`{"access_token":"t%d","token_type":"Bearer","expires_in":%d}`, s.tokens, s.lifetime)
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// A token is replaced before its end.
func TestTokensAreRefreshedBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ lifetime, wait, tokens int }{
		{3600, 3500, 1}, {3600, 3545, 2}, {60, 29, 1}, {60, 31, 2}, {0, 3000, 1}, {0, 4000, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &tokenServer{lifetime: tt.lifetime}
			auth := &aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "T"}
			rt := &clientCredentials{next: server, credential: credential{newSecrets("T", "a:b").set, auth}, grant: Grant{TokenURL: "https://x.example/token"},
				client: &http.Client{Transport: server}, turn: make(chan struct{}, 1)}
			for range 2 {
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://x.example/", nil)
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				<-time.After(time.Duration(tt.wait) * time.Second)
			}
			if server.tokens != tt.tokens {
				t.Errorf("a token of %d s, used again after %d: %d tokens, want %d", tt.lifetime, tt.wait, server.tokens, tt.tokens)
			}
		})
	}
}

// A token that is due is used while its endpoint gives no other, until it really expires. The
// endpoint is tried again some seconds later. A call whose context has ended fails nevertheless.
func TestADueTokenIsUsedWhileItsEndpointIsDown(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := &tokenServer{lifetime: 3600}
			tries, down, sent := 0, false, ""
			next := tripper(func(r *http.Request) (*http.Response, error) {
				switch {
				case r.URL.Path != "/token":
					sent = r.Header.Get("Authorization")
				case down && hangs:
					tries++
					<-r.Context().Done()
					return nil, r.Context().Err()
				case down:
					tries++
					return &http.Response{StatusCode: 503, Body: http.NoBody, Request: r}, nil
				}
				return server.RoundTrip(r)
			})
			auth := &aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "T"}
			rt := &clientCredentials{next: next, credential: credential{newSecrets("T", "a:b").set, auth}, grant: Grant{TokenURL: "https://x.example/token"},
				client: &http.Client{Transport: next}, turn: make(chan struct{}, 1),
				find: func(context.Context, *http.Response) (Grant, error) { return Grant{}, errors.New("not asked for") }} // so that one request is one try
			call := func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
				defer cancel()
				sent = ""
				req, _ := http.NewRequestWithContext(ctx, "GET", "https://x.example/", nil)
				resp, err := rt.RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				return err
			}
			begun := time.Now()
			at := func(d time.Duration) { <-time.After(time.Until(begun.Add(d))) }
			if err := call(t.Context()); err != nil {
				t.Fatal(err)
			}
			down = true
			at(3545 * time.Second)
			for range 2 {
				if err := call(t.Context()); err != nil || sent != "Bearer t1" || tries != 1 {
					t.Errorf("hangs %v: %v, sent %q after %d tries", hangs, err, sent, tries)
				}
			}
			at(3570 * time.Second)
			ended, end := context.WithCancel(t.Context())
			end()
			if err := call(ended); !errors.Is(err, context.Canceled) {
				t.Errorf("hangs %v: a call that was cancelled: %v", hangs, err)
			}
			tries = 1
			if err := call(t.Context()); err != nil || sent != "Bearer t1" || tries != 2 {
				t.Errorf("hangs %v: %v, sent %q after %d tries", hangs, err, sent, tries)
			}
			at(3601 * time.Second)
			if err := call(t.Context()); err == nil || sent != "" {
				t.Errorf("hangs %v: an expired token: %v, sent %q", hangs, err, sent)
			}
			down = false
			if err := call(t.Context()); err != nil || sent != "Bearer t2" {
				t.Errorf("hangs %v: %v, sent %q", hangs, err, sent)
			}
		})
	}
}

// tripper is a function as a transport.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// verify is Signature Version 4 from the server's side, after AWS's description.
func verify(r *http.Request, body []byte, key string) (scope string, ok bool) {
	var fields = map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ", ") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	id, scope, _ := strings.Cut(fields["Credential"], "/")
	names := strings.Split(fields["SignedHeaders"], ";")
	if id != "AKID" || !slices.Contains(names, "host") {
		return scope, false
	}
	sum := func(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }
	mac := func(k []byte, s string) []byte { h := hmac.New(sha256.New, k); h.Write([]byte(s)); return h.Sum(nil) }
	canonical := r.Method + "\n" + r.URL.EscapedPath() + "\n" + r.URL.Query().Encode() + "\n"
	for _, name := range names {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		canonical += name + ":" + value + "\n"
	}
	canonical += "\n" + fields["SignedHeaders"] + "\n" + sum(body)
	k := []byte("AWS4" + key)
	for part := range strings.SplitSeq(scope, "/") {
		k = mac(k, part)
	}
	text := "AWS4-HMAC-SHA256\n" + r.Header.Get("X-Amz-Date") + "\n" + scope + "\n" + sum([]byte(canonical))
	return scope, hex.EncodeToString(mac(k, text)) == fields["Signature"]
}

func TestRequestsAreSignedForAWS(t *testing.T) {
	t.Parallel()
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		scope, ok := verify(r, body, "KEY")
		_, service, _ := strings.Cut(scope, "/")
		fmt.Fprintf(w, "%s %v %s", service, ok, r.Header.Get("X-Amz-Security-Token"))
	})
	p := newPolicy(t, Config{Allow: []string{u.String()}})
	auth := &aaif.Auth{Type: aaif.AuthAWSSigV4, EnvVar: "T", Scopes: []string{"service=execute-api", "region=eu-west-1"}}
	for text, want := range map[string]string{
		"AKID:KEY": "eu-west-1/execute-api/aws4_request true ", "AKID:KEY:tok:en": "eu-west-1/execute-api/aws4_request true tok:en",
		`{"access_key_id":"AKID","secret_access_key":"KEY"}`:                             "eu-west-1/execute-api/aws4_request true ",
		`{"AccessKeyId":"AKID","SecretAccessKey":"KEY","SessionToken":"st","Version":1}`: "eu-west-1/execute-api/aws4_request true st",
		"AKID:WRONG": "eu-west-1/execute-api/aws4_request false ", "AKID": "!", "{}": "!",
	} {
		access := Access{Policy: p, Secrets: newSecrets("T", text).set}
		c, err := access.Client(u, auth)
		if err != nil {
			t.Fatal(err)
		}
		a, err := access.Call(t.Context(), c, Request{Method: "POST", URL: parsed(t, u.String()+"/a/b?x=1&a=2"), Body: []byte(`{"n":1}`), Type: "application/json", Key: "k"})
		if want == "!" {
			if !errors.Is(err, ErrCredential) {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil || string(a.Body) != want {
			t.Errorf("%s: %s, %v; want %s", text, a.Body, err, want)
		}
	}
	// A signature of a part of a body would be one of another request.
	c := newClient(t, p, Options{Endpoint: u, Auth: auth, Secrets: newSecrets("T", "AKID:KEY").set})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(zeros{}, maxSigned+1)), nil }
	if req.Body, err = req.GetBody(); err == nil {
		_, err = c.Do(req)
	}
	if err == nil || !strings.Contains(err.Error(), "can be signed") {
		t.Errorf("a body that is too large: %v", err)
	}
	for host, want := range map[string]string{
		"abc.execute-api.eu-west-1.amazonaws.com": "execute-api eu-west-1", "lambda.us-east-2.amazonaws.com": "lambda us-east-2",
		"bucket.s3.eu-central-1.amazonaws.com": "s3 eu-central-1", "iam.amazonaws.com": "iam us-east-1", "x.lambda-url.ap-southeast-2.on.aws": "lambda ap-southeast-2",
		"dynamodb.cn-north-1.amazonaws.com.cn": "dynamodb cn-north-1", "bedrock-runtime.us-gov-west-1.amazonaws.com": "bedrock us-gov-west-1",
		"search-x.us-east-1.es.amazonaws.com": "es us-east-1", "vpce-1.execute-api.us-east-1.vpce.amazonaws.com": "execute-api us-east-1", "example.com": " ",
	} {
		service, region := awsOf(host)
		if got := service + " " + region; got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}
