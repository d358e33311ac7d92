package state_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/state"
)

func verdict() state.Verdict {
	return state.Verdict{
		Handoff: grant().ID, Issuer: "agent.x", Source: "aeemesh/berlin", Target: "aeemesh/paris", RunID: grant().RunID,
		Outcome: state.OutcomeRefused, Reason: "no room", Issued: issued,
	}
}

func TestVerdictComesBackAsItWasSigned(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	for _, v := range []state.Verdict{verdict(), func() state.Verdict {
		v := verdict()
		v.Outcome, v.Reason, v.Reply = state.OutcomeEnded, "", "sha256:00"
		return v
	}()} {
		token, err := v.Sign(signer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := state.VerifyVerdict(ring, token, "aeemesh/berlin", issued.Add(1000*time.Hour))
		if err != nil || got != v {
			t.Errorf("got %+v, %v; want %+v", got, err, v)
		}
		if _, err := state.VerifyVerdict(ring, token, "aeemesh/rome", issued); !errors.Is(err, state.ErrTokenAudience) {
			t.Errorf("for another platform: %v", err)
		}
		if _, err := state.VerifyVerdict(ring, token, "aeemesh/berlin", issued.Add(-time.Hour)); !errors.Is(err, state.ErrTokenExpired) {
			t.Errorf("from the future: %v", err)
		}
	}
	for name, change := range map[string]func(*state.Verdict){
		"no handoff":                 func(v *state.Verdict) { v.Handoff = "" },
		"no issuer":                  func(v *state.Verdict) { v.Issuer = "" },
		"no source":                  func(v *state.Verdict) { v.Source = "" },
		"no target":                  func(v *state.Verdict) { v.Target = "" },
		"no run":                     func(v *state.Verdict) { v.RunID = "" },
		"another outcome":            func(v *state.Verdict) { v.Outcome = "perhaps" },
		"an end without a reply":     func(v *state.Verdict) { v.Outcome = state.OutcomeEnded },
		"a reply that is not an end": func(v *state.Verdict) { v.Reply = "sha256:00" },
		"no time":                    func(v *state.Verdict) { v.Issued = time.Time{} },
	} {
		v := verdict()
		change(&v)
		if _, err := v.Sign(signer); err == nil {
			t.Errorf("a verdict with %s was signed", name)
		}
	}
}

func TestRequestIsShortLived(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	r := state.Request{Handoff: grant().ID, Issuer: "agent.x", Target: "aeemesh/paris", Action: "commit", Issued: issued}
	token, err := r.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := state.VerifyRequest(ring, token, "aeemesh/paris", issued.Add(30*time.Second)); err != nil || got != r {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := state.VerifyRequest(ring, token, "aeemesh/paris", issued.Add(time.Minute)); !errors.Is(err, state.ErrTokenExpired) {
		t.Errorf("after a minute: %v", err)
	}
}

// A token of one kind is never accepted as one of another kind, whatever its claims are.
func TestTokensOfDifferentKinds(t *testing.T) {
	t.Parallel()
	signer, ring := newRing(t)
	request, err := state.Request{Handoff: grant().ID, Issuer: "agent.x", Target: "aeemesh/paris", Issued: issued}.Sign(signer)
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
		request:   func(s string) error { _, err := state.VerifyRequest(ring, s, "aeemesh/paris", issued); return err },
		migration: func(s string) error { _, err := state.VerifyToken(ring, s, "aeemesh/paris", issued); return err },
		word:      func(s string) error { _, err := state.VerifyVerdict(ring, s, "aeemesh/paris", issued); return err },
	}
	for own, f := range verify {
		for token := range verify {
			if err := f(token); (err == nil) != (token == own) || err != nil && !errors.Is(err, state.ErrTokenInvalid) {
				t.Errorf("%.60s: %v", token, err)
			}
		}
	}
}
