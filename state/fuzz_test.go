package state_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
)

var checksumMember = regexp.MustCompile(`"checksum":"[0-9a-f]+",|, "checksum": "[0-9A-F]+"`)

func seed(f *testing.F) {
	f.Helper()
	for name := range compatible {
		data, err := os.ReadFile(filepath.Join(fixtures, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		// Without its checksum a mutated document is still read if Unchecked is set.
		f.Add(checksumMember.ReplaceAll(data, nil))
	}
	f.Add([]byte(`{"sc_standard":"SC-006","state_id":"s","agent_id":"a","checkpoint_at":"c","status":"running"}`))
	f.Add([]byte(`{"x-aeemesh":{"entity":"agent.a","format":1,"ran_ms":9223372036854775807,"notes":[{"message":-1}]}}`))
	f.Add([]byte(`{"conversation":[[[[[[`))
}

// FuzzDecode: a document that can be decoded is encoded as one that the schema accepts,
// and that is decoded to the same checkpoint.
func FuzzDecode(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		c, err := state.Codec{Unchecked: true, MaxBytes: 1 << 20}.Decode(data)
		if !bytes.Equal(before, data) {
			t.Fatal("Decode has changed its input")
		}
		if err != nil {
			return
		}
		if _, err := state.ReadHeader(data); err != nil {
			t.Fatalf("decoded, but the header is refused: %v", err)
		}
		out, err := state.Codec{}.Marshal(c)
		if err != nil {
			t.Fatalf("decoded, but not encoded again: %v", err)
		}
		if _, err := aaif.Parse(out, aaif.Options{Kind: aaif.KindState, Format: aaif.JSON, MaxBytes: 16 << 20, MaxDepth: 256}); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		again, err := state.Codec{}.Decode(out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		twice, err := state.Codec{}.Marshal(again)
		if err != nil || !bytes.Equal(out, twice) {
			t.Fatalf("written\n%s\nthen, %v\n%s", out, err, twice)
		}
		if !reflect.DeepEqual(c.Messages(), again.Messages()) {
			t.Fatalf("messages %+v, then %+v", c.Messages(), again.Messages())
		}
		inCBOR, err := state.Codec{Encoding: aaif.CBOR}.Marshal(again)
		if err != nil {
			t.Fatalf("no CBOR: %v\n%s", err, out)
		}
		third, err := state.Codec{}.Decode(inCBOR)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := (state.Codec{}).Marshal(third); err != nil || !bytes.Equal(text, out) {
			t.Fatalf("through CBOR\n%s\nwas, %v\n%s", text, err, out)
		}
		if _, err := state.Diff(c, again); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzReadHeader: from a header that can be read, a reference can be made.
func FuzzReadHeader(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := state.ReadHeader(data)
		if err != nil || h.Entity == "" || h.Object != nil {
			return
		}
		ref, err := state.Refer(data, state.Object{Name: "n", Size: 1, Digest: "d"})
		if err != nil {
			return // the schema refuses this header
		}
		got, err := state.ReadHeader(ref)
		if err != nil {
			t.Fatalf("%v\n%s", err, ref)
		}
		if got.Object == nil || got.Run != h.Run || got.Status != h.Status || got.Epoch != h.Epoch || got.Work != h.Work || got.Sealed != h.Sealed {
			t.Fatalf("refers with %+v to %+v", got, h)
		}
	})
}

// FuzzOpen: a document that was not sealed with the key is never opened.
func FuzzOpen(f *testing.F) {
	seed(f)
	ring, err := state.NewKeyring(fixtureKey)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := state.Codec{Seal: ring, Unchecked: true}.Decode(data)
		if err != nil {
			return
		}
		if h, err := state.ReadHeader(data); err == nil && h.Sealed != "" {
			if c.Doc.RunID != h.Run || c.Doc.Status != h.Status || c.Mesh.Epoch != h.Epoch || c.Mesh.Entity != h.Entity {
				t.Fatalf("opened %+v under the header %+v", c, h)
			}
		}
	})
}
