package cert_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/cert"
)

// serve starts a server with a certificate of its own, which a client that it returns trusts
// if asked to.
func serve(t *testing.T, host string, from, until time.Duration, trusted bool) (url string, client *http.Client) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	if trusted {
		roots.AddCert(parsed(t, der))
	}
	return srv.URL, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "here.example"}}}
}

func parsed(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFaultsOfServersCertificates(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for name, c := range map[string]struct {
		host        string
		from, until time.Duration
		trusted     bool
		what, hint  string
	}{
		"good":          {"here.example", -hour, hour, true, "", ""},
		"expired":       {"here.example", -2 * hour, -hour, true, "has expired", "needs a new one; is this computer's clock right?"},
		"not yet valid": {"here.example", hour, 2 * hour, true, "not valid yet", "it is valid from"},
		"wrong host":    {"there.example", -hour, hour, true, "for another host", "use the name"},
		"self-signed":   {"here.example", -hour, hour, false, "unknown authority", "with --authorities"},
	} {
		url, client := serve(t, c.host, c.from, c.until, c.trusted)
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		what, hint := cert.Fault(err, "--authorities")
		if (err == nil) != (c.what == "") || (what == "") != (c.what == "") || !strings.Contains(what, c.what) || !strings.Contains(hint, c.hint) {
			t.Errorf("%s: %q, %q of %v", name, what, hint, err)
		}
	}
	if what, hint := cert.Fault(errors.New("another error"), ""); what+hint != "" {
		t.Errorf("%q, %q", what, hint)
	}
}
