package sign

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
)

var noon = time.Date(2025, 12, 14, 12, 0, 0, 0, time.UTC)

// newTestKey makes a key whose secret consists of the byte b.
func newTestKey(tb testing.TB, kid string, alg Alg, b byte, from ...string) (*Signer, Key) {
	tb.Helper()
	secret := make([]byte, secretSize)
	for i := range secret {
		secret[i] = b
	}
	s, err := NewSigner(kid, alg, secret)
	if err != nil {
		tb.Fatal(err)
	}
	return s, s.Key(from...)
}

func newTestRing(tb testing.TB, keys ...Key) *Ring {
	tb.Helper()
	r := &Ring{}
	if err := r.Replace(Local, keys); err != nil {
		tb.Fatal(err)
	}
	return r
}

// codeOf returns the envelope code of err, "" for nil.
func codeOf(err error) envelope.Code {
	if err == nil {
		return ""
	}
	var e *envelope.Error
	if !errors.As(err, &e) {
		return envelope.Code(fmt.Sprintf("not an envelope.Error: %v", err))
	}
	return e.Code
}

func signed(tb testing.TB, s *Signer) *envelope.Envelope {
	tb.Helper()
	e := sampleTask(tb)
	if err := s.Sign(e); err != nil {
		tb.Fatal(err)
	}
	return e
}

func TestSignAndVerify(t *testing.T) {
	t.Parallel()
	for _, alg := range []Alg{Ed25519, HS256} {
		t.Run(string(alg), func(t *testing.T) {
			t.Parallel()
			s, k := newTestKey(t, "key-2", alg, 7, "agent.*")
			e := signed(t, s)
			// The envelope is encoded and parsed before it is verified, in both
			// encodings.
			text, err := e.AppendJSON(nil)
			if err != nil {
				t.Fatal(err)
			}
			cbor, err := e.AppendCBOR(nil)
			if err != nil {
				t.Fatal(err)
			}
			fromJSON, err := envelope.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			fromCBOR, err := envelope.ParseCBOR(cbor)
			if err != nil {
				t.Fatal(err)
			}
			ring := newTestRing(t, k)
			for name, e := range map[string]*envelope.Envelope{"made": e, "JSON": fromJSON, "CBOR": fromCBOR} {
				who, err := ring.Verify(e, noon)
				if want := (Identity{Signed: true, KID: "key-2"}); err != nil || who != want {
					t.Errorf("%s: got %+v, %v; want %+v", name, who, err, want)
				}
			}
			if alg, kid, ok := Describe(e); alg != k.Alg || kid != "key-2" || !ok {
				t.Errorf("Describe: %s %s %t", alg, kid, ok)
			}
		})
	}
}

// TestEverySignedFieldIsBound changes each field of a signed envelope: the signature must
// become invalid for the fields that it covers, and stay valid for the others.
func TestEverySignedFieldIsBound(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*envelope.Envelope){
		"v":             func(e *envelope.Envelope) { e.V = "2" },
		"id":            func(e *envelope.Envelope) { e.ID += "x" },
		"ts":            func(e *envelope.Envelope) { e.TS = "2025-12-14T03:45:13Z" },
		"type":          func(e *envelope.Envelope) { e.Type = envelope.TypeEvent },
		"from":          func(e *envelope.Envelope) { e.From = "agent.other" },
		"to":            func(e *envelope.Envelope) { e.To = "agent.other" },
		"intent":        func(e *envelope.Envelope) { e.Intent = "ops.backup.delete" },
		"corr":          func(e *envelope.Envelope) { e.Corr += "x" },
		"reply_to":      func(e *envelope.Envelope) { e.ReplyTo = "01JFB2R1JZ" },
		"payload":       func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{"cluster":"node.lan","window":"25h"}`) },
		"payload, more": func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{"cluster":"node.lan","window":"24h","x":1}`) },
		"requires": func(e *envelope.Envelope) {
			e.Requires = json.RawMessage(`{"timeout_ms":30000,"evidence":true,"human_approval":true}`)
		},
		"requires, taken":   func(e *envelope.Envelope) { e.Requires = nil },
		"requires, emptied": func(e *envelope.Envelope) { e.Requires = json.RawMessage(`{}`) },
		"requires, reshaped": func(e *envelope.Envelope) {
			e.Requires = json.RawMessage(`{"timeout_ms":"30000","evidence":true,"human_approval":false}`)
		},
	}
	open := map[string]func(*envelope.Envelope){
		"priority": func(e *envelope.Envelope) { e.Priority = envelope.PriorityLow },
		"trace":    func(e *envelope.Envelope) { e.SetTraceContext(envelope.TraceContext{TraceID: "t", SpanID: "s"}) },
		"extra":    func(e *envelope.Envelope) { e.Extra = []envelope.Member{{Name: "x", Value: json.RawMessage("1")}} },
		"order and white space": func(e *envelope.Envelope) {
			e.Payload = json.RawMessage("{ \"window\":\"24\\u0068\",\n\"cluster\":\"node.lan\" }")
		},
		"spelling of a number": func(e *envelope.Envelope) {
			e.Requires = json.RawMessage(`{"human_approval":false,"timeout_ms":3.0e4,"evidence":true}`)
		},
	}
	for _, alg := range []Alg{Ed25519, HS256} {
		s, k := newTestKey(t, "k", alg, 1, ">")
		ring := newTestRing(t, k)
		for name, change := range changes {
			e := signed(t, s)
			change(e)
			if _, err := ring.Verify(e, noon); codeOf(err) != envelope.CodeSigInvalid {
				t.Errorf("%s, %s changed: got %v, want %s", alg, name, err, envelope.CodeSigInvalid)
			}
		}
		for name, change := range open {
			e := signed(t, s)
			change(e)
			if _, err := ring.Verify(e, noon); err != nil {
				t.Errorf("%s, %s changed: %v", alg, name, err)
			}
		}
	}
}

// TestEmptyReplyToIsNotNull: reply_to "" and reply_to null are signed differently.
func TestEmptyReplyToIsNotNull(t *testing.T) {
	t.Parallel()
	s, k := newTestKey(t, "k", Ed25519, 1, ">")
	ring := newTestRing(t, k)
	empty, err := envelope.Parse([]byte(strings.Replace(draftTask, `"reply_to": null`, `"reply_to": ""`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Sign(empty); err != nil {
		t.Fatal(err)
	}
	if _, err := ring.Verify(empty, noon); err != nil {
		t.Errorf(`reply_to "": %v`, err)
	}
	null := sampleTask(t)
	null.Sig = empty.Sig
	if _, err := ring.Verify(null, noon); codeOf(err) != envelope.CodeSigInvalid {
		t.Errorf("null with the signature for \"\": %v", err)
	}
}

func TestRefusedSignatures(t *testing.T) {
	t.Parallel()
	ed, edKey := newTestKey(t, "ed", Ed25519, 1, "agent.manager")
	hs, hsKey := newTestKey(t, "hs", HS256, 2, "agent.manager")
	other, otherKey := newTestKey(t, "other", Ed25519, 3, "agent.other", "human.*")
	revoked, revokedKey := newTestKey(t, "revoked", Ed25519, 4, ">")
	revokedKey.Revoked = true
	expired, expiredKey := newTestKey(t, "expired", Ed25519, 5, ">")
	expiredKey.Expires = noon
	early, earlyKey := newTestKey(t, "early", Ed25519, 6, ">")
	earlyKey.NotBefore = noon.Add(1)
	unknown, _ := newTestKey(t, "unknown", Ed25519, 7, ">")
	ring := newTestRing(t, edKey, hsKey, otherKey, revokedKey, expiredKey, earlyKey)

	value := func(e *envelope.Envelope) string {
		var sig struct{ Value string }
		if err := json.Unmarshal(e.Sig, &sig); err != nil {
			t.Fatal(err)
		}
		return sig.Value
	}
	edValue, hsValue := value(signed(t, ed)), value(signed(t, hs))
	raw, err := base64.StdEncoding.DecodeString(edValue)
	if err != nil {
		t.Fatal(err)
	}
	sig := func(alg, kid, value string) string {
		return fmt.Sprintf(`{"alg":%q,"kid":%q,"value":%q}`, alg, kid, value)
	}
	large := func(sig string, size int) string { // with a member of others
		return sig[:len(sig)-1] + `,"x":"` + strings.Repeat("x", size-len(sig)-len(`,"x":""`)) + `"}`
	}
	for _, tt := range []struct {
		name, sig string
		code      envelope.Code
	}{
		{"good", sig("ed25519", "ed", edValue), ""},
		{"good, other layout", `{ "value": "` + edValue + `", "kid":"ed", "x":[1], "alg":"\u0065d25519"}`, ""},
		{"good, own layout with an escape", `{"alg":"\u0065d25519","kid":"ed","value":"` + edValue + `"}`, ""},
		{"good HMAC", sig("HS256", "hs", hsValue), ""},
		{"a string", `"` + edValue + `"`, envelope.CodeSigUncheckable},
		{"an empty string", `""`, envelope.CodeSigUncheckable},
		{"unknown alg", sig("RS256", "ed", edValue), envelope.CodeSigUncheckable},
		{"alg none", sig("none", "ed", ""), envelope.CodeSigUncheckable},
		{"alg in capitals", sig("ED25519", "ed", edValue), envelope.CodeSigUncheckable},
		{"empty object", `{}`, envelope.CodeSigInvalid},
		{"an array", `[]`, envelope.CodeSigInvalid},
		{"no JSON", `{"alg":`, envelope.CodeSigInvalid},
		{"without value", `{"alg":"ed25519","kid":"ed"}`, envelope.CodeSigInvalid},
		{"without kid", `{"alg":"ed25519","value":"` + edValue + `"}`, envelope.CodeSigInvalid},
		{"without alg", `{"kid":"ed","value":"` + edValue + `"}`, envelope.CodeSigInvalid},
		{"null alg", `{"alg":null,"kid":"ed","value":"` + edValue + `"}`, envelope.CodeSigInvalid},
		{"number as kid", `{"alg":"ed25519","kid":1,"value":"` + edValue + `"}`, envelope.CodeSigInvalid},
		{"kid twice", `{"alg":"ed25519","kid":"ed","kid":"ed","value":"` + edValue + `"}`, envelope.CodeSigInvalid},
		{"name in capitals", `{"ALG":"ed25519","kid":"ed","value":"` + edValue + `"}`, envelope.CodeSigInvalid},
		{"empty kid", sig("ed25519", "", edValue), envelope.CodeSigInvalid},
		{"long kid", sig("ed25519", strings.Repeat("k", 65), edValue), envelope.CodeSigInvalid},
		{"kid as a path", sig("ed25519", "../ed", edValue), envelope.CodeSigInvalid},
		{"good, as large as may be", large(sig("ed25519", "ed", edValue), 4096), ""},
		{"too large", large(sig("ed25519", "ed", edValue), 4097), envelope.CodeSigInvalid},
		{"huge sig", sig("ed25519", "ed", strings.Repeat("A", 5000)), envelope.CodeSigInvalid},
		{"empty value", sig("ed25519", "ed", ""), envelope.CodeSigInvalid},
		{"short value", sig("ed25519", "ed", edValue[:84]), envelope.CodeSigInvalid},
		{"66 bytes without padding", sig("ed25519", "ed", strings.Repeat("A", 88)), envelope.CodeSigInvalid},
		{"unpadded value", sig("ed25519", "ed", strings.TrimRight(edValue, "=")), envelope.CodeSigInvalid},
		{"value for URLs", sig("ed25519", "ed", base64.URLEncoding.EncodeToString(raw)), envelope.CodeSigInvalid},
		{"value with a line break", sig("ed25519", "ed", edValue[:40]+"\n"+edValue[40:]), envelope.CodeSigInvalid},
		{"value with loose bits", sig("ed25519", "ed", edValue[:85]+string(edValue[85]+1)+"=="), envelope.CodeSigInvalid},
		{"value of zeros", sig("ed25519", "ed", base64.StdEncoding.EncodeToString(make([]byte, 64))), envelope.CodeSigInvalid},
		{"HMAC value of zeros", sig("HS256", "hs", base64.StdEncoding.EncodeToString(make([]byte, 32))), envelope.CodeSigInvalid},
		{"another key's value", sig("ed25519", "ed", value(signed(t, other))), envelope.CodeSigInvalid},
		{"alg of another key", sig("HS256", "ed", hsValue), envelope.CodeSigInvalid},
		{"alg of another key, the other way", sig("ed25519", "hs", edValue), envelope.CodeSigInvalid},
		{"unknown key", sig("ed25519", "unknown", value(signed(t, unknown))), envelope.CodeKeyUnknown},
		{"revoked key", sig("ed25519", "revoked", value(signed(t, revoked))), envelope.CodeKeyInvalid},
		{"expired key", sig("ed25519", "expired", value(signed(t, expired))), envelope.CodeKeyInvalid},
		{"key of the future", sig("ed25519", "early", value(signed(t, early))), envelope.CodeKeyInvalid},
		{"foreign from", sig("ed25519", "other", value(signed(t, other))), envelope.CodeFromDenied},
		{"foreign from, bad signature", sig("ed25519", "other", edValue), envelope.CodeSigInvalid},
	} {
		e := sampleTask(t)
		e.Sig = json.RawMessage(tt.sig)
		who, err := ring.Verify(e, noon)
		if codeOf(err) != tt.code {
			t.Errorf("%s: got %v, want code %q", tt.name, err, tt.code)
		}
		if who.Signed != (err == nil) {
			t.Errorf("%s: identity %+v with error %v", tt.name, who, err)
		}
	}
}

// TestHMACKeyIsNoPublicKey checks against the classic confusion: the public key of an
// Ed25519 key, which everyone knows, is used as an HMAC secret.
func TestHMACKeyIsNoPublicKey(t *testing.T) {
	t.Parallel()
	_, k := newTestKey(t, "k", Ed25519, 1, ">")
	forger, err := NewSigner("k", HS256, k.Public)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newTestRing(t, k).Verify(signed(t, forger), noon); codeOf(err) != envelope.CodeSigInvalid {
		t.Errorf("got %v", err)
	}
}

func TestUnsignableNumbers(t *testing.T) {
	t.Parallel()
	for _, alg := range []Alg{Ed25519, HS256} {
		s, k := newTestKey(t, "k", alg, 1, ">")
		ring := newTestRing(t, k)
		for _, number := range []string{"9007199254740993", "1e400", "0.1000000000000000055511151231257827"} {
			for _, field := range []string{"payload", "requires"} {
				e := signed(t, s)
				value := json.RawMessage(`{"n":` + number + `}`)
				if field == "payload" {
					e.Payload = value
				} else {
					e.Requires = value
				}
				before := string(e.Sig)
				if err := s.Sign(e); !errors.Is(err, envelope.ErrNumber) || string(e.Sig) != before {
					t.Errorf("%s in %s: %v, want envelope.ErrNumber and an untouched sig", number, field, err)
				}
				if _, err := ring.Verify(e, noon); codeOf(err) != envelope.CodeSigInvalid || !errors.Is(err, envelope.ErrNumber) {
					t.Errorf("verify %s in %s: %v", number, field, err)
				}
			}
		}
	}
}

// Signer.AppendJSON appends the same text as Sign followed by the envelope's AppendJSON.
// It does not change the envelope, nor, if it fails, the slice it appends to.
func TestAppendJSONSignsOnTheWay(t *testing.T) {
	t.Parallel()
	for _, alg := range []Alg{Ed25519, HS256} {
		s, k := newTestKey(t, "key", alg, 1, ">")
		e := sampleTask(t)
		e.Sig = json.RawMessage(`"another"`)
		got, err := s.AppendJSON([]byte("before"), e)
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Sig) != `"another"` {
			t.Errorf("%s: the envelope has sig %s now", alg, e.Sig)
		}
		if err := s.Sign(e); err != nil {
			t.Fatal(err)
		}
		want, err := e.AppendJSON([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s:\n got %s\nwant %s", alg, got, want)
		}
		sent, err := envelope.Parse(got[len("before"):])
		if err != nil {
			t.Fatal(err)
		}
		if who, err := newTestRing(t, k).Verify(sent, noon); err != nil || !who.Signed {
			t.Errorf("%s: %+v, %v", alg, who, err)
		}
		for name, spoil := range map[string]func(*envelope.Envelope){
			"number":  func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{"n":9007199254740993}`) },
			"text":    func(e *envelope.Envelope) { e.Corr = "\xff-not-utf-8" },
			"payload": func(e *envelope.Envelope) { e.Payload = json.RawMessage(`{"n":`) },
		} {
			bad := *e
			spoil(&bad)
			if out, err := s.AppendJSON([]byte("before"), &bad); err == nil || string(out) != "before" {
				t.Errorf("%s, %s: %q, %v", alg, name, out, err)
			}
		}
	}
}

func TestInvalidUTF8IsNotSigned(t *testing.T) {
	t.Parallel()
	s, _ := newTestKey(t, "k", Ed25519, 1, ">")
	e := sampleTask(t)
	e.To = "agent.\xff"
	if err := s.Sign(e); err == nil || e.Sig != nil {
		t.Errorf("got %v and sig %s", err, e.Sig)
	}
}

func ptr[T any](v T) *T { return &v }
