package session

import (
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// A worker is warned once before its key ends, and once when it ends; then another key
// of its entity signs, if one can.
func TestAWorkersKeyEnds(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	end := start.Add(100 * time.Hour)
	type step struct {
		at    time.Time
		signs string
		spent bool
		soon  int // warnings so far that it expires soon
		ended int // warnings so far that it has ended
	}
	for _, tt := range []struct {
		name    string
		pinned  string // --sign
		older   bool   // an older key is usable
		revoked bool   // and revoked in the mesh's bucket
		steps   []step
	}{
		{"no other key", SignAuto, false, false, []step{{start, "own", false, 0, 0}, {start.Add(89 * time.Hour), "own", false, 0, 0}, {start.Add(91 * time.Hour), "own", false, 1, 0},
			{start.Add(92 * time.Hour), "own", false, 1, 0}, {end, "own", true, 1, 1}, {end.Add(time.Hour), "own", true, 1, 1}}},
		{"an older key", SignAuto, true, false, []step{{start.Add(91 * time.Hour), "own", false, 0, 0}, {end, "older", false, 0, 1}, {end.Add(time.Hour), "older", false, 0, 1}}},
		{"the older key is revoked", SignAuto, true, true, []step{{start.Add(91 * time.Hour), "own", false, 1, 0}, {end, "own", true, 1, 1}}},
		{"the operator named the key", "own", true, false, []step{{start.Add(91 * time.Hour), "own", false, 1, 0}, {end, "own", true, 1, 1}}},
	} {
		k, dir, log := keeperOf(t)
		k.app.Sign.Kid = tt.pinned
		add := func(kid string, notBefore, expires time.Time) *sign.Signer {
			s, key, err := sign.NewKey(kid, sign.Ed25519, "agent.a")
			if err != nil {
				t.Fatal(err)
			}
			key.NotBefore, key.Expires = notBefore, expires
			if err := sign.SaveKey(dir, s, key); err != nil {
				t.Fatal(err)
			}
			if kid == "older" && tt.revoked {
				key.Revoked = true
				if err := k.ring.Put(sign.Shared, key); err != nil {
					t.Fatal(err)
				}
			}
			return s
		}
		own := &OwnKey{Entity: "agent.a", Signer: add("own", start, end)}
		if tt.older {
			add("older", time.Time{}, time.Time{})
		}
		keys := k.read(t.Context())
		for _, s := range tt.steps {
			k.renew(own, keys, s.at)
			soon, ended := strings.Count(log.String(), "expires soon"), strings.Count(log.String(), "has expired or is revoked")
			got := step{s.at, own.Signer.KID(), k.whySpent("agent.a") != "", soon, ended}
			if got != s {
				t.Errorf("%s: %+v, want %+v", tt.name, got, s)
			}
		}
	}
}

// A worker whose keys are not valid yet sends unsigned envelopes until the first of them is. From then
// on that one signs.
func TestAWorkersKeyIsNotValidYet(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	k, dir, log := keeperOf(t)
	k.app.Sign.Kid = SignAuto
	for kid, valid := range map[string]time.Time{"next": now.Add(time.Hour), "later": now.Add(2 * time.Hour)} {
		s, key, err := sign.NewKey(kid, sign.Ed25519, "agent.a")
		if err != nil {
			t.Fatal(err)
		}
		key.NotBefore = valid
		if err := sign.SaveKey(dir, s, key); err != nil {
			t.Fatal(err)
		}
	}
	s, err := k.app.WorkerSigner("agent.a")
	if err != nil || s == nil {
		t.Fatalf("%v, %v", s, err)
	}
	if text := log.String(); strings.Count(text, "messages are not signed") != 1 || strings.Contains(text, "keys new") || !strings.Contains(text, now.Add(time.Hour).UTC().Format(time.RFC3339)) {
		t.Errorf("warned: %s", text)
	}
	own := &OwnKey{Entity: "agent.a", Signer: s.Clone()} // as a worker has it
	keys := k.read(t.Context())
	for _, step := range []struct {
		at    time.Time
		signs string
	}{{now, ""}, {now.Add(59 * time.Minute), ""}, {now.Add(time.Hour), "next"}, {now.Add(3 * time.Hour), "next"}} {
		k.renew(own, keys, step.at)
		e := envelope.New(envelope.TypeEvent, "agent.a", "bus.x", "x.y.z", []byte(`{}`))
		if err := own.Signer.Sign(e); err != nil {
			t.Fatal(err)
		}
		kid := ""
		if e.Sig != nil {
			_, kid, _ = sign.Describe(e)
		}
		if kid != step.signs || k.whySpent("agent.a") != "" {
			t.Errorf("after %v %q signs, want %q; spent: %s", step.at.Sub(now), kid, step.signs, k.whySpent("agent.a"))
		}
	}
	if n := strings.Count(log.String(), "signed from now on"); n != 1 {
		t.Errorf("said %d times that its key is valid now: %s", n, log.String())
	}
}
