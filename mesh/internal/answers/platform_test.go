package answers

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/internal/fault"
)

// A reply that another platform relays is made and signed anew only where its key is not
// known here. One whose signature is wrong is refused: signing it anew would make a
// forgery the agent's own word.
func TestOnlyRepliesOfUnknownKeysAreSignedAnew(t *testing.T) {
	t.Parallel()
	ring := &sign.Ring{}
	key := func(kid string, known bool, from string, change func(*sign.Key)) *sign.Signer {
		s, k, err := sign.NewKey(kid, sign.Ed25519, from)
		if err != nil {
			t.Fatal(err)
		}
		change(&k)
		if known {
			if err := ring.Put(sign.Local, k); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	same := func(*sign.Key) {}
	here, there := key("here", true, "agent.a", same), key("there", false, "agent.a", same)
	gone, foreign := key("gone", true, "agent.a", func(k *sign.Key) { k.Revoked = true }), key("foreign", true, "agent.b", same)
	for _, c := range []struct {
		name string
		mode sign.Mode
		make func(*envelope.Envelope) error
		kid  string // by which it is signed then
		code envelope.Code
	}{
		{"of a known key", sign.Required, here.Sign, "here", ""},
		{"of a known key, with an id that may be a reply's of a run", sign.Required, func(e *envelope.Envelope) error {
			e.ID += ".1"
			return here.Sign(e)
		}, "here", ""},
		{"of an unknown key", sign.Required, there.Sign, "here", ""},
		{"unsigned where required", sign.Required, func(*envelope.Envelope) error { return nil }, "here", ""},
		{"unsigned", sign.VerifyIfPresent, func(*envelope.Envelope) error { return nil }, "here", ""},
		{"of a revoked key", sign.VerifyIfPresent, gone.Sign, "", envelope.CodeKeyInvalid},
		{"of another's key", sign.VerifyIfPresent, foreign.Sign, "", envelope.CodeFromDenied},
		{"changed", sign.VerifyIfPresent, func(e *envelope.Envelope) error {
			err := here.Sign(e)
			e.Payload = json.RawMessage(`{"text":"no"}`)
			return err
		}, "", envelope.CodeSigInvalid},
	} {
		r := Reader{Verifier: sign.Verifier{Ring: ring, Mode: c.mode}}
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.a", "code.review", json.RawMessage(`{}`))
		e := task.Reply(envelope.TypeResult, json.RawMessage(`{"text":"yes"}`))
		if err := c.make(e); err != nil {
			t.Fatal(err)
		}
		e, err := r.FromPlatform("agent.a", task, e, here, time.Now())
		if c.code != "" {
			if fault.ForPeer(err).Code != c.code {
				t.Errorf("%s: %v, want %s", c.name, err, c.code)
			}
			continue
		}
		_, kid, _ := sign.Describe(e)
		if err != nil || kid != c.kid || strings.Contains(e.ID, ".") {
			t.Errorf("%s: %s is signed by %q, %v; want %q", c.name, e.ID, kid, err, c.kid)
		}
	}
}
