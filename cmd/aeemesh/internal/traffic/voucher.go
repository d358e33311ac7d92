package traffic

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// A voucher is the result of verifying an envelope's signature: only a verified
// envelope may be called signed.
type Voucher struct {
	kid string        // the key that the signature names; "" without a signature
	err envelope.Code // why it is not verified; "" if it is
}

// Vouch verifies the signature of e with the keys of ring as they were valid at
// a time. A nil ring has no keys.
func Vouch(ring *sign.Ring, e *envelope.Envelope, at time.Time) Voucher {
	if e.Sig == nil {
		return Voucher{}
	}
	if ring == nil {
		ring = &sign.Ring{}
	}
	_, kid, ok := sign.Describe(e)
	if !ok {
		kid = "?"
	}
	v := Voucher{kid: kid}
	if _, err := ring.Verify(e, at); err != nil {
		v.err = envelope.CodeSigInvalid
		var why *envelope.Error
		if errors.As(err, &why) {
			v.err = why.Code
		}
	}
	return v
}

// Words describes the result; "" without a signature.
func (v Voucher) Words() string {
	switch {
	case v.wrong():
		return "says it is signed by " + v.kid + " (not so: " + string(v.err) + ")"
	case v.err != "":
		return "says it is signed by " + v.kid + " (not verified)"
	case v.kid == "":
		return ""
	}
	return "signed " + v.kid
}

// wrong reports whether the signature proves nothing: it is not the sender's, or its key is not valid.
// It may be right if its key is not known here.
func (v Voucher) wrong() bool {
	return v.err != "" && v.err != envelope.CodeKeyUnknown && v.err != envelope.CodeSigUncheckable
}

// voucherRing returns a ring with the keys of the directory and, with
// --shared-keys, of the mesh; the caller must call stop.
func voucherRing(a *session.App, ctx context.Context, conn *nats.Conn) (ring *sign.Ring, stop func(), err error) {
	v, err := a.Verifier()
	if err != nil {
		return nil, nil, err
	}
	if !a.Sign.Shared {
		return v.Ring, func() {}, nil
	}
	stop, err = a.WatchSharedKeys(ctx, conn, v.Ring)
	return v.Ring, stop, err
}
