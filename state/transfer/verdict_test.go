package transfer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/aeemesh/aeemesh/state/transfer"
)

func verdict() transfer.Verdict {
	return transfer.Verdict{
		Handoff: grant().ID, Issuer: "agent.x", Source: "aeemesh/berlin", Target: "aeemesh/paris", RunID: grant().RunID,
		Outcome: transfer.OutcomeRefused, Reason: "no room", Issued: issued,
	}
}

func TestVerdictComesBackAsItWasSigned(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	for _, v := range []transfer.Verdict{verdict(), func() transfer.Verdict {
		v := verdict()
		v.Outcome, v.Reason, v.Reply = transfer.OutcomeEnded, "", "sha256:00"
		return v
	}()} {
		token, err := v.Sign(signer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := transfer.VerifyVerdict(ring, token, "aeemesh/berlin", issued.Add(1000*time.Hour))
		if err != nil || got != v {
			t.Errorf("got %+v, %v; want %+v", got, err, v)
		}
		if _, err := transfer.VerifyVerdict(ring, token, "aeemesh/rome", issued); !errors.Is(err, transfer.ErrTokenAudience) {
			t.Errorf("for another platform: %v", err)
		}
		if _, err := transfer.VerifyVerdict(ring, token, "aeemesh/berlin", issued.Add(-time.Hour)); !errors.Is(err, transfer.ErrTokenExpired) {
			t.Errorf("from the future: %v", err)
		}
	}
	for name, change := range map[string]func(*transfer.Verdict){
		"no handoff":                 func(v *transfer.Verdict) { v.Handoff = "" },
		"no issuer":                  func(v *transfer.Verdict) { v.Issuer = "" },
		"no source":                  func(v *transfer.Verdict) { v.Source = "" },
		"no target":                  func(v *transfer.Verdict) { v.Target = "" },
		"no run":                     func(v *transfer.Verdict) { v.RunID = "" },
		"another outcome":            func(v *transfer.Verdict) { v.Outcome = "perhaps" },
		"an end without a reply":     func(v *transfer.Verdict) { v.Outcome = transfer.OutcomeEnded },
		"a reply that is not an end": func(v *transfer.Verdict) { v.Reply = "sha256:00" },
		"no time":                    func(v *transfer.Verdict) { v.Issued = time.Time{} },
	} {
		v := verdict()
		change(&v)
		if _, err := v.Sign(signer); err == nil {
			t.Errorf("a verdict with %s was signed", name)
		}
		forged := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
			"sub": v.Handoff, "iss": v.Issuer, "aud": v.Source, "iat": v.Issued.Unix(),
			"target_platform": v.Target, "run_id": v.RunID, "outcome": v.Outcome, "reply": v.Reply,
		})
		forged.Header["typ"], forged.Header["kid"] = "aeemesh-handoff-verdict+jwt", signer.KID()
		if v.Issued.IsZero() {
			delete(forged.Claims.(jwt.MapClaims), "iat")
		}
		key, err := signer.CryptoSigner()
		if err != nil {
			t.Fatal(err)
		}
		token, err := forged.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := transfer.VerifyVerdict(ring, token, "aeemesh/berlin", issued); err == nil {
			t.Errorf("a verdict with %s, which another program has signed, is accepted: %+v", name, got)
		}
	}
}

func TestRequestIsShortLived(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	r := transfer.Request{Handoff: grant().ID, Issuer: "agent.x", Target: "aeemesh/paris", Action: "commit", Issued: issued}
	token, err := r.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := transfer.VerifyRequest(ring, token, "aeemesh/paris", issued.Add(30*time.Second)); err != nil || got != r {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := transfer.VerifyRequest(ring, token, "aeemesh/paris", issued.Add(time.Minute)); !errors.Is(err, transfer.ErrTokenExpired) {
		t.Errorf("after a minute: %v", err)
	}
}

// A token of one kind is never accepted as one of another kind, whatever its claims are.
func TestTokensOfDifferentKinds(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	request, err := transfer.Request{Handoff: grant().ID, Issuer: "agent.x", Target: "aeemesh/paris", Issued: issued}.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	migration, err := grant().Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	v := verdict()
	v.Source = "aeemesh/paris"
	word, err := v.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	verify := map[string]func(string) error{
		request:   func(s string) error { _, err := transfer.VerifyRequest(ring, s, "aeemesh/paris", issued); return err },
		migration: func(s string) error { _, err := transfer.VerifyToken(ring, s, "aeemesh/paris", issued); return err },
		word:      func(s string) error { _, err := transfer.VerifyVerdict(ring, s, "aeemesh/paris", issued); return err },
	}
	for own, f := range verify {
		for token := range verify {
			if err := f(token); (err == nil) != (token == own) || err != nil && !errors.Is(err, transfer.ErrTokenInvalid) {
				t.Errorf("%.60s: %v", token, err)
			}
		}
	}
}
