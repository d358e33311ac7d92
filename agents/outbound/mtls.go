package outbound

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"runtime"
	"weak"
)

// certificates reads the certificate and its key for each connection: one PEM
// text with both, and with intermediate certificates.
func certificates(c credential) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pem, err := c.text(info.Context())
		if err != nil {
			return nil, err
		}
		cert, err := tls.X509KeyPair([]byte(pem), []byte(pem))
		if err != nil { // its text may quote what could not be parsed
			return nil, fmt.Errorf("%w: for mtls it is a certificate and its key, PEM", ErrCredential)
		}
		return &cert, nil
	}
}

// keep records a transport with a certificate for [Policy.Close], as long as it is in use: by a
// client or by an open connection.
func (p *Policy) keep(t *http.Transport) {
	ref := weak.Make(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own[ref] = true
	runtime.AddCleanup(t, p.forget, ref)
}

func (p *Policy) forget(ref weak.Pointer[http.Transport]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, ref)
}
