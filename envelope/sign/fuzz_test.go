package sign

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
)

// FuzzVerify gives envelopes and sig fields of every shape to a ring with keys of both
// algorithms. Only the signatures of the two signers may be accepted.
func FuzzVerify(f *testing.F) {
	ed, edKey := newTestKey(f, "ed", Ed25519, 1, ">")
	hs, hsKey := newTestKey(f, "hs", HS256, 2, ">")
	ring := newTestRing(f, edKey, hsKey)
	for _, s := range []*Signer{ed, hs} {
		text, err := signed(f, s).AppendJSON(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add([]byte(strings.Replace(string(text), "node.lan", "node.wan", 1)))
		f.Add([]byte(strings.Replace(string(text), `"alg":"`, `"alg":"x`, 1)))
	}
	for _, sig := range []string{`"text"`, `{}`, `{"alg":"ed25519","kid":"ed","value":""}`, `{"alg":1,"kid":[],"value":{}}`} {
		f.Add([]byte(strings.Replace(draftTask, `"sig": null`, `"sig": `+sig, 1)))
	}
	codes := map[envelope.Code]bool{envelope.CodeSigInvalid: true, envelope.CodeSigUncheckable: true, envelope.CodeKeyUnknown: true}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := envelope.Parse(data)
		if err != nil {
			return
		}
		who, err := ring.Verify(e, noon)
		switch {
		case err != nil:
			if !codes[codeOf(err)] || who != (Identity{}) {
				t.Fatalf("got %+v, %v", who, err)
			}
		case e.Sig == nil:
			if who != (Identity{}) {
				t.Fatalf("unsigned and %+v", who)
			}
		default:
			// Both algorithms are deterministic: the only good signature is the signer's.
			signer := map[string]*Signer{"ed": ed, "hs": hs}[who.KID]
			if !who.Signed || signer == nil {
				t.Fatalf("got %+v", who)
			}
			var got, want struct{ Value string }
			if err := json.Unmarshal(e.Sig, &got); err != nil {
				t.Fatal(err)
			}
			if err := signer.Sign(e); err != nil {
				t.Fatalf("verified and not signable: %v", err)
			}
			if err := json.Unmarshal(e.Sig, &want); err != nil || got != want {
				t.Fatalf("forged: %v instead of %v", got, want)
			}
		}
		// An envelope that can be signed is verified after it was encoded and parsed as
		// JSON.
		if err := ed.Sign(e); err != nil {
			if !errors.Is(err, envelope.ErrNumber) {
				t.Fatalf("not signable: %v", err)
			}
			return
		}
		text, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		back, err := envelope.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ring.Verify(back, noon); err != nil {
			t.Fatalf("own signature refused: %v", err)
		}
	})
}

// FuzzParseRecord: no panic; an accepted record is the same after encoding and parsing.
func FuzzParseRecord(f *testing.F) {
	for _, alg := range []Alg{Ed25519, HS256} {
		_, k := newTestKey(f, "k", alg, 1, "agent.*", "human.ada")
		k.NotBefore, k.Expires, k.Comment, k.Revoked = noon, noon.AddDate(1, 0, 0), "comment", alg == HS256
		r, err := k.Record()
		if err != nil {
			f.Fatal(err)
		}
		text, err := r.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"kid":"k","alg":"ed25519","from":[">"],"public":"UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"}`))
	f.Add([]byte(`{"kid":"k","alg":"HS256","from":[">"],"not_before":"2025-12-14T03:45:12.5+02:00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRecord(data)
		if err != nil {
			return
		}
		text, err := r.Marshal()
		if err != nil {
			t.Fatalf("accepted and not writable: %v", err)
		}
		again, err := ParseRecord(text)
		if err != nil {
			t.Fatalf("own text refused: %v\n%s", err, text)
		}
		if !again.NotBefore.Equal(r.NotBefore) || !again.Expires.Equal(r.Expires) {
			t.Fatalf("times changed: %+v, %+v", r, again)
		}
		again.NotBefore, again.Expires = r.NotBefore, r.Expires
		if !reflect.DeepEqual(again, r) {
			t.Fatalf("changed: %+v, %+v", r, again)
		}
		var ring Ring
		if err := ring.PutRecord(r); err != nil && !errors.Is(err, errSharedSecret) {
			t.Fatalf("accepted and of no use: %v", err)
		}
	})
}
