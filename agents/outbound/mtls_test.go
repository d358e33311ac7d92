package outbound

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
)

// newCert makes a certificate that a CA signed, or that signs itself.
func newCert(t *testing.T, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca, caKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	return cert, key, text
}

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	ca, caKey, _ := newCert(t, "ca", nil, nil)
	_, _, client := newCert(t, "client-1", ca, caKey)
	_, _, stranger := newCert(t, "stranger", nil, nil)
	clients := x509.NewCertPool()
	clients.AddCert(ca)
	start := func(auth tls.ClientAuthType) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if to := r.URL.Query().Get("to"); to != "" {
				http.Redirect(w, r, to, http.StatusFound)
				return
			}
			name := "nobody"
			if len(r.TLS.PeerCertificates) > 0 {
				name = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			_, _ = io.WriteString(w, name)
		}))
		s.TLS = &tls.Config{ClientAuth: auth, ClientCAs: clients}
		s.Config.ErrorLog = nil
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	s, other := start(tls.RequireAndVerifyClientCert), start(tls.RequestClientCert)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	roots.AddCert(other.Certificate())
	p := newPolicy(t, Config{Allow: []string{parsed(t, s.URL).Host, parsed(t, other.URL).Host}, RootCAs: roots})
	u := parsed(t, s.URL)
	for text, want := range map[string]string{client: "200 client-1", stranger: "!", "nonsense": "!"} {
		secrets := newSecrets("T", text)
		c := newClient(t, p, Options{Endpoint: u, Auth: &aaif.Auth{Type: aaif.AuthMTLS, EnvVar: "T"}, Secrets: secrets.set})
		got, err := get(t, c, s.URL)
		if want == "!" && (err == nil || strings.Contains(err.Error(), "nonsense")) || want != "!" && (err != nil || got != want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		if text == client { // and not to the other server
			if got, err := get(t, c, s.URL+"?to="+other.URL); err != nil || got != "200 nobody" {
				t.Errorf("to another origin: %q, %v", got, err)
			}
		}
	}
	if got, err := get(t, newClient(t, p, Options{}), s.URL); err == nil {
		t.Errorf("without a certificate: %q", got)
	}
	// A server with an untrusted certificate gets no request.
	strict := newPolicy(t, Config{Allow: []string{u.Host}})
	_, err := Access{Policy: strict}.Call(t.Context(), newClient(t, strict, Options{}), Request{Method: "GET", URL: u})
	var f *Failure
	if !errors.As(err, &f) || f.Reason != ReasonUnreachable {
		t.Error(err)
	}
}

// Where nothing is encrypted there is no handshake to show a certificate in: a
// call would have no identity (AAIF, Tool Definitions: auth).
func TestMTLSNeedsTLS(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Config{Allow: []string{"*", "http://api.example"}})
	for endpoint, fine := range map[string]bool{
		"http://api.example/x": false, "ws://api.example/x": false, "HTTP://api.example/x": false,
		"https://api.example/x": true, "wss://api.example/x": true,
	} {
		o := Options{Endpoint: parsed(t, endpoint), Auth: &aaif.Auth{Type: aaif.AuthMTLS, EnvVar: "T"}}
		if _, err := p.Client(o); fine != (err == nil) || err != nil && !strings.Contains(err.Error(), "mtls needs https") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

// A policy remembers the connections of a client with a certificate, and closes them. It does not
// remember them when the client is not used any more.
func TestAPolicyForgetsClientsWithACertificate(t *testing.T) {
	t.Parallel()
	_, _, text := newCert(t, "client-1", nil, nil)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	u := parsed(t, s.URL)
	p := newPolicy(t, Config{Allow: []string{u.Host}, RootCAs: roots})
	o := Options{Endpoint: u, Auth: &aaif.Auth{Type: aaif.AuthMTLS, EnvVar: "T"}, Secrets: newSecrets("T", text).set}
	used := newClient(t, p, o)
	for range 20 {
		if got, err := get(t, newClient(t, p, o), s.URL); err != nil || got != "200 " {
			t.Fatal(got, err)
		}
	}
	known := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.own)
	}
	if known() < 20 {
		t.Errorf("%d clients with open connections are known, want all", known())
	}
	p.Close()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for known() != 1 {
		runtime.GC()
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%d clients are known, want the one that is used", known())
		}
	}
	if got, err := get(t, used, s.URL); err != nil || got != "200 " {
		t.Error(got, err)
	}
}
