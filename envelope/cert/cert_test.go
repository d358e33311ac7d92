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

// serve starts a server with a certificate of its own, and returns a client, which trusts the
// certificate if trusted is set.
func serve(t *testing.T, host string, from, until time.Duration, trusted bool, usage ...x509.ExtKeyUsage) (url string, client *http.Client) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until), ExtKeyUsage: usage}
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
		usage       []x509.ExtKeyUsage
	}{
		"good":          {"here.example", -hour, hour, true, "", "", nil},
		"expired":       {"here.example", -2 * hour, -hour, true, "has expired", "needs a new one; is this computer's clock right?", nil},
		"not yet valid": {"here.example", hour, 2 * hour, true, "not valid yet", "it is valid from", nil},
		"wrong host":    {"there.example", -hour, hour, true, "for another host", "use the name", nil},
		"self-signed":   {"here.example", -hour, hour, false, "unknown authority", "with --authorities", nil},
		"a client's":    {"here.example", -hour, hour, true, "is not trusted", "needs another one", []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	} {
		url, client := serve(t, c.host, c.from, c.until, c.trusted, c.usage...)
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

// The hint has the relevant end of the certificate's validity, in UTC, and the setting that names
// authorities.
func TestFaultsSayWhatToDo(t *testing.T) {
	t.Parallel()
	east := time.FixedZone("", 2*60*60)
	old, next := time.Date(2001, 2, 3, 1, 30, 0, 0, east), time.Date(2998, 7, 6, 5, 4, 0, 0, time.UTC)
	refused := func(from, until time.Time) error {
		return &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: &x509.Certificate{NotBefore: from, NotAfter: until}, Reason: x509.Expired}}
	}
	for _, c := range []struct {
		err        error
		what, hint string
	}{
		{refused(old.AddDate(-1, 0, 0), old), "the server's certificate has expired", "it was valid until 2001-02-02 23:30 UTC: the server needs a new one; is this computer's clock right?"},
		{refused(next, next.AddDate(1, 0, 0)), "the server's certificate is not valid yet", "it is valid from 2998-07-06 05:04 UTC; is this computer's clock right?"},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, "the server's certificate is of an unknown authority", "name the file of the authority that signed it with outbound.ca_file"},
	} {
		if what, hint := cert.Fault(c.err, "outbound.ca_file"); what != c.what || hint != c.hint {
			t.Errorf("%q, %q\nwant %q, %q", what, hint, c.what, c.hint)
		}
	}
}
