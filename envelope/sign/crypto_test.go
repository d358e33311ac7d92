package sign_test

import (
	"crypto"
	"crypto/ed25519"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/sign"
)

func TestCryptoSigner(t *testing.T) {
	t.Parallel()
	s, key, err := sign.NewKey("k", sign.Ed25519, "agent.x")
	if err != nil {
		t.Fatal(err)
	}
	cs, err := s.CryptoSigner()
	if err != nil {
		t.Fatal(err)
	}
	public, ok := cs.Public().(ed25519.PublicKey)
	if !ok || !public.Equal(key.Public) {
		t.Fatalf("public key %x, want %x", public, key.Public)
	}
	message := []byte("header.claims")
	sig, err := cs.Sign(nil, message, crypto.Hash(0))
	if err != nil || !ed25519.Verify(key.Public, message, sig) {
		t.Fatalf("the signature does not verify (%v)", err)
	}
	if _, err := cs.Sign(nil, message, crypto.SHA512); err == nil {
		t.Error("a hash was signed as if it were a message")
	}
	if _, err := cs.Sign(nil, []byte(`{"corr":null}`), crypto.Hash(0)); err == nil {
		t.Error("what an envelope's signature covers was signed")
	}
	shared, _, err := sign.NewKey("h", sign.HS256, "agent.x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Waiting().CryptoSigner(); err == nil {
		t.Error("a key signs before it is valid")
	}
	if _, err := shared.CryptoSigner(); err == nil {
		t.Error("an HS256 key has a crypto.Signer")
	}
}
