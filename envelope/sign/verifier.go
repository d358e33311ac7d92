package sign

import (
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

// Mode says what a receiver wants of signatures.
type Mode uint8

// The three modes.
const (
	// VerifyIfPresent verifies every signature that is there, and lets
	// unsigned envelopes pass as unsigned. The default.
	VerifyIfPresent Mode = iota
	// Required refuses unsigned envelopes too, with E_SIG_REQUIRED.
	Required
	// Off looks at no signature. AEE demands that a present one is verified
	// (Security Considerations, "Signature Verification and Trust Model"), so
	// this is for debugging, and for transports that vouch for every sender.
	Off
)

// String is what [ParseMode] reads.
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

// ParseMode reads off, verify-if-present or required; "" is the default.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "", "verify-if-present":
		return VerifyIfPresent, nil
	case "required":
		return Required, nil
	case "off":
		return Off, nil
	}
	return 0, fmt.Errorf("signature mode %q is none of off, verify-if-present and required", s)
}

// MarshalText is [Mode.String].
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is [ParseMode].
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

// Verifier is a ring and a mode. The zero value verifies whatever is signed,
// against no key at all.
type Verifier struct {
	Ring *Ring // nil counts as empty
	Mode Mode
}

// Verify is [Ring.Verify] under the verifier's mode. An Identity that is not
// Signed says that from is only the sender's claim.
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
