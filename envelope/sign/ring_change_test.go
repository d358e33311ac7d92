package sign

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
)

func TestModes(t *testing.T) {
	t.Parallel()
	s, k := newTestKey(t, "k", Ed25519, 1, ">")
	ring := newTestRing(t, k)
	good, bad, unsigned := signed(t, s), signed(t, s), sampleTask(t)
	bad.To = "agent.other"
	proven := Identity{Signed: true, KID: "k"}
	for _, tt := range []struct {
		v    Verifier
		name string
		e    *envelope.Envelope
		who  Identity
		code envelope.Code
	}{
		{Verifier{}, "unsigned", unsigned, Identity{}, ""},
		{Verifier{}, "signed", good, Identity{}, envelope.CodeKeyUnknown},
		{Verifier{Ring: ring}, "unsigned", unsigned, Identity{}, ""},
		{Verifier{Ring: ring}, "signed", good, proven, ""},
		{Verifier{Ring: ring}, "badly signed", bad, Identity{}, envelope.CodeSigInvalid},
		{Verifier{ring, Required}, "unsigned", unsigned, Identity{}, envelope.CodeSigRequired},
		{Verifier{ring, Required}, "signed", good, proven, ""},
		{Verifier{ring, Required}, "badly signed", bad, Identity{}, envelope.CodeSigInvalid},
		{Verifier{ring, Mode(9)}, "unsigned", unsigned, Identity{}, envelope.CodeSigRequired},
		{Verifier{ring, Off}, "unsigned", unsigned, Identity{}, ""},
		{Verifier{ring, Off}, "signed", good, Identity{}, ""},
		{Verifier{ring, Off}, "badly signed", bad, Identity{}, ""},
	} {
		who, err := tt.v.Verify(tt.e, noon)
		if who != tt.who || codeOf(err) != tt.code {
			t.Errorf("%s, %s: got %+v, %v; want %+v, %q", tt.v.Mode, tt.name, who, err, tt.who, tt.code)
		}
	}
	for _, m := range []Mode{Off, VerifyIfPresent, Required} {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("ParseMode(%q) = %v, %v", m, got, err)
		}
	}
	if m, err := ParseMode(""); m != VerifyIfPresent || err != nil {
		t.Errorf("the default is %v, %v", m, err)
	}
	if _, err := ParseMode("Required"); err == nil {
		t.Error(`ParseMode("Required") gives no error`)
	}
}

// Another key with the same kid replaces the previous one at once, whichever method adds it.
func TestAReplacedKeyVerifiesNothing(t *testing.T) {
	t.Parallel()
	for _, alg := range []Alg{Ed25519, HS256} {
		before, old := newTestKey(t, "k", alg, 1, ">")
		after, next := newTestKey(t, "k", alg, 2, ">")
		for name, replace := range map[string]func(*Ring) error{
			"Put":     func(r *Ring) error { return r.Put(Local, next) },
			"Replace": func(r *Ring) error { return r.Replace(Local, []Key{next}) },
		} {
			ring := newTestRing(t, old)
			if _, err := ring.Verify(signed(t, before), noon); err != nil {
				t.Fatal(err)
			}
			if err := replace(ring); err != nil {
				t.Fatal(err)
			}
			_, gone := ring.Verify(signed(t, before), noon)
			_, good := ring.Verify(signed(t, after), noon)
			if codeOf(gone) != envelope.CodeSigInvalid || good != nil {
				t.Errorf("%s, %s: the key before gives %v, the one after %v", alg, name, gone, good)
			}
		}
	}
}

// TestRotation rotates keys while envelopes are signed and verified: the new key is put
// into the ring, the signer starts to use it, the old key is revoked. No envelope is
// refused before the revocation.
func TestRotation(t *testing.T) {
	t.Parallel()
	oldSigner, oldKey := newTestKey(t, "reviewer-1", Ed25519, 1, "agent.manager")
	newSigner, newKey := newTestKey(t, "reviewer-2", Ed25519, 2, "agent.manager")
	ring := newTestRing(t, oldKey)
	byOld, byNew := signed(t, oldSigner), signed(t, newSigner)

	stop := make(chan struct{})
	var wg, verifying sync.WaitGroup
	for _, e := range []*envelope.Envelope{byOld, byNew} {
		verifying.Add(1)
		wg.Go(func() {
			trusted := e == byOld // the new key is unknown until it is put
			for n := 0; ; n++ {
				_, err := ring.Verify(e, noon)
				if n == 0 {
					verifying.Done()
				}
				switch {
				case err == nil:
					trusted = true
				case trusted || codeOf(err) != envelope.CodeKeyUnknown:
					t.Errorf("refused during rotation: %v", err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	verifying.Wait()
	for range 200 {
		for _, step := range []func() error{
			func() error { return ring.Put(Local, newKey) },
			func() error { return ring.Put(Shared, newKey) },
			func() error { return ring.Put(Local, oldKey) },
			func() error { return ring.Replace(Local, []Key{oldKey, newKey}) },
			func() error { ring.Delete(Shared, newKey.KID); return nil },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()

	oldKey.Revoked = true
	if err := ring.Put(Local, oldKey); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Verify(byOld, noon); codeOf(err) != envelope.CodeKeyInvalid {
		t.Errorf("by the revoked key: %v", err)
	}
	if _, err := ring.Verify(byNew, noon); err != nil {
		t.Errorf("by the new key: %v", err)
	}
}

// TestSources checks which of two keys with the same kid is used.
func TestSources(t *testing.T) {
	t.Parallel()
	_, local := newTestKey(t, "k", Ed25519, 1, "agent.local")
	_, shared := newTestKey(t, "k", Ed25519, 2, "agent.shared")
	revoked := func(k Key) Key { k.Revoked = true; return k }
	_, secret := newTestKey(t, "k", HS256, 3, ">")
	effective := func(r *Ring) string {
		k, ok := r.Lookup("k")
		if !ok {
			return "none"
		}
		return fmt.Sprint(k.From[0], " revoked:", k.Revoked)
	}
	for _, tt := range []struct {
		name          string
		local, shared *Key
		want          string
	}{
		{"neither", nil, nil, "none"},
		{"local", &local, nil, "agent.local revoked:false"},
		{"shared", nil, &shared, "agent.shared revoked:false"},
		{"both", &local, &shared, "agent.local revoked:false"},
		{"local revoked", ptr(revoked(local)), &shared, "agent.local revoked:true"},
		{"shared revoked", &local, ptr(revoked(shared)), "agent.local revoked:true"},
	} {
		for _, sharedFirst := range []bool{false, true} {
			var r Ring
			put := func(src Source, k *Key) {
				if k != nil {
					if err := r.Put(src, *k); err != nil {
						t.Fatal(err)
					}
				}
			}
			if sharedFirst {
				put(Shared, tt.shared)
			}
			put(Local, tt.local)
			if !sharedFirst {
				put(Shared, tt.shared)
			}
			if got := effective(&r); got != tt.want {
				t.Errorf("%s (shared first: %t): got %s, want %s", tt.name, sharedFirst, got, tt.want)
			}
		}
	}
	var r Ring
	if err := r.Put(Shared, secret); !errors.Is(err, errSharedSecret) {
		t.Errorf("shared HS256 key: %v", err)
	}
	if err := r.Replace(Shared, []Key{secret}); !errors.Is(err, errSharedSecret) {
		t.Errorf("shared HS256 key: %v", err)
	}
	if err := r.Replace(Local, []Key{local, local}); err == nil {
		t.Error("one kid twice: no error")
	}
	if err := r.Replace(Local, []Key{local}); err != nil {
		t.Fatal(err)
	}
	if err := r.Replace(Local, []Key{secret, {}}); err == nil || effective(&r) != "agent.local revoked:false" {
		t.Errorf("failed Replace: %v, and then %s", err, effective(&r))
	}
	if list := r.List(); len(list) != 1 || list[0].KID != "k" || list[0].Source != Local {
		t.Errorf("List: %v", list)
	}
	r.Delete(Local, "k")
	if got := effective(&r); got != "none" {
		t.Errorf("after Delete: %s", got)
	}
}
