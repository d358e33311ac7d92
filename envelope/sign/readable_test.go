package sign

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A fault in either of its two files affects only that key.
func TestAFaultCostsItsOwnKeyOnly(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"b.json", "b.nk"} {
		dir := t.TempDir()
		for i, kid := range []string{"a", "b", "c"} {
			s, k := newTestKey(t, kid, Ed25519, byte(i), "agent."+kid)
			mustSave(t, dir, s, k)
		}
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, faults, err := LoadReadable(dir)
		if err != nil {
			t.Fatal(err)
		}
		var kids, signers []string
		for _, k := range keys.Trusted {
			kids = append(kids, k.KID)
		}
		for _, s := range keys.Signers {
			signers = append(signers, s.KID())
		}
		if want := []string{"a", "c"}; !slices.Equal(kids, want) || !slices.Equal(signers, want) {
			t.Errorf("%s: keys %v, signers %v", file, kids, signers)
		}
		if len(faults) != 1 || faults[0].KID != "b" || !strings.Contains(faults[0].Err.Error(), path) {
			t.Errorf("%s: %v", file, faults)
		}
	}
}

// An unreadable record may be a revocation, so a shared key with its kid does not replace it.
func TestASharedKeyDoesNotReplaceOneThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s, k := newTestKey(t, "k", Ed25519, 1, "agent.a")
	e := sampleTask(t)
	e.From = "agent.a"
	if err := s.Sign(e); err != nil {
		t.Fatal(err)
	}
	ring := &Ring{}
	if err := ring.Put(Shared, k); err != nil {
		t.Fatal(err)
	}
	trusted := func(want bool) {
		t.Helper()
		if _, err := ring.Verify(e, noon); (err == nil) != want {
			t.Errorf("verified: %v", err)
		}
	}
	trusted(true)
	if err := ring.ReplaceLocal(nil, "k"); err != nil {
		t.Fatal(err)
	}
	trusted(false)
	if err := ring.Put(Shared, k); err != nil { // another change of the ring
		t.Fatal(err)
	}
	trusted(false)
	if err := ring.ReplaceLocal([]Key{k}); err != nil {
		t.Fatal(err)
	}
	trusted(true)
}
