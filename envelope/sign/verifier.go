package sign

import (
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// Mode says how a receiver treats signatures.
type Mode uint8

// The three modes.
const (
	// VerifyIfPresent verifies every signature that is present, and accepts envelopes
	// without one as unsigned. The default.
	VerifyIfPresent Mode = iota
	// Required also refuses unsigned envelopes, with E_SIG_REQUIRED.
	Required
	// Off verifies no signature. AEE requires that a signature is verified if it is
	// present (Security Considerations, "Signature Verification and Trust Model"), so Off
	// is for debugging, and for transports that vouch for every sender.
	Off
)

// String returns the text that [ParseMode] parses.
func (m Mode) String() string {
	switch m {
	case VerifyIfPresent:
		return "verify-if-present"
	case Required:
		return "required"
	case Off:
		return "off"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode parses off, verify-if-present or required; "" is the default.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "", "verify-if-present":
		return VerifyIfPresent, nil
	case "required":
		return Required, nil
	case "off":
		return Off, nil
	}
	return 0, fmt.Errorf("signature mode %q: must be off, verify-if-present or required", s)
}

// MarshalText is [Mode.String].
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is [ParseMode].
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

// Verifier is a ring and a mode. The zero value verifies signatures with an empty ring,
// so it refuses all signed envelopes.
type Verifier struct {
	Ring *Ring // nil counts as empty
	Mode Mode
}

// Verify is [Ring.Verify] with the verifier's mode. If the Identity is not Signed, from is only a
// claim of the sender.
func (v Verifier) Verify(e *envelope.Envelope, now time.Time) (Identity, error) {
	if v.Mode == Off {
		return Identity{}, nil
	}
	if e.Sig == nil {
		if v.Mode != VerifyIfPresent {
			return Identity{}, envelope.Errorf(envelope.CodeSigRequired, "a signature is required here and there is none")
		}
		return Identity{}, nil
	}
	ring := v.Ring
	if ring == nil {
		ring = &Ring{}
	}
	return ring.Verify(e, now)
}

// Late is for how long a link of a delegation counts after its key has expired: it may be signed
// long before the answer comes. It is the longest time that a task may take.
const Late = 30 * 24 * time.Hour

// VerifyLate is Verify for such a link, at the time now. Its key must be valid now, or must
// have been valid at its ts. Anyone who has an expired key can write an earlier ts, so a ts before
// since, or more than [Late] before now, does not count. A revoked key is never valid.
func (v Verifier) VerifyLate(e *envelope.Envelope, since, now time.Time) (Identity, error) {
	identity, err := v.Verify(e, now)
	var problem *envelope.Error
	if err == nil || !errors.As(err, &problem) || problem.Code != envelope.CodeKeyInvalid {
		return identity, err
	}
	ts, ok := e.Time()
	if !ok || ts.After(now) || ts.Before(since) || now.Sub(ts) > Late {
		return identity, err
	}
	return v.Verify(e, ts)
}
