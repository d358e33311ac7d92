package template

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"sync"

	experiment "github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/intents"
)

// SuggestionMember is the member of a result's payload with a [Patch] (SDSI 6.2.2).
const SuggestionMember = "schema_update_suggestion"

// GetTask asks an agent for a template: the payload of intent sdsi.schema.get.
type GetTask struct {
	Scenario string `json:"scenario,omitempty"`
	SchemaID string `json:"schema_id,omitempty"` // default: the scenario's current version
	Language string `json:"preferred_language,omitempty"`
	IfHash   string `json:"if_hash,omitempty"`
	// Updates, if false, asks for the template without patches. Default true.
	Updates *bool `json:"schema_updates,omitempty"`
}

// GetResult answers a [GetTask]. On the wire the template's members are members of the result.
type GetResult struct {
	Template
	Patches []Patch
	// Hash identifies the content of the answer, for [GetTask].IfHash.
	Hash string
	// NotModified reports that the content with this hash is current. Only SchemaID, Scenario and
	// Hash are set then.
	NotModified bool
}

// getResult has the members of a [GetResult] beside the template's.
type getResult struct {
	Patches     []Patch `json:"patches,omitempty"`
	Hash        string  `json:"hash"`
	NotModified bool    `json:"not_modified,omitempty"`
}

// MarshalJSON returns the payload of the result.
func (r GetResult) MarshalJSON() ([]byte, error) {
	var first []byte
	var err error
	if r.NotModified {
		first, err = experiment.Marshal(struct {
			SchemaID string `json:"schema_id"`
			Scenario string `json:"scenario"`
		}{r.SchemaID, r.Scenario})
	} else {
		first, err = experiment.Marshal(&r.Template)
	}
	if err != nil {
		return nil, err
	}
	rest, err := experiment.Marshal(getResult{r.Patches, r.Hash, r.NotModified})
	if err != nil {
		return nil, err
	}
	return append(append(first[:len(first)-1], ','), rest[1:]...), nil
}

// ParseGetResult reads the payload of a result from another agent. It validates the template as
// [Parse] does, and the patches as [ParsePatch] does.
func ParseGetResult(raw []byte) (*GetResult, error) {
	var patches struct {
		Patches []json.RawMessage `json:"patches"`
		getResult
		SchemaID string `json:"schema_id"`
		Scenario string `json:"scenario"`
	}
	if err := json.Unmarshal(raw, &patches); err != nil {
		return nil, fmt.Errorf("result of %s: %w", intents.SchemaGet, err)
	}
	out := &GetResult{Hash: patches.Hash, NotModified: patches.NotModified}
	if out.NotModified {
		out.SchemaID, out.Scenario = patches.SchemaID, patches.Scenario
		return out, nil
	}
	t, err := Parse(Without(raw, "patches", "hash", "not_modified"))
	if err != nil {
		return nil, err
	}
	out.Template = *t
	if len(patches.Patches) > MaxPatches {
		return nil, fmt.Errorf("result of %s: has %d patches, at most %d are read", intents.SchemaGet, len(patches.Patches), MaxPatches)
	}
	for _, p := range patches.Patches {
		patch, err := ParsePatch(p)
		if err != nil {
			return nil, err
		}
		out.Patches = append(out.Patches, *patch)
	}
	return out, nil
}

// Without returns a JSON object without some of its members.
func Without(object json.RawMessage, names ...string) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return object
	}
	for _, name := range names {
		delete(members, name)
	}
	raw, err := json.Marshal(members)
	if err != nil {
		return object
	}
	return raw
}

// ListResult answers a task of intent sdsi.schema.list.
type ListResult struct {
	Scenarios []Listed `json:"scenarios"`
}

// Listed is the current version of a scenario's template.
type Listed struct {
	Scenario    string   `json:"scenario"`
	SchemaID    string   `json:"schema_id"`
	Description string   `json:"description,omitempty"`
	Languages   []string `json:"languages,omitempty"`
	Hash        string   `json:"hash"`
}

// Request is a request in one of the draft's own forms, whatever the intent of its task.
type Request struct {
	Intent  string          // [intents.SchemaGet] or [intents.Exchange]
	Payload json.RawMessage // in the form of that intent
}

// Recognize reads the draft's own forms (SDSI 9): {"method":"get_schema_template", "params":{…}}
// and {"schema_id":…,"payload":{…}}, also as the text of a payload {"text":…}, which is what plain
// text becomes. Further members are ignored. A malformed payload that is meant as one of these
// forms is recognized, too, so that it is refused and not handled as a task.
func Recognize(payload json.RawMessage) (Request, bool) {
	// Most payloads are neither; they are not decoded.
	if !bytes.Contains(payload, []byte("schema_id")) && !bytes.Contains(payload, []byte("get_schema_template")) {
		return Request{}, false
	}
	var p struct {
		Method   string          `json:"method"`
		Params   json.RawMessage `json:"params"`
		SchemaID *string         `json:"schema_id"`
		Payload  json.RawMessage `json:"payload"`
		Text     string          `json:"text"`
	}
	if json.Unmarshal(payload, &p) != nil {
		if misshapen(payload) { // ParsePayload reports what is wrong
			return Request{intents.Exchange, payload}, true
		}
		return Request{}, false
	}
	isObject := func(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
	switch {
	case p.Method == "get_schema_template" && len(p.Params) == 0:
		return Request{intents.SchemaGet, json.RawMessage(`{}`)}, true
	case p.Method == "get_schema_template":
		return Request{intents.SchemaGet, p.Params}, true
	case p.SchemaID != nil && isObject(p.Payload), misshapen(payload):
		return Request{intents.Exchange, payload}, true
	case isObject(json.RawMessage(p.Text)):
		if r, ok := Recognize(json.RawMessage(p.Text)); ok {
			return r, true
		}
	}
	return Request{}, false
}

// misshapen reports whether a payload is meant as an exchange, whatever the values of its members:
// it has a schema_id, and only members of an exchange.
func misshapen(payload json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(payload, &members) != nil || members["schema_id"] == nil {
		return false
	}
	for name := range members {
		switch name {
		case "schema_id", "payload", "fragments", "schema_updates":
		default:
			return false
		}
	}
	return true
}

//go:embed wire/*.schema.json
var wireFiles embed.FS

// Intents returns the intents of SDSI with the schemas of their payloads, for the registry of an
// agent that publishes templates. The schema for the result of an exchange is in the template, not
// here.
var Intents = sync.OnceValue(func() []intents.Definition {
	dir, err := fs.Sub(wireFiles, "wire")
	var all []intents.Definition
	if err == nil {
		all, err = intents.ReadFS(dir)
	}
	if err != nil {
		panic(fmt.Sprintf("template: embedded schemas: %v", err))
	}
	return all
})
