package sign

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Alg is the name of a signature algorithm, as in field sig.alg (AEE, Signatures).
type Alg string

// The algorithms of this mesh. Names are case-sensitive.
const (
	Ed25519 Alg = "ed25519" // RFC 8032; a public key verifies; recommended
	HS256   Alg = "HS256"   // HMAC-SHA-256; both sides share one 32-byte secret
)

// maxKID is the length of the longest key id.
const maxKID = 64

// secretSize is the length of an HS256 secret, which a key file stores as a 32-byte nkeys
// seed.
const secretSize = 32

// CheckKID returns an error unless kid can name a key: 1 to 64 letters, digits, '_', '-'
// and '.', beginning with a letter, a digit or '_', without a dot at the end or two dots
// in a row. Such a name is a legal file name and NATS KV key.
func CheckKID(kid string) error {
	if kid == "" {
		return errors.New("a key id must not be empty")
	}
	if len(kid) > maxKID {
		return fmt.Errorf("key id %q… is longer than %d characters", kid[:16], maxKID)
	}
	if !legalKID(kid) {
		return fmt.Errorf("key id %q must be letters, digits, '_', '-' and single dots between them", kid)
	}
	return nil
}

func legalKID[T string | []byte](kid T) bool {
	if len(kid) == 0 || len(kid) > maxKID || kid[0] == '-' || kid[0] == '.' || kid[len(kid)-1] == '.' {
		return false
	}
	for i := 0; i < len(kid); i++ {
		switch c := kid[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		case c == '.':
			if kid[i-1] == '.' {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// Key is a verifier's view of one key: how to verify its signatures, for which entities it may
// sign, and when it is valid.
type Key struct {
	KID string
	Alg Alg

	// Public is the Ed25519 public key; nil for HS256.
	Public ed25519.PublicKey
	// Secret is the HS256 secret, 32 bytes; nil for Ed25519. It is never
	// printed, and never part of a [Record].
	Secret []byte

	// From lists patterns of the entities that the key may speak for; see [MatchFrom]. A
	// key without a pattern is refused.
	From []string

	// NotBefore (inclusive) and Expires (exclusive) limit the time of verification. Zero
	// means no limit.
	NotBefore, Expires time.Time
	// Revoked: no signature of this key is accepted any more, whenever it was made.
	Revoked bool

	Comment string // for people
}

// Check returns all errors in k.
func (k Key) Check() error {
	var bad []error
	if err := CheckKID(k.KID); err != nil {
		bad = append(bad, err)
	}
	switch k.Alg {
	case Ed25519:
		if _, err := newPublicKey(k.Public); err != nil {
			bad = append(bad, err)
		}
		if k.Secret != nil {
			bad = append(bad, errors.New("an ed25519 key has no secret here"))
		}
	case HS256:
		if len(k.Secret) != secretSize {
			bad = append(bad, fmt.Errorf("an HS256 secret has %d bytes, not %d", secretSize, len(k.Secret)))
		}
		if k.Public != nil {
			bad = append(bad, errors.New("an HS256 key has no public key"))
		}
	default:
		bad = append(bad, fmt.Errorf("alg must be %s or %s, not %q", Ed25519, HS256, string(k.Alg)))
	}
	bad = append(bad, checkPatterns(k.From)...)
	if !k.NotBefore.IsZero() && !k.Expires.IsZero() && !k.NotBefore.Before(k.Expires) {
		bad = append(bad, errors.New("not_before must be before expires"))
	}
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("key %q: %w", k.KID, err)
	}
	return nil
}

// Valid reports whether signatures of k may be accepted at the time now.
func (k Key) Valid(now time.Time) bool { return k.Invalidity(now) == "" }

// Invalidity returns the reason why k is not valid at the time now, such as "is revoked",
// or "".
func (k Key) Invalidity(now time.Time) string {
	switch {
	case k.Revoked:
		return "is revoked"
	case !k.NotBefore.IsZero() && now.Before(k.NotBefore):
		return "is not valid before " + k.NotBefore.UTC().Format(time.RFC3339)
	case !k.Expires.IsZero() && !now.Before(k.Expires):
		return "expired at " + k.Expires.UTC().Format(time.RFC3339)
	}
	return ""
}

// SpeaksFor reports whether k may sign envelopes with this from.
func (k Key) SpeaksFor(from string) bool {
	return slices.ContainsFunc(k.From, func(p string) bool { return MatchFrom(p, from) })
}

// String returns the key's id, algorithm and patterns, but no secret.
func (k Key) String() string {
	return fmt.Sprintf("%s (%s) for %s", k.KID, k.Alg, strings.Join(k.From, ", "))
}

// GoString is [Key.String], so that %#v prints no secret either.
func (k Key) GoString() string { return "sign.Key{" + k.String() + "}" }
