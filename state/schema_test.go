package state_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/state"
	"github.com/santhosh-tekuri/jsonschema/v5"
)

// corpus is where the published schema and its examples stand beside the
// repository.
const corpus = "../../shared/conformance/aaif"

// documents are all kinds that this release writes: clear, sealed, referring.
func documents(t *testing.T) map[string][]byte {
	t.Helper()
	docs := map[string][]byte{}
	for name := range compatible {
		data, err := os.ReadFile(filepath.Join(fixtures, name))
		if err != nil {
			t.Fatal(err)
		}
		docs[name] = data
	}
	for name, k := range map[string]state.Codec{"full": {}, "sealed full": fixtureCodec(t, "sealed")} {
		data, err := k.Encode(full())
		if err != nil {
			t.Fatal(err)
		}
		docs[name] = data
		ref, err := state.Refer(data, state.Object{Name: "o", Size: int64(len(data)), Digest: "sha256:00"})
		if err != nil {
			t.Fatal(err)
		}
		docs[name+", referred to"] = ref
	}
	c := state.New("agent.a", "t", "")
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	docs["the least"] = data
	return docs
}

func TestDocumentsObeyTheSchema(t *testing.T) {
	t.Parallel()
	for name, data := range documents(t) {
		doc, err := aaif.Parse(data, aaif.Options{Kind: aaif.KindState})
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, data)
			continue
		}
		for _, p := range doc.Lint() { // ids that are UUIDs, times that are times
			if !strings.HasPrefix(name, "foreign") && !strings.Contains(name, "full") && name != "everything.json" {
				t.Errorf("%s: %v", name, p)
			}
		}
	}
}

// TestDocumentsObeyThePublishedSchema holds them to the schema as it was
// published, formats asserted.
func TestDocumentsObeyThePublishedSchema(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(corpus, "schema/agent-state.schema.json"))
	if err != nil {
		t.Skipf("the published schema is not beside the repository: %v", err)
	}
	c := jsonschema.NewCompiler()
	c.Draft, c.AssertFormat = jsonschema.Draft2020, true
	if err := c.AddResource("state.json", bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("state.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range documents(t) {
		if strings.HasSuffix(name, ".cbor") {
			if data, err = aaif.CBORToJSON(data, 64); err != nil {
				t.Fatal(err)
			}
		}
		var v any
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if name == "full" || name == "everything.json" {
			for _, s := range v.(map[string]any)["subagent_states"].([]any) {
				s.(map[string]any)["agent_id"], s.(map[string]any)["state_id"] = c0ffee, c0ffee // no UUIDs in there, for short
			}
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %#v", name, err)
		}
	}
}

const c0ffee = "c0ffee00-0000-4000-8000-000000000000"

func TestPublishedExamplesAreRead(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(corpus, "tests/conformance/valid/stateful-checkpoint.json"))
	if err != nil {
		t.Skipf("the published examples are not beside the repository: %v", err)
	}
	if _, err := (state.Codec{}).Decode(data); err == nil {
		t.Error("a document without a checksum was read")
	}
	c, err := state.Codec{Unchecked: true}.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if c.Doc.Status != aaif.RunPaused || len(c.Messages()) != 2 || c.Doc.PipelinePosition.CurrentStep != "process_record" {
		t.Errorf("read %+v", c.Doc)
	}
	out, err := state.Codec{}.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (state.Codec{}).Decode(out); err != nil {
		t.Errorf("written with a checksum: %v", err)
	}
	bad, err := os.ReadFile(filepath.Join(corpus, "tests/conformance/invalid/state-missing-agent-id.json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (state.Codec{Unchecked: true}).Decode(bad); err == nil {
		t.Error("a document without agent_id was read")
	}
}
