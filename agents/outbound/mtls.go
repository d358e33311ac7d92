package outbound

import (
	"crypto/tls"
	"fmt"
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
