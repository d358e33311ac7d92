package natsconn

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/aeemesh/aeemesh/envelope/sign"
)

// A NATS server proves who connects by a nonce that it chooses and the connection's user
// key signs. Envelopes are signed with keys of the same kind, and a signature does not say
// what it is for: a malicious server could send an envelope of its choice as the nonce and
// get it signed. So no key may be used for both.

// ErrKeyServesTwice is wrapped by the error for a connection whose user key signs
// envelopes, too.
var ErrKeyServesTwice = errors.New("one key is for the connection and for envelopes")

// CheckSigner fails with [ErrKeyServesTwice] where the key of a signer of envelopes is the
// user key of a connection. Each of them may be nil.
func CheckSigner(conn *nats.Conn, s *sign.Signer) error {
	if s == nil || conn == nil {
		return nil
	}
	return servesTwice(&conn.Opts, s.Key())
}

// servesTwice fails where one of the keys is the user key of a connection with these
// options. Those of a connection that is in use change under its lock, so that they cannot be
// copied.
func servesTwice(opts *nats.Options, keys ...sign.Key) error {
	user := userKey(opts)
	if user == "" {
		return nil
	}
	for _, k := range keys {
		if k.Alg != sign.Ed25519 {
			continue
		}
		if public, err := nkeys.Encode(nkeys.PrefixByteUser, k.Public); err == nil && string(public) == user {
			return fmt.Errorf("%w: %s is the NATS user and signing key %q", ErrKeyServesTwice, user, k.KID)
		}
	}
	return nil
}

// apart refuses a connection with one of its SigningKeys.
func (c Config) apart(opts []nats.Option) error {
	if len(c.SigningKeys) == 0 {
		return nil
	}
	applied := nats.GetDefaultOptions()
	for _, opt := range opts {
		if err := opt(&applied); err != nil {
			return err
		}
	}
	return servesTwice(&applied, c.SigningKeys...)
}

// userKey is the public key of the NATS user that the options connect as; "" where there
// is none, or where it cannot be read: then connecting fails, too.
func userKey(opts *nats.Options) string {
	if opts.Nkey != "" || opts.UserJWT == nil {
		return opts.Nkey
	}
	token, err := opts.UserJWT()
	if err != nil {
		return ""
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	_ = readJWT(token, &claims) // then it is ""
	return claims.Subject
}

// readJWT decodes the claims of a JWT. It does not verify its signature: the server does.
func readJWT(token string, claims any) error {
	_, rest, _ := strings.Cut(token, ".")
	body, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, claims)
}
