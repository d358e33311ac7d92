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

// corpus is the folder of the published schema and its examples, beside the repository.
// Not every machine has it.
const corpus = "../../shared/conformance/aaif"

// documents returns a document of every kind that this release writes: clear, sealed,
// with references.
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
		for _, p := range doc.Lint() { // ids must be UUIDs, times must be times
			if !strings.HasPrefix(name, "foreign") && !strings.Contains(name, "full") && name != "everything.json" {
				t.Errorf("%s: %v", name, p)
			}
		}
	}
}

// formatted compiles a schema with formats asserted.
func formatted(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.Draft, c.AssertFormat = jsonschema.Draft2020, true
	if err := c.AddResource("mem:///state.json", bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("mem:///state.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestDocumentsObeyTheSchemasFormats validates the documents with our schema, formats
// asserted, and with the published schema where that is beside the repository.
func TestDocumentsObeyTheSchemasFormats(t *testing.T) {
	t.Parallel()
	schemas := map[string]*jsonschema.Schema{"ours": formatted(t, aaif.SchemaJSON(aaif.KindState))}
	if text, err := os.ReadFile(filepath.Join(corpus, "schema/agent-state.schema.json")); err == nil {
		schemas["the published one"] = formatted(t, text)
	}
	for name, data := range documents(t) {
		if strings.HasSuffix(name, ".cbor") {
			var err error
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
				s.(map[string]any)["agent_id"], s.(map[string]any)["state_id"] = c0ffee, c0ffee // the ids there are no UUIDs
			}
		}
		for which, schema := range schemas {
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s: %s: %#v", name, which, err)
			}
		}
	}
}

const c0ffee = "c0ffee00-0000-4000-8000-000000000000"

// Documents of other platforms can be read: ours, written by hand, and the published one
// where that is beside the repository.
func TestForeignDocumentsAreRead(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile("testdata/examples/night-porter.json")
	if err != nil {
		t.Fatal(err)
	}
	type example struct {
		data     []byte
		messages int
		step     string
	}
	examples := map[string]example{"ours": {own, 3, "lock_gate"}}
	if data, err := os.ReadFile(filepath.Join(corpus, "tests/conformance/valid/stateful-checkpoint.json")); err == nil {
		examples["the published one"] = example{data, 2, "process_record"}
	}
	for name, e := range examples {
		if _, err := (state.Codec{}).Decode(e.data); err == nil {
			t.Errorf("%s: a document without a checksum was read", name)
		}
		c, err := state.Codec{Unchecked: true}.Decode(e.data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c.Doc.Status != aaif.RunPaused || len(c.Messages()) != e.messages || c.Doc.PipelinePosition.CurrentStep != e.step {
			t.Errorf("%s: read %+v", name, c.Doc)
		}
		out, err := state.Codec{}.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (state.Codec{}).Decode(out); err != nil {
			t.Errorf("%s, written with a checksum: %v", name, err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(e.data, &members); err != nil {
			t.Fatal(err)
		}
		delete(members, "agent_id")
		bad, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (state.Codec{Unchecked: true}).Decode(bad); err == nil {
			t.Errorf("%s without agent_id was read", name)
		}
	}
}
