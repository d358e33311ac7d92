package transfer

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/aeemesh/aeemesh/envelope/sign"
)

// Errors of tokens. Every error of this file wraps one of them.
var (
	// ErrTokenInvalid: not a token of this kind, or its signature does not verify.
	ErrTokenInvalid = errors.New("invalid token")
	// ErrTokenKey: the key is unknown here, not an Ed25519 key, revoked or out of its
	// time, or may not speak for the issuer.
	ErrTokenKey = errors.New("the token's key does not count here")
	// ErrTokenExpired: the token has expired, was issued in the future, or has too long a
	// validity.
	ErrTokenExpired = errors.New("the token is not valid at this time")
	// ErrTokenAudience: the token is for another platform.
	ErrTokenAudience = errors.New("the token is for another platform")
	// ErrTokenState: the token is for another state, checksum, agent or run, or from
	// another platform than it came with.
	ErrTokenState = errors.New("the token is for another state")
	// ErrTokenUsed: the token was used before. The caller that records used tokens
	// returns it.
	ErrTokenUsed = errors.New("the token was used before")
)

// maxToken is the longest token that is accepted, in bytes.
const maxToken = 8 << 10

// clockSkew is how far in the future a token may have been issued.
const clockSkew = time.Minute

// Keys finds the keys to verify tokens with; [sign.Ring] implements it.
type Keys interface {
	// Lookup returns the key with this id, valid or not. Many goroutines may call it at
	// once.
	Lookup(kid string) (sign.Key, bool)
}

// A tokenKind is the typ in a token's header (RFC 8725, section 3.11), so that a token of
// one kind is never accepted as another, and the longest validity of such a token; 0: it
// does not expire.
type tokenKind struct {
	typ string
	max time.Duration
}

// claims are the claims that all our tokens have.
type claims struct {
	jwt.RegisteredClaims
}

// window returns the claims about a token's time. A validity beyond the kind's limit is
// an error.
func (k tokenKind) window(issued, expires time.Time) (iat, exp *jwt.NumericDate, err error) {
	iat = jwt.NewNumericDate(issued.Truncate(time.Second))
	if k.max == 0 {
		return iat, nil, nil
	}
	exp = jwt.NewNumericDate(expires.Truncate(time.Second))
	return iat, exp, k.checkWindow(iat.Time, exp.Time)
}

func (k tokenKind) checkWindow(iat, exp time.Time) error {
	switch life := exp.Sub(iat); {
	case life <= 0:
		return fmt.Errorf("%w: it expires before it is issued", ErrTokenExpired)
	case life > k.max:
		return fmt.Errorf("%w: it lives for %v, and %v is the limit", ErrTokenExpired, life, k.max)
	}
	return nil
}

// sign makes a token; its header names the key.
func (k tokenKind) sign(s *sign.Signer, c jwt.Claims) (string, error) {
	key, err := s.CryptoSigner()
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c)
	t.Header["typ"], t.Header["kid"] = k.typ, s.KID()
	text, err := t.SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign token with key %q: %w", s.KID(), err)
	}
	return text, nil
}

// verify decodes a token into c, which embeds base. If it returns nil, the issuer has
// signed exactly these claims for this audience, and they are valid at the time now.
func (k tokenKind) verify(keys Keys, token string, c jwt.Claims, base *claims, audience string, now time.Time) error {
	if len(token) > maxToken {
		return fmt.Errorf("%w: it is longer than %d bytes", ErrTokenInvalid, maxToken)
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithStrictDecoding(),
		jwt.WithAudience(audience),
		jwt.WithTimeFunc(func() time.Time { return now }),
	}
	if k.max > 0 {
		options = append(options, jwt.WithExpirationRequired())
	}
	var refused error // from key, with our own text
	key := func(t *jwt.Token) (key any, err error) {
		key, refused = k.key(keys, t, base, now)
		return key, refused
	}
	if _, err := jwt.NewParser(options...).ParseWithClaims(token, c, key); refused != nil {
		return refused
	} else if err != nil {
		return tokenError(err)
	}
	if len(base.Audience) != 1 {
		return fmt.Errorf("%w: it is for %d platforms at once", ErrTokenAudience, len(base.Audience))
	}
	return k.checkTime(base, now)
}

// key returns the key that the token must be signed with.
func (k tokenKind) key(keys Keys, t *jwt.Token, c *claims, now time.Time) (any, error) {
	if typ, _ := t.Header["typ"].(string); typ != k.typ {
		return nil, fmt.Errorf("%w: its typ is %.40q, not %s", ErrTokenInvalid, typ, k.typ)
	}
	kid, _ := t.Header["kid"].(string)
	key, ok := keys.Lookup(kid)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: key %.70q is not known", ErrTokenKey, kid)
	case key.Alg != sign.Ed25519:
		return nil, fmt.Errorf("%w: key %q is no Ed25519 key", ErrTokenKey, kid)
	case !key.Valid(now):
		return nil, fmt.Errorf("%w: key %q is revoked or out of its time", ErrTokenKey, kid)
	case !key.SpeaksFor(c.Issuer):
		return nil, fmt.Errorf("%w: key %q may not speak for %.80q", ErrTokenKey, kid, c.Issuer)
	}
	return key.Public, nil
}

// tokenError maps the library's errors to our own.
func tokenError(err error) error {
	class := ErrTokenInvalid
	switch {
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenNotValidYet):
		class = ErrTokenExpired
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		class = ErrTokenAudience
	}
	return fmt.Errorf("%w: %w", class, err)
}

// checkTime checks a token's validity against the limit of its kind, which other issuers
// might not respect.
func (k tokenKind) checkTime(c *claims, now time.Time) error {
	if c.IssuedAt == nil {
		return fmt.Errorf("%w: it does not say when it was issued", ErrTokenInvalid)
	}
	if iat := c.IssuedAt.Time; iat.After(now.Add(clockSkew)) {
		return fmt.Errorf("%w: it was issued at %s, and it is %s", ErrTokenExpired, stamp(iat), stamp(now))
	}
	if k.max == 0 {
		return nil
	}
	return k.checkWindow(c.IssuedAt.Time, c.ExpiresAt.Time)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
