package secret

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
)

// maxAnswer is the maximum size of an answer of a vault.
const maxAnswer = 1 << 20

// HTTPClient makes a client for a vault: TLS 1.2 or newer, answers of up to 1
// MiB. caFile is a PEM file of authorities to trust instead of the system's; if
// empty, the system's are trusted. Redirects are not followed, so that a
// vault's token is sent to no other server.
func HTTPClient(caFile string) (*http.Client, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate in PEM", caFile)
		}
		base.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{
		Transport:     Bounded(base),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// Bounded wraps a transport: its answers fail after 1 MiB.
func Bounded(next http.RoundTripper) http.RoundTripper { return bounded{next} }

type bounded struct{ next http.RoundTripper }

// RoundTrip sends the request.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// OfStatus returns the kind of failure for an HTTP status of a vault that is
// not 2xx.
func OfStatus(status int) Kind {
	switch {
	case status == http.StatusNotFound, status == http.StatusGone:
		return ErrNotFound
	case status == http.StatusRequestTimeout, status == http.StatusPreconditionFailed, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return ErrUnavailable
	case status >= 400 && status < 500:
		return ErrDenied
	}
	return ErrUnavailable
}
