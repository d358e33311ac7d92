package outbound

import (
	"crypto/tls"
	"fmt"
)

// certificates looks the certificate and its key up for each connection: one PEM
// text with both, the certificates of those between beside them.
func certificates(c credential) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pem, err := c.text(info.Context())
		if err != nil {
			return nil, err
		}
		cert, err := tls.X509KeyPair([]byte(pem), []byte(pem))
		if err != nil { // whose text may quote what it could not read
			return nil, fmt.Errorf("%w: for mtls it is a certificate and its key, PEM", ErrCredential)
		}
		return &cert, nil
	}
}
