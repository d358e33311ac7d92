package secret_test

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// An entry may be any bytes: the result is a secret, or an error that does not quote the entry.
func FuzzMember(f *testing.F) {
	f.Add(`{"api_key":"hunter2-value"}`, "api_key")
	f.Add(`{"n":17,"o":{"deep":[1]},"null":null}`, "o")
	f.Add("plain", "")
	f.Fuzz(func(t *testing.T, value, key string) {
		s, err := secret.Member(aaif.VaultRef{Provider: aaif.VaultCustom, Path: "p", Key: key}, value)
		if (err == nil) == s.IsZero() {
			t.Errorf("Member = %q, %v", s.Reveal(), err)
		}
		if err != nil && len(value) >= 40 && !strings.Contains(key, value) && strings.Contains(err.Error(), value) {
			t.Errorf("%v quotes the entry", err)
		}
	})
}

// Whatever a secret is, none of its forms is left in a text, unless the word that
// stands in its place makes it anew.
func FuzzScrub(f *testing.F) {
	f.Add("hunter2-Zq/8+k=", "Bearer ", " is bad")
	f.Add("ééé\x00\"\\", "{\"a\":\"", "\"}")
	f.Fuzz(func(t *testing.T, value, before, after string) {
		if len(value) < secret.MinScrubbed || len(value) > 200 || strings.ContainsAny(value, secret.Redacted) {
			return
		}
		var r secret.Redactor
		r.Add(secret.New(value))
		for _, form := range secret.Forms(secret.New(value)) {
			if got := r.Scrub(before + form + after); strings.Contains(got, value) || !strings.Contains(got, secret.Redacted) {
				t.Errorf("Scrub(%q) = %q", before+form+after, got)
			}
		}
	})
}
