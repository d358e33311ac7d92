package state_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/state"
)

// CheckChecksum computes the checksum that a document without one should have: with it,
// the document is accepted.
func TestCheckChecksum(t *testing.T) {
	t.Parallel()
	const bare = `{"sc_standard":"SC-006","sc_version":"3.4.0","state_id":"7f0c3f5e-6e0f-4d52-9a0c-1c2f8e6b9d01","agent_id":"7f0c3f5e-6e0f-4d52-9a0c-1c2f8e6b9d02","run_id":"7f0c3f5e-6e0f-4d52-9a0c-1c2f8e6b9d03","checkpoint_at":"2026-06-10T12:00:00Z","status":"paused","conversation":[{"role":"user","content":"Go."}]%s}`
	doc := func(provenance string) []byte { return []byte(strings.Replace(bare, "%s", provenance, 1)) }
	want, err := state.CheckChecksum(doc(""))
	if !errors.Is(err, state.ErrNoChecksum) || !errors.Is(err, state.ErrChecksum) {
		t.Fatalf("no checksum: %v", err)
	}
	for provenance, is := range map[string]error{
		`,"provenance":{"checksum":""}`:                                       state.ErrNoChecksum,
		`,"provenance":{"checksum":"sha256:TODO"}`:                            state.ErrNoChecksum,
		`,"provenance":{"checksum":"` + strings.Repeat("0", 64) + `"}`:        state.ErrChecksum,
		`,"provenance":{"source_platform":"other","checksum":"` + want + `"}`: state.ErrChecksum,
		`,"provenance":{"checksum":"` + want + `"}`:                           nil,
		` , "provenance" : { "checksum" : "` + strings.ToUpper(want) + `" }`:  nil,
	} {
		got, err := state.CheckChecksum(doc(provenance))
		_, decoded := state.Codec{}.Decode(doc(provenance))
		if !errors.Is(err, is) || (err == nil) != (is == nil) || is == state.ErrChecksum && errors.Is(err, state.ErrNoChecksum) {
			t.Errorf("%s: %v, want %v", provenance, err, is)
		}
		if (decoded == nil) != (is == nil) || is != nil && !errors.Is(decoded, is) || is == nil && got != want {
			t.Errorf("%s: read with %v, want %v; the checksum is %s", provenance, decoded, is, got)
		}
	}
}

func TestContentChecksum(t *testing.T) {
	t.Parallel()
	base := `{"b":1,"provenance":{"source_platform":"p"},"a":[1.0]}`
	want, err := state.ContentChecksum([]byte(base))
	if err != nil {
		t.Fatal(err)
	}
	for text, same := range map[string]bool{
		`{"a":[1],"b":1.0,"provenance":{"source_platform":"p","checksum":"x","migration_token":"t"}}`: true,
		`{"a":[1],"b":1,"provenance":{"source_platform":"q"}}`:                                        false,
		`{"a":[1],"b":1,"checksum":"x","provenance":{"source_platform":"p"}}`:                         false,
		`{"a":[1],"b":1}`: false,
	} {
		if got, err := state.ContentChecksum([]byte(text)); err != nil || (got == want) != same {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
