package envelope_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what the code gives into the golden files of testdata")

// An output is one expected file for a vector's input.
type output struct{ ext, text string }

// runVectors calls f for every input of testdata/<name>.txtar, a file that ends in .json
// (text) or .hex (bytes), and compares its results with the files of the same name that
// follow the input. With -update it writes them.
func runVectors(t *testing.T, name string, f func(t *testing.T, input []byte) []output) {
	t.Helper()
	path := filepath.Join("testdata", name+".txtar")
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, file := range archive.Files {
		if _, dup := want[file.Name]; dup {
			t.Fatalf("%s: %s occurs twice", path, file.Name)
		}
		want[file.Name] = string(file.Data)
	}
	got := &txtar.Archive{Comment: archive.Comment}
	inputs := 0
	for _, file := range archive.Files {
		ext := filepath.Ext(file.Name)
		if ext != ".json" && ext != ".hex" {
			continue
		}
		inputs++
		got.Files = append(got.Files, file)
		base := strings.TrimSuffix(file.Name, ext)
		t.Run(base, func(t *testing.T) {
			input := bytes.TrimSuffix(file.Data, []byte("\n"))
			if ext == ".hex" {
				if input, err = hex.DecodeString(strings.Join(strings.Fields(string(input)), "")); err != nil {
					t.Fatal(err)
				}
			}
			for _, out := range f(t, input) {
				out.text = strings.TrimSuffix(out.text, "\n") + "\n"
				got.Files = append(got.Files, txtar.File{Name: base + out.ext, Data: []byte(out.text)})
				if want := want[base+out.ext]; out.text != want && !*update {
					t.Errorf("%s%s:\ngot  %swant %s", base, out.ext, out.text, want)
				}
			}
		})
	}
	if inputs == 0 {
		t.Fatalf("%s has no inputs", path)
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(got), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if len(got.Files) != len(archive.Files) {
		t.Errorf("%s has %d files, %d of them belong to an input or are one: run the test with -update", path, len(archive.Files), len(got.Files))
	}
}

// TestAccept: each envelope is valid and has these encodings.
func TestAccept(t *testing.T) {
	t.Parallel()
	runVectors(t, "accept", func(t *testing.T, input []byte) []output {
		e, err := envelope.Parse(input)
		if err != nil {
			t.Fatal(err)
		}
		text, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		out := []output{{".encoded", string(text)}}
		canonical, err := envelope.Canonical(text)
		if err != nil {
			return append(out, output{".canonical", "error: " + err.Error()})
		}
		cbor, err := e.AppendCBOR(nil)
		if err != nil {
			t.Fatal(err)
		}
		fromCBOR, err := envelope.ParseCBOR(cbor)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := e.Hash()
		if err != nil {
			t.Fatal(err)
		}
		if h, err := fromCBOR.Hash(); h != hash || err != nil {
			t.Errorf("the hash of the CBOR is %s (%v), of the JSON %s", h, err, hash)
		}
		return append(out, output{".canonical", string(canonical)}, output{".sha256", hash}, output{".cbor", hex.EncodeToString(cbor)})
	})
}

// TestReject: each envelope is refused with exactly these problems: rule, field and text.
func TestReject(t *testing.T) {
	t.Parallel()
	runVectors(t, "reject", func(t *testing.T, input []byte) []output {
		_, err := envelope.Parse(input)
		return []output{{".problems", problemsOf(t, err)}}
	})
}

// TestLog: MVE-5 records, how ParseLog reads them, and how a reader of full envelopes
// refuses them.
func TestLog(t *testing.T) {
	t.Parallel()
	runVectors(t, "log", func(t *testing.T, input []byte) []output {
		_, err := envelope.Parse(input)
		full := "accepted"
		if err != nil {
			full = problemsOf(t, err)
		}
		r, err := envelope.ParseLog(input)
		if err != nil {
			return []output{{".log", problemsOf(t, err)}, {".full", full}}
		}
		var others []string
		for _, m := range r.Others {
			others = append(others, fmt.Sprintf("%s = %s\n", m.Name, m.Value))
		}
		return []output{{".log", fmt.Sprintf("v = %s\nid = %s\ntype = %s\nfrom = %s\nintent = %s\n%s", r.V, r.ID, r.Type, r.From, r.Intent, strings.Join(others, ""))}, {".full", full}}
	})
}

// TestCanonical: canonical JSON, RFC 8785.
func TestCanonical(t *testing.T) {
	t.Parallel()
	runVectors(t, "canonical", func(t *testing.T, input []byte) []output {
		out, err := envelope.Canonical(input)
		if err != nil {
			return []output{{".error", err.Error()}}
		}
		return []output{{".canonical", string(out)}}
	})
}

// TestCBOR: the JSON that CBOR is decoded to, and which CBOR is refused and why. The
// bytes are member "x" of the payload of an envelope.
func TestCBOR(t *testing.T) {
	t.Parallel()
	runVectors(t, "cbor", func(t *testing.T, input []byte) []output {
		e, err := envelope.ParseCBOR(withPayload(append([]byte{0xa1, 0x61, 'x'}, input...)))
		if err != nil {
			return []output{{".problems", problemsOf(t, err)}}
		}
		return []output{{".payload", string(e.Payload)}}
	})
}

// withPayload returns a valid envelope in CBOR with the given payload in CBOR.
func withPayload(payload []byte) []byte {
	var e map[string]json.RawMessage
	if err := json.Unmarshal([]byte(draftTask), &e); err != nil {
		panic(err)
	}
	b := []byte{0xa0 + 10}
	for _, name := range []string{"v", "id", "ts", "type", "from", "to", "intent", "corr", "priority"} {
		var text string
		if err := json.Unmarshal(e[name], &text); err != nil {
			panic(err)
		}
		b = append(append(b, 0x60+byte(len(name))), name...)
		b = append(append(b, 0x78, byte(len(text))), text...)
	}
	b = append(append(b, 0x67), "payload"...)
	return append(b, payload...)
}

// problemsOf lists the problems of an *InvalidError, one per line.
func problemsOf(t *testing.T, err error) string {
	t.Helper()
	var invalid *envelope.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
		t.Fatalf("want an InvalidError with problems, got %v", err)
	}
	var b strings.Builder
	for _, p := range invalid.Problems {
		fmt.Fprintf(&b, "rule %s: %s\n", p.Rule, p)
	}
	return b.String()
}
