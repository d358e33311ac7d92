package sign

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
)

var update = flag.Bool("update", false, "write what the code gives into the test vectors of docs/signing.md")

// TestVectorsOfTheDocument reads the test vectors of docs/signing.md and compares the
// blocks that follow each envelope with the output of the code.
func TestVectorsOfTheDocument(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "signing.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seed, secret := make([]byte, 32), make([]byte, 32)
	for i := range seed {
		seed[i], secret[i] = byte(i), byte(32+i)
	}
	ed, err := NewSigner("vector-ed25519", Ed25519, seed)
	if err != nil {
		t.Fatal(err)
	}
	hs, err := NewSigner("vector-hs256", HS256, secret)
	if err != nil {
		t.Fatal(err)
	}
	ring := newTestRing(t, ed.Key(">"), hs.Key(">"))

	var out strings.Builder
	vectors := 0
	rest := string(text)
	for {
		before, after, found := strings.Cut(rest, "\n```")
		out.WriteString(before)
		if !found {
			break
		}
		info, after, _ := strings.Cut(after, "\n")
		// An empty block is closed at once.
		body, after, found := strings.Cut("\n"+after, "\n```")
		if !found {
			t.Fatalf("block %q does not end", info)
		}
		body = strings.TrimPrefix(body, "\n")
		rest = after
		block := func(info, body string) { fmt.Fprintf(&out, "\n```%s\n%s\n```", info, body) }
		switch info {
		case "text keys":
			block(info, keysBlock(t, ed, hs))
		case "json envelope":
			block(info, body)
			vectors++
			for _, b := range vectorBlocks(t, ring, ed, hs, body) {
				out.WriteString("\n")
				block(b[0], b[1])
			}
			// Drop the previous blocks.
			for strings.HasPrefix(rest, "\n\n```json signed") || strings.HasPrefix(rest, "\n\n```text") {
				_, tail, found := strings.Cut(rest[len("\n\n```"):], "\n```")
				if !found {
					t.Fatal("a block does not end")
				}
				rest = tail
			}
		case "json":
			// The sample record must be valid.
			if strings.Contains(body, `"public"`) {
				if _, err := ParseRecord([]byte(body)); err != nil {
					t.Error(err)
				}
			}
			block(info, body)
		default:
			block(info, body)
		}
	}
	if vectors < 10 {
		t.Fatalf("found %d vectors in %s", vectors, path)
	}
	switch {
	case out.String() == string(text):
	case *update:
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		want, got := strings.Split(string(text), "\n"), strings.Split(out.String(), "\n")
		for i := range min(len(want), len(got)) {
			if want[i] != got[i] {
				t.Fatalf("%s:%d (run the test with -update, and look at the difference):\nthe document has %s\nthe code gives   %s", path, i+1, want[i], got[i])
			}
		}
		t.Fatalf("%s ends elsewhere than it should", path)
	}
}

func keysBlock(t *testing.T, ed, hs *Signer) string {
	var lines []string
	for _, s := range []*Signer{ed, hs} {
		text, err := s.appendSeed(nil)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%-15s %-10s %s", s.kid, s.alg, strings.TrimSpace(string(text))))
	}
	r, err := ed.Key(">").Record()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append(lines, fmt.Sprintf("%-15s %-10s %s = %x", ed.kid, "public", r.Public, ed.ed[32:])), "\n")
}

// vectorBlocks returns the blocks that must follow an envelope.
func vectorBlocks(t *testing.T, ring *Ring, ed, hs *Signer, text string) [][2]string {
	t.Helper()
	e, err := envelope.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	message, err := AppendSigned(nil, e)
	if err != nil {
		for _, s := range []*Signer{ed, hs} {
			if err := s.Sign(e); !errors.Is(err, envelope.ErrNumber) || e.Sig != nil {
				t.Fatalf("%s signs it: %v", s, err)
			}
		}
		return [][2]string{{"text error", err.Error()}}
	}
	blocks := [][2]string{{"json signed", string(message)}, {"text sha256", fmt.Sprintf("%x", sha256.Sum256(message))}}
	for _, s := range []*Signer{ed, hs} {
		if err := s.Sign(e); err != nil {
			t.Fatal(err)
		}
		if who, err := ring.Verify(e, noon); err != nil || who.KID != s.kid {
			t.Fatalf("%+v, %v", who, err)
		}
		var sig struct{ Value string }
		if err := json.Unmarshal(e.Sig, &sig); err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, [2]string{"text " + strings.ToLower(string(s.alg)), sig.Value})
	}
	return blocks
}
