package state_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

func ring(t *testing.T, newest state.Key, older ...state.Key) *state.Keyring {
	t.Helper()
	k, err := state.NewKeyring(newest, older...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func key(b byte) state.Key { return state.Key{Secret: bytes.Repeat([]byte{b}, state.KeySize)} }

func TestSealedDocumentsShowTheirHeaderOnly(t *testing.T) {
	t.Parallel()
	c := full()
	data, err := state.Codec{Seal: ring(t, key(1))}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"Be brief", `"redis"`, `"send"`, "human.ann", `"c3"`, `"hurry"`, "1.2.3", "half a sen", `"foreign"`, "stack_trace", "E_TOOL", "call_1", `"tok"`} {
		if strings.Contains(string(data), secret) {
			t.Errorf("%s is in the clear: %.1500s", secret, data)
		}
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	for _, member := range []string{"agent_id", "checkpoint_at", "iteration", "provenance", "run_id", "sc_standard", "sc_version", "state_id", "status", state.Extension} {
		if _, ok := doc[member]; !ok {
			t.Errorf("%s is not in the clear", member)
		}
		delete(doc, member)
	}
	if len(doc) > 0 {
		t.Errorf("in the clear besides: %v", doc)
	}
	if _, err := (state.Codec{}).Decode(data); !errors.Is(err, state.ErrSealed) {
		t.Errorf("without a key: %v, want %v", err, state.ErrSealed)
	}
	if _, err := (state.Codec{Seal: ring(t, key(2))}).Decode(data); !errors.Is(err, state.ErrSealed) {
		t.Errorf("with another key: %v, want %v", err, state.ErrSealed)
	}
}

func TestKeysChange(t *testing.T) {
	t.Parallel()
	old, both := state.Codec{Seal: ring(t, key(1))}, state.Codec{Seal: ring(t, key(2), key(1))}
	current := state.Codec{Seal: ring(t, key(2))}
	clear, err := state.Codec{}.Encode(full())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Decode(clear); !errors.Is(err, state.ErrClear) {
		t.Errorf("a clear document, with a key: %v, want %v", err, state.ErrClear)
	}
	lenient := old
	lenient.AcceptClear = true
	c, err := lenient.Decode(clear) // stored before the mesh began to seal
	if err != nil {
		t.Fatal(err)
	}
	first, err := old.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = both.Decode(first); err != nil {
		t.Fatal(err)
	}
	second, err := both.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Decode(second); !errors.Is(err, state.ErrSealed) {
		t.Errorf("the old key opens what the new one sealed: %v", err)
	}
	got, err := current.Decode(second)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, canonicalRaw(t, c))
}

// A sealed document with any change, above all in its header, is not opened. White space
// and another encoding are no change.
func TestSealsBreak(t *testing.T) {
	t.Parallel()
	k := state.Codec{Seal: ring(t, key(1)), Unchecked: true}
	c, d := full(), full()
	data, err := k.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	other, err := k.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	sealedText := func(data []byte) string {
		_, after, _ := strings.Cut(string(data), `"text":"`)
		text, _, _ := strings.Cut(after, `"`)
		return text
	}
	text := sealedText(data)
	_, nonce, _ := strings.Cut(string(data), `"nonce":"`)
	nonce, _, _ = strings.Cut(nonce, `"`)
	for name, edit := range map[string][2]string{
		"epoch":         {`"epoch":3`, `"epoch":4`},
		"owner":         {`"owner":"host-1"`, `"owner":"host-2"`},
		"status":        {`"status":"awaiting_approval"`, `"status":"running"`},
		"iteration":     {`"iteration":2`, `"iteration":1`},
		"run":           {c.Doc.RunID, state.RunID("agent.x", "y")},
		"state":         {c.Doc.StateID, d.Doc.StateID},
		"work":          {`"work":99`, `"work":98`},
		"a new member":  {`"agent_id"`, `"_comment":"x","agent_id"`},
		"the text":      {text, text[:9] + flip(text[9:10]) + text[10:]},
		"another text":  {text, sealedText(other)},
		"no text":       {text, ""},
		"half a nonce":  {nonce, nonce[:len(nonce)/8*4]},
		"half a text":   {text, text[:len(text)/8*4]},
		"the platform":  {`"source_platform":"aeemesh"`, `"source_platform":"x"`},
		"a cut in half": {text, text[:4] + " " + text[4:]},
	} {
		bad := strings.Replace(string(data), edit[0], edit[1], 1)
		if bad == string(data) {
			t.Fatalf("%s is not there", edit[0])
		}
		sum := checksumMember.ReplaceAllString(bad, "") // a better attacker removes the checksum, too
		fits := string(resummed(t, state.Record{Data: []byte(bad)}).Data)
		for _, doc := range []string{bad, sum, fits} {
			if _, err := k.Decode([]byte(doc)); err == nil || errors.Is(err, state.ErrSealed) {
				t.Errorf("%s altered: %v", name, err)
			}
		}
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	indented, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	inCBOR, err := aaif.JSONToCBOR(data, 64)
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string][]byte{"indented": indented, "CBOR": inCBOR} {
		got, err := k.Decode(doc)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		same(t, got, canonicalRaw(t, c))
	}
}

func flip(s string) string {
	if s == "A" {
		return "B"
	}
	return "A"
}

func TestKeyrings(t *testing.T) {
	t.Parallel()
	if _, err := state.NewKeyring(state.Key{Secret: []byte("short")}); err == nil || err.Error() != "state key 1: it has 5 bytes, must have 32" {
		t.Errorf("a short key: %v", err)
	}
	if _, err := state.NewKeyring(key(1), key(1)); err == nil {
		t.Error("one key twice")
	}
	k := ring(t, key(1), state.Key{ID: "old", Secret: key(2).Secret})
	// The id of a key is wire format: it says which key opens a document.
	if ids := k.IDs(); len(ids) != 2 || ids[0] != state.KeyID(key(1).Secret) || ids[0] != "82f8f11a6f1bede5" || ids[1] != "old" {
		t.Errorf("ids %v", ids)
	}
	if a, b := fmt.Sprintf("%v %+v %#v", k, k, k), "state keys 82f8f11a6f1bede5, old"; a != b+" "+b+" "+b {
		t.Errorf("printed as %s", a)
	}
	if _, err := (state.Codec{Seal: k}).Encode(&state.Checkpoint{Doc: aaif.State{AgentID: "a", Status: aaif.RunPaused}}); err == nil {
		t.Error("a document without an entity was sealed")
	}
}

func TestRefer(t *testing.T) {
	t.Parallel()
	object := state.Object{Name: "agent.reviewer/x", Size: 300000, Digest: "sha256:00"}
	for name, k := range map[string]state.Codec{"clear": {}, "sealed": {Seal: ring(t, key(1))}, "cbor": {Encoding: aaif.CBOR}} {
		c := full()
		c.Mesh.Waits = []state.Wait{{Entity: "agent.writer", TaskID: "t", Key: "k\xff", Asked: start, Schema: "{}"}}
		data, err := fixed(k).Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := state.Refer(data, object)
		if err != nil {
			t.Fatal(err)
		}
		if known, err := k.Header(c).Refer(object); err != nil || !bytes.Equal(known, ref) {
			t.Errorf("%s: of the known header %s, %v; want %s", name, known, err, ref)
		}
		want, err := state.ReadHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := state.ReadHeader(ref)
		if err != nil {
			t.Fatal(err)
		}
		if got.Object == nil || *got.Object != object {
			t.Errorf("%s: refers to %+v", name, got.Object)
		}
		if got.Object = nil; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: header %+v, want %+v", name, got, want)
		}
		if _, err := k.Decode(ref); !errors.Is(err, state.ErrElsewhere) {
			t.Errorf("%s: %v, want %v", name, err, state.ErrElsewhere)
		}
		if _, err := state.Refer(ref, object); err == nil {
			t.Errorf("%s: a reference to a reference", name)
		}
	}
}

// Finding 18 of the security review: an attacker who can write to the store, but has no
// key, cannot replace a record of a run with an older one, nor with one of another run.
func TestARecordCannotReplaceAnother(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	k := state.Codec{Seal: ring(t, key(1))}
	var store state.Mem
	c := full()
	var records []state.Record
	for prev := uint64(0); len(records) < 4; {
		data, err := k.Over(prev).Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if prev, err = store.Put(ctx, c.ID(), prev, data); err != nil {
			t.Fatal(err)
		}
		rec, err := store.Get(ctx, c.ID())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Read(rec); err != nil {
			t.Errorf("revision %d: %v", prev, err)
		}
		records = append(records, rec)
	}
	last := records[3].Revision
	for i, old := range records[1:] { // also the newest, a second time
		rev, err := store.Put(ctx, c.ID(), last, old.Data)
		if err != nil {
			t.Fatal(err)
		}
		last = rev
		rec, err := store.Get(ctx, c.ID())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Read(rec); !errors.Is(err, state.ErrReplaced) {
			t.Errorf("record %d again: %v", i+2, err)
		}
	}
	for _, rec := range records { // the history returns them unchanged
		if _, err := k.Read(rec); err != nil {
			t.Errorf("revision %d: %v", rec.Revision, err)
		}
	}
	elsewhere := records[2]
	elsewhere.ID.Run = "another"
	if _, err := k.Read(elsewhere); !errors.Is(err, state.ErrReplaced) {
		t.Errorf("as another run's: %v", err)
	}
	unheld := records[2]
	unheld.Swapped = false
	if _, err := k.Read(unheld); !errors.Is(err, state.ErrReplaced) {
		t.Errorf("written without a swap: %v", err)
	}
	altered := records[2]
	altered.Data = bytes.Replace(altered.Data, fmt.Appendf(nil, `"over":%d`, altered.Over), []byte(`"over":4`), 1)
	altered.Over = 4
	if _, err := k.Read(resummed(t, altered)); !errors.Is(err, state.ErrForged) {
		t.Errorf("with another revision written into it: %v", err)
	}
	unbound, err := k.Encode(c) // as an earlier release wrote it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Read(state.Record{ID: c.ID(), Data: unbound, Revision: 9, Over: 8, Swapped: true}); err != nil {
		t.Errorf("one that says nothing: %v", err)
	}
}

// resummed returns the record with a checksum that fits its content.
func resummed(t *testing.T, r state.Record) state.Record {
	t.Helper()
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(r.Data, &doc); err != nil {
		t.Fatal(err)
	}
	var p map[string]any
	if err := json.Unmarshal(doc["provenance"], &p); err != nil {
		t.Fatal(err)
	}
	sum, err := state.ContentChecksum(r.Data)
	if err != nil {
		t.Fatal(err)
	}
	p["checksum"] = sum
	if doc["provenance"], err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	if r.Data, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	return r
}
