package sign

import "testing"

// All users of a signer sign with its next key after a rotation; the signer from which it was
// cloned signs as before.
func TestASignerRotates(t *testing.T) {
	t.Parallel()
	first, firstKey := newTestKey(t, "first", Ed25519, 1, ">")
	second, secondKey := newTestKey(t, "second", HS256, 2, ">")
	ring := newTestRing(t, firstKey, secondKey)
	own := first.Clone()
	kid := func(s *Signer) string {
		t.Helper()
		e := sampleTask(t)
		if err := s.Sign(e); err != nil {
			t.Fatal(err)
		}
		who, err := ring.Verify(e, noon)
		if err != nil || who.KID != s.KID() || s.Key().KID != s.KID() {
			t.Errorf("%+v, %v, %s", who, err, s)
		}
		return who.KID
	}
	if got := kid(own); got != "first" {
		t.Errorf("signed by %s", got)
	}
	own.Rotate(second)
	if got := kid(own); got != "second" || own.Alg() != HS256 {
		t.Errorf("signed by %s", got)
	}
	if got := kid(first); got != "first" {
		t.Errorf("signed by %s", got)
	}
	if _, err := own.CryptoSigner(); err == nil {
		t.Error("a shared secret signs tokens")
	}
	own.Rotate(first)
	if got := kid(own); got != "first" {
		t.Errorf("signed by %s", got)
	}
}
