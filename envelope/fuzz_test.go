package envelope_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gowebpki/jcs"
)

// seedEnvelopes returns the seeds for the fuzz tests of the decoders.
func seedEnvelopes() []string {
	long := strings.Repeat("x", 100)
	return []string{
		draftTask,
		strings.Replace(draftTask, `"type":"task"`, `"type":"result"`, 1),
		strings.Replace(draftTask, `"reply_to":null`, `"reply_to":""`, 1),
		strings.Replace(draftTask, `"reply_to":null`, `"reply_to":"01JFB2R1JZ"`, 1),
		strings.Replace(draftTask, `"sig":null`, `"sig":{"alg":"ed25519","kid":"k","value":"AA=="}`, 1),
		strings.Replace(draftTask, `"sig":null`, `"sig":"text","x_new":[1,2.50,-0,1e2,"\u00e9\ud83d\ude00"]`, 1),
		strings.Replace(draftTask, `"24h"`, `"\"\\\/\b\f\n\r\t\u0001é😀"`, 1),
		strings.Replace(draftTask, `{"cluster"`, `{"references":[{"id":"x","type":"aee.envelope"}],"cluster"`, 1),
		strings.Replace(draftTask, "01JFB2QX0K8X5K6ZJ9G2C0C1MW", long, 1),
		`{"v":"1","id":"01JFB2R1JZ","type":"event","from":"agent.a","intent":"log.line"}`,
		`{}`, `[]`, `null`, ``, ` `, `{"v":"1"`, "\xff", `{"v":"1","v":"1"}`,
	}
}

// FuzzParse: no text makes Parse panic. A text that is accepted is JSON to the standard
// library, too, and can be encoded; the encoding parses to the same envelope, and
// encoding that gives the same text.
func FuzzParse(f *testing.F) {
	for _, s := range seedEnvelopes() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := envelope.Parse(data)
		if err != nil {
			var invalid *envelope.InvalidError
			if !errors.As(err, &invalid) && !errors.Is(err, envelope.ErrTooLarge) {
				t.Fatalf("an error of another kind: %T %v", err, err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("accepted what encoding/json finds malformed")
		}
		text, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatalf("accepted and not encodable: %v", err)
		}
		again, err := envelope.Parse(text)
		if err != nil {
			t.Fatalf("own encoding refused: %v\n%s", err, text)
		}
		if !reflect.DeepEqual(e, again) {
			t.Fatalf("changed on the way:\n%+v\n%+v", e, again)
		}
		text2, err := again.AppendJSON(nil)
		if err != nil || !bytes.Equal(text, text2) {
			t.Fatalf("encodings differ (%v):\n%s\n%s", err, text, text2)
		}
		// The typed views must not panic on an accepted envelope.
		e.TraceContext()
		e.Requirements()
		refs, err := e.References()
		bare := envelope.KeepReferences(e.Payload, func(envelope.Reference) bool { return false })
		if left, again := (&envelope.Envelope{Payload: bare}).References(); !json.Valid(bare) || err == nil && (again != nil || len(left) > 0) {
			t.Fatalf("payload %s without references is %s: %v, %v", e.Payload, bare, left, again)
		}
		more := envelope.Reference{ID: "another one", Type: envelope.ReferenceType}
		with, failed := envelope.WithReferences(e.Payload, more)
		if (failed == nil) != (err == nil) {
			t.Fatalf("payload %s: %v, and with one more %v", e.Payload, err, failed)
		}
		if now, again := (&envelope.Envelope{Payload: with}).References(); err == nil && (again != nil || len(now) < len(refs) || len(now) > len(refs)+1) {
			t.Fatalf("payload %s with one more is %s: %v", e.Payload, with, again)
		}
		e.Time()
		envelope.ErrorOf(e)
		if hash, err := e.Hash(); err == nil {
			if hash2, err := again.Hash(); err != nil || hash != hash2 {
				t.Fatalf("hashes differ: %s, %s, %v", hash, hash2, err)
			}
		} else if !errors.Is(err, envelope.ErrNumber) {
			t.Fatalf("no hash: %v", err)
		}
	})
}

// FuzzCanonical compares Canonical with two other implementations of RFC 8785.
func FuzzCanonical(f *testing.F) {
	for _, s := range append(seedEnvelopes(),
		`{"\ue000":1,"😀":2,"a":3,"é":4,"":5}`, `{"b":{"d":1,"c":[{"z":1,"y":2}]},"a":null}`,
		`[1,1.0,-0,0.0,1e2,1E+2,0.10,1e21,1e20,123456789012345680000,1e-6,1e-7,333333333.33333329,5e-324,9007199254740991,-1.7976931348623157e308]`,
		`[9007199254740993]`, `[1e400]`, `[1e-400]`, `"\ud800"`, `"\u2028\u007f\u0000"`, `{"a":1,"\u0061":2}`, `{"b":1,"a":2,"b":3}`,
		`[0.1000000000000000055511151231257827]`, `true`, ` null `, `nul`, `[1,]`, `{"a":}`, `-`, `01`, `[1e]`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := envelope.Canonical(data)
		if err != nil {
			// The others round numbers and do not limit the depth.
			if _, theirs := jcsTransform(data); theirs == nil && json.Valid(data) && !errors.Is(err, envelope.ErrNumber) && !strings.Contains(err.Error(), "nested deeper") {
				t.Fatalf("gowebpki/jcs accepts what we refuse: %v", err)
			}
			return
		}
		for name, f := range map[string]func([]byte) ([]byte, error){
			"gowebpki/jcs": jcsTransform,
			"jsontext": func(data []byte) ([]byte, error) {
				v := jsontext.Value(bytes.Clone(data))
				err := v.Canonicalize()
				return v, err
			},
		} {
			if want, err := f(data); err != nil {
				t.Fatalf("%s refuses what we canonicalise: %v", name, err)
			} else if !bytes.Equal(got, want) {
				t.Fatalf("%s differs:\nours   %s\ntheirs %s", name, got, want)
			}
		}
		again, err := envelope.Canonical(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("not stable: %s, then %s (%v)", got, again, err)
		}
		if with, err := envelope.AppendCanonical([]byte("before"), data); err != nil || string(with) != "before"+string(got) {
			t.Fatalf("AppendCanonical gives %s, %v", with, err)
		}
	})
}

// jcsTransform canonicalises any value, also one that is neither object nor array.
func jcsTransform(data []byte) ([]byte, error) {
	out, err := jcs.Transform(append(append([]byte("["), data...), ']'))
	if err != nil {
		return nil, err
	}
	return out[1 : len(out)-1], nil
}

// FuzzParseCBOR: an accepted message is encoded as deterministic CBOR, which parses to
// the same envelope, and encoding that gives the same bytes.
func FuzzParseCBOR(f *testing.F) {
	for _, s := range seedEnvelopes() {
		if e, err := envelope.Parse([]byte(s)); err == nil {
			data, err := e.AppendCBOR(nil)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	for _, payload := range []string{"a0", "a1617801", "bfff", "a10102", "a16178fb3ff0000000000000", "a161783bffffffffffffffff", "a16178826161f6"} {
		data, err := hex.DecodeString(payload)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := envelope.ParseCBOR(data)
		if err != nil {
			// Most inputs are no envelope: try them as a payload, too.
			if e, err = envelope.ParseCBOR(withPayload(data)); err != nil {
				return
			}
		}
		first, err := e.AppendCBOR(nil)
		if err != nil {
			t.Fatalf("accepted and not encodable: %v", err)
		}
		if item, rest := envelope.CutCBOR(append(first[:len(first):len(first)], data...)); !bytes.Equal(item, first) || !bytes.Equal(rest, data) {
			t.Fatalf("the first item of a sequence is %x, and then comes %x", item, rest)
		}
		again, err := envelope.ParseCBOR(first)
		if err != nil {
			t.Fatalf("own encoding refused: %v", err)
		}
		if !reflect.DeepEqual(e, again) {
			t.Fatalf("changed on the way:\n%+v\n%+v", e, again)
		}
		second, err := again.AppendCBOR(nil)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("encodings differ: %v\n%x\n%x", err, first, second)
		}
		text, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatalf("no JSON: %v", err)
		}
		if _, err := envelope.Parse(text); err != nil {
			t.Fatalf("its JSON is refused: %v\n%s", err, text)
		}
	})
}

// FuzzCBORDecoding: our decoder reads the same from the bytes as a common CBOR library
// through a tree of values; and the limit on the number of values is the same for both
// encodings.
func FuzzCBORDecoding(f *testing.F) {
	for _, s := range seedEnvelopes() {
		if e, err := envelope.Parse([]byte(s)); err == nil {
			data, err := e.AppendCBOR(nil)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	for _, payload := range []string{
		"a0", "a1617801", "bfff", "a10102", "a16178fb3ff0000000000000", "a161783bffffffffffffffff", "a161783b8000000000000000", "a161781bffffffffffffffff", "a16178826161f6",
		"a16178f93c00", "a16178f90001", "a16178f97bff", "a16178f983ff", "a16178f97c00", "a16178f97e01", "a16178fa7f7fffff", "a16178fa00000001", "a16178fb0000000000000001", "a16178f98000",
		"a16178f814", "a16178f8ff", "a16178f7", "a16178e0", "a1617878016a", "a2616201616102", "a2616101616102", "a261610178016102", "a2616101626161a0", "a1617841aa", "a16178c074", "a161781c", "a161789f01ff",
		"a161788181818100", "a161789affffffff", "a16178bb7fffffffffffffff", "a161786300220a", "a1617861ff", "a1617863eda080", "a16178a3617a01617981a261620261610361780a", "a1000000", "",
	} {
		data, err := hex.DecodeString(payload)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, message := range [][]byte{data, withPayload(data)} {
			got, err := envelope.ParseCBOR(message)
			want, wantErr := referenceCBOR(message)
			if wantErr == nil && err != nil && strings.Contains(err.Error(), "a name is a simple value") {
				continue // the library decodes null as the empty name
			}
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%x: %v, and the reference says %v", message, err, wantErr)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%x:\n%+v\nand the reference has\n%+v", message, got, want)
			}
			var bad *envelope.InvalidError
			if err != nil && !errors.As(err, &bad) && !errors.Is(err, envelope.ErrTooLarge) {
				t.Fatalf("an error of another kind: %T %v", err, err)
			}
		}
		few := envelope.Limits{MaxValues: 3}
		if e, err := envelope.ParseCBORLimits(withPayload(data), few); err == nil {
			text, err := e.AppendJSON(nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := envelope.ParseLimits(text, few); err != nil {
				t.Fatalf("its JSON has too many values: %v\n%s", err, text)
			}
		}
	})
}

// FuzzCBORRoundTrip encodes JSON envelopes as CBOR and back: every value is the same, and
// so is its kind.
func FuzzCBORRoundTrip(f *testing.F) {
	for _, s := range seedEnvelopes() {
		f.Add([]byte(s))
	}
	f.Add([]byte(strings.Replace(draftTask, `"24h"`, `[1,1.0,9007199254740993,-18446744073709551616,18446744073709551615,0.10,-0,-0.0,1e20,100000000000000000000,1e300]`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := envelope.Parse(data)
		if err != nil {
			return
		}
		cbor, err := e.AppendCBOR(nil)
		if errors.Is(err, envelope.ErrNumber) {
			return
		}
		if err != nil {
			t.Fatalf("not encodable: %v", err)
		}
		back, err := envelope.ParseCBOR(cbor)
		if err != nil {
			t.Fatalf("own CBOR refused: %v", err)
		}
		want, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := back.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(exactValue(t, want), exactValue(t, got)) {
			t.Fatalf("values differ:\n%s\n%s", want, got)
		}
	})
}

// FuzzParseLog: no panic, and an accepted record has the five fields.
func FuzzParseLog(f *testing.F) {
	for _, s := range seedEnvelopes() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := envelope.ParseLog(data)
		if err != nil {
			if _, err := envelope.Parse(data); err == nil {
				t.Fatal("a full envelope is no log record")
			}
			return
		}
		if r.V != "1" || len(r.ID) < 8 || r.Type == "" || r.From == "" || len(r.Intent) < 3 {
			t.Fatalf("accepted %+v", r)
		}
		if !json.Valid(data) {
			t.Fatal("accepted what encoding/json finds malformed")
		}
	})
}

// FuzzRequirements: no panic, the constraints are within their ranges, and the output of
// AppendJSON is read as the same constraints.
func FuzzRequirements(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"timeout_ms":30000,"evidence":true,"human_approval":false}`, `{"timeout_ms":1e300}`, `{"timeout_ms":0.5}`,
		`{"min_confidence":0.9,"format":"json","decision_evidence":"full","stream":true,"unknown":[1]}`,
		`{"timeout_ms":-1}`, `{"min_confidence":"1"}`, `{"timeout_ms":null,"format":null}`, `{"timeout_ms":1e400}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e := envelope.New(envelope.TypeTask, "agent.a", "agent.b", "test.it", nil)
		e.Requires = raw
		if e.Validate() != nil {
			return
		}
		r, err := e.Requirements()
		if err != nil {
			var coded *envelope.Error
			if !errors.As(err, &coded) || coded.Code != envelope.CodeRequires {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if r.Timeout < 0 || r.MinConfidence < 0 || r.MinConfidence > 1 {
			t.Fatalf("out of range: %+v", r)
		}
		e.Requires = r.AppendJSON(nil)
		again, err := e.Requirements()
		if err != nil {
			t.Fatalf("own constraints refused: %v: %s", err, e.Requires)
		}
		// A timeout below a millisecond is written as one millisecond.
		r.Timeout = r.Timeout.Truncate(time.Millisecond)
		if again != r {
			t.Fatalf("changed: %+v, then %+v", r, again)
		}
	})
}

// FuzzErrorOf: the payload of every error that a peer may send can be passed on: it stays
// a JSON object without duplicate names.
func FuzzErrorOf(f *testing.F) {
	for _, s := range []string{
		`{"code":"E_TIMEOUT","message":"late","retryable":true,"backoff_ms":60000,"evidence_refs":["a"]}`,
		`{}`, `{"code":5,"message":5,"retryable":"yes","backoff_ms":"x","evidence_refs":["a",1]}`,
		`{"code":"","detail":{"a":1}}`, `{"backoff_ms":-1}`, `{"backoff_ms":1e300}`, `{"evidence_refs":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e := envelope.New(envelope.TypeError, "agent.a", "agent.b", "test.it", payload)
		e.ReplyTo = "01JFB2R1JZKQ9V3K8W8Y9W1F2A"
		if e.Validate() != nil {
			return
		}
		peer := envelope.ErrorOf(e)
		if peer.Code == "" || peer.Message == "" || peer.BackoffMS < 0 || !peer.FromPeer() {
			t.Fatalf("got %+v", peer)
		}
		e.Payload = peer.Payload()
		if err := e.Validate(); err != nil {
			t.Fatalf("cannot be passed on: %v: %s", err, e.Payload)
		}
		again := envelope.ErrorOf(e)
		if !reflect.DeepEqual(again, peer) {
			t.Fatalf("changed: %+v, then %+v", peer, again)
		}
	})
}
