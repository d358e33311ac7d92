package cert

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"
)

// Fault returns why a server's certificate was refused with err, and a hint. Both are empty if err
// has another reason. authorities names the place where a user lists the trusted authorities.
// Neither text quotes the certificate.
func Fault(err error, authorities string) (what, hint string) {
	var refused *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case !errors.As(err, &refused):
		return "", ""
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		const hint = "; is this computer's clock right?"
		if from := invalid.Cert.NotBefore; time.Now().Before(from) {
			return "the server's certificate is not valid yet", "it is valid from " + day(from) + hint
		}
		return "the server's certificate has expired", "it was valid until " + day(invalid.Cert.NotAfter) + ": the server needs a new one" + hint
	case errors.As(err, new(x509.HostnameError)):
		return "the server's certificate is for another host", "use the name that it is for, or give the server one for this name"
	case errors.As(err, &unknown):
		return "the server's certificate is of an unknown authority", "name the file of the authority that signed it with " + authorities
	}
	return "the server's certificate is not trusted", "the server needs another one"
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
