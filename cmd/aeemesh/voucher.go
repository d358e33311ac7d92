package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// A voucher is what can be said of an envelope's signature: only what was
// verified may be called signed.
type voucher struct {
	kid string        // that the signature names; "" where there is none
	err envelope.Code // why it is not verified; "" where it is
}

// vouch verifies the signature of e with the keys of ring, as they counted at a
// time. A ring that is nil has no keys.
func vouch(ring *sign.Ring, e *envelope.Envelope, at time.Time) voucher {
	if e.Sig == nil {
		return voucher{}
	}
	if ring == nil {
		ring = &sign.Ring{}
	}
	_, kid, ok := sign.Describe(e)
	if !ok {
		kid = "?"
	}
	v := voucher{kid: kid}
	if _, err := ring.Verify(e, at); err != nil {
		v.err = envelope.CodeSigInvalid
		var why *envelope.Error
		if errors.As(err, &why) {
			v.err = why.Code
		}
	}
	return v
}

// words say it; "" where there is no signature.
func (v voucher) words() string {
	switch v.err {
	case "":
		if v.kid == "" {
			return ""
		}
		return "signed " + v.kid
	case envelope.CodeKeyUnknown, envelope.CodeSigUncheckable:
		return "says it is signed by " + v.kid + " (not verified)"
	}
	return "says it is signed by " + v.kid + " (not so: " + string(v.err) + ")"
}

// voucherRing is the keys of the directory and, with --shared-keys, the mesh's;
// the caller calls stop.
func (a *app) voucherRing(ctx context.Context, conn *nats.Conn) (ring *sign.Ring, stop func(), err error) {
	v, err := a.verifier()
	if err != nil {
		return nil, nil, err
	}
	if !a.sign.shared {
		return v.Ring, func() {}, nil
	}
	stop, err = a.watchSharedKeys(ctx, conn, v.Ring)
	return v.Ring, stop, err
}
