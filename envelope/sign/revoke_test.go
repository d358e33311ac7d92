package sign

import (
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
)

// Finding 5 of the security review: a shared key that was revoked stays revoked, even if
// its record is overwritten or deleted.
func TestARevocationIsForEver(t *testing.T) {
	t.Parallel()
	s, k := newTestKey(t, "ada-1", Ed25519, 1, "agent.manager")
	_, other := newTestKey(t, "other", Ed25519, 2, ">")
	revoked := k
	revoked.Revoked = true
	older, err := k.Record()
	if err != nil {
		t.Fatal(err)
	}
	for name, after := range map[string]func(*Ring) error{
		"put":            func(r *Ring) error { return r.Put(Shared, k) },
		"the record put": func(r *Ring) error { return r.PutRecord(older) },
		"deleted":        func(r *Ring) error { r.Delete(Shared, k.KID); return nil },
		"deleted and put": func(r *Ring) error {
			r.Delete(Shared, k.KID)
			return r.Put(Shared, k)
		},
		"replaced by itself": func(r *Ring) error { return r.Replace(Shared, []Key{k}) },
		"replaced by others": func(r *Ring) error { return r.Replace(Shared, []Key{other}) },
		"replaced by none":   func(r *Ring) error { return r.Replace(Shared, nil) },
	} {
		for _, local := range []bool{false, true} {
			ring := &Ring{}
			if local {
				ring = newTestRing(t, k)
			}
			for _, k := range []Key{k, revoked} {
				if err := ring.Put(Shared, k); err != nil {
					t.Fatal(err)
				}
			}
			if err := after(ring); err != nil && !errors.Is(err, ErrRevoked) {
				t.Fatal(err)
			}
			if _, err := ring.Verify(signed(t, s), noon); codeOf(err) != envelope.CodeKeyInvalid {
				t.Errorf("revoked, then %s, local %t: got %v, want %s", name, local, err, envelope.CodeKeyInvalid)
			}
		}
	}
	ring := newTestRing(t)
	if err := ring.Put(Shared, revoked); err != nil {
		t.Fatal(err)
	}
	if err := ring.Put(Shared, k); !errors.Is(err, ErrRevoked) {
		t.Errorf("an unrevoked record after the revocation: got %v, want ErrRevoked", err)
	}
	if err := ring.Put(Shared, revoked); err != nil {
		t.Errorf("the revocation again: %v", err)
	}
}

// Finding 5 of the security review: the shared record of a key that cannot be read may be
// a revocation, so the local key of the same kid is not trusted either.
func TestAKeyWhoseSharedRecordIsUnreadableIsRefused(t *testing.T) {
	t.Parallel()
	s, k := newTestKey(t, "ada-1", Ed25519, 1, "agent.manager")
	ring := newTestRing(t)
	verify := func() envelope.Code {
		_, err := ring.Verify(signed(t, s), noon)
		return codeOf(err)
	}
	ring.Refuse(k.KID)
	if got := verify(); got != envelope.CodeKeyUnknown {
		t.Errorf("neither local nor shared: %q", got)
	}
	for range 2 { // the directory is read repeatedly
		if err := ring.Replace(Local, []Key{k}); err != nil {
			t.Fatal(err)
		}
		if got := verify(); got != envelope.CodeKeyInvalid {
			t.Errorf("local and refused: %q, want %s", got, envelope.CodeKeyInvalid)
		}
	}
	if entry, _ := ring.Lookup(k.KID); !entry.Revoked {
		t.Error("Lookup tells of a key that does not count as if it did")
	}
	if err := ring.Put(Shared, k); err != nil {
		t.Fatal(err)
	}
	if got := verify(); got != "" {
		t.Errorf("once the shared record can be read: %q", got)
	}
	// Refuse has no effect on a key that the ring has read.
	ring.Refuse(k.KID)
	if got := verify(); got != "" {
		t.Errorf("the shared record was read before: %q", got)
	}
}
