package session

import (
	"strings"
	"testing"
	"time"

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
