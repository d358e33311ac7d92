package template

import (
	"bytes"
	_ "embed"
	stdjson "encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/intents/schema"
)

// Limits of a template. They bound the cost of a peer's template, and the part of it that can reach
// a model's prompt.
const (
	MaxBytes       = 128 << 10 // of the text of a template or patch
	MaxKeys        = 200
	MaxDescription = 4_000 // characters of a semantic_description
	maxDefault     = 4 << 10
	maxValueSchema = 16 << 10
)

//go:embed template.schema.json
var templateSchema []byte

//go:embed patch.schema.json
var patchSchema []byte

// The compiled schemas of this package.
var (
	compiledTemplate = compiled(func() []byte { return templateSchema })
	compiledPatch    = compiled(func() []byte { return patchSchema })
)

// compiled returns a function that compiles a schema when it is first called: most processes need
// none of them.
func compiled(raw func() []byte) func() *schema.Schema {
	return sync.OnceValue(func() *schema.Schema {
		s, err := schema.Compile(raw())
		if err != nil {
			panic(err)
		}
		return s
	})
}

// Parse reads one template and adds the key "other" if its author left it out. Names are
// case-sensitive, and duplicate members are refused. Unknown members are ignored, because other
// implementations may have their own; but a name that differs from a known one only in case or
// punctuation is refused. The error is an [*Error] with all problems.
func Parse(raw []byte) (*Template, error) {
	var r report
	t := r.parse(raw, false)
	if err := r.err(""); err != nil {
		return nil, err
	}
	return t.Complete(), nil
}

// Validate checks a template that was made in Go by the rules of [Parse]. A template
// without the key "other" is valid; see [Template.Complete]. The error is an [*Error] with
// all problems.
func (t *Template) Validate() error {
	_, err := t.compile()
	return err
}

// compile validates the template and returns the compiled schema of its keys' values.
func (t *Template) compile() (*schema.Schema, error) {
	var r report
	raw, ok := r.marshal(t)
	if !ok {
		return nil, r.err("")
	}
	if len(raw) > MaxBytes {
		r.add("", "limit", remedies["limit"], "has more than %d bytes", MaxBytes)
		return nil, r.err("")
	}
	r.structure(compiledTemplate(), raw, "")
	s := r.template(t)
	if err := r.err(""); err != nil {
		return nil, err
	}
	return s, nil
}

// marshal checks that the raw parts of a template are JSON, and returns the template as JSON.
func (r *report) marshal(t *Template) ([]byte, bool) {
	r.rawPart("/response_schema", t.ResponseSchema)
	for i := range t.Keys {
		k := at("/keys", i)
		r.rawPart(k+"/default_value", t.Keys[i].Default)
		r.rawPart(k+"/value_schema", t.Keys[i].Value)
	}
	if len(r.problems) > 0 {
		return nil, false
	}
	c := *t
	if c.Keys == nil {
		c.Keys = []Key{}
	}
	raw, err := stdjson.Marshal(&c)
	if err != nil {
		r.add("", "json", remedies["json"], "cannot be written as JSON")
		return nil, false
	}
	return raw, true
}

func (r *report) rawPart(pointer string, raw stdjson.RawMessage) {
	if len(raw) > MaxBytes {
		r.add(pointer, "limit", remedies["limit"], "has more than %d bytes", MaxBytes)
	} else if len(raw) > 0 && !jsontext.Value(raw).IsValid() {
		r.add(pointer, "json", remedies["json"], "is not well-formed JSON")
	}
}

// parse reads a template. strict refuses unknown members. The result is valid only if there are no
// problems.
func (r *report) parse(raw []byte, strict bool) *Template {
	if len(raw) > MaxBytes {
		r.add("", "limit", remedies["limit"], "has more than %d bytes", MaxBytes)
		return nil
	}
	if !r.structure(compiledTemplate(), raw, "") || r.rootFails() {
		return nil
	}
	t := &Template{}
	all := membersOf(raw)
	r.names(all, "", templateMembers, strict)
	for _, m := range all {
		if m.name == "keys" {
			t.Keys = r.keys(m.value, "/keys", strict)
		} else if p := at("", m.name); !r.within(p) {
			decodeMember(t, m)
		}
	}
	r.template(t)
	return t
}

// rootFails reports whether the document is not an object.
func (r *report) rootFails() bool {
	return slices.ContainsFunc(r.problems, func(p Problem) bool { return p.Pointer == "" && p.Rule == "type" })
}

func decodeMember(t *Template, m member) {
	switch m.name {
	case "schema_id":
		t.SchemaID = textOf(m.value)
	case "scenario":
		t.Scenario = textOf(m.value)
	case "description":
		t.Description = textOf(m.value)
	case "language":
		t.Language = textOf(m.value)
	case "response_schema":
		t.ResponseSchema = bytes.Clone(m.value)
	}
}

// keys reads key definitions. A key with a member of a wrong type stays zero, because its problems
// are reported already.
func (r *report) keys(raw []byte, pointer string, strict bool) []Key {
	items := itemsOf(raw)
	if len(items) > MaxKeys {
		items = items[:MaxKeys]
	}
	keys := make([]Key, len(items))
	for i, item := range items {
		p := at(pointer, i)
		if jsontext.Value(item).Kind() != '{' {
			continue
		}
		r.names(membersOf(item), p, keyMembers, strict)
		var k Key
		if err := json.Unmarshal(item, &k); err == nil {
			keys[i] = k
		}
		if isNull(keys[i].Default) {
			keys[i].Default = nil
		}
	}
	return keys
}

// The known members.
var (
	templateMembers = knownMembers("schema_id", "scenario", "description", "language", "keys", "response_schema", "client")
	keyMembers      = knownMembers("key_name", "key_type", "required", "default_value", "semantic_description",
		"semantic_descriptions", "value_schema", "property", "experimental", "deprecated")
)

// knownMembers maps each name, without case and punctuation, to itself.
func knownMembers(names ...string) map[string]string {
	m := make(map[string]string, len(names))
	for _, name := range names {
		m[plainName(name)] = name
	}
	return m
}

func plainName(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(name))
}

// names refuses members whose names are similar to known ones, and, if strict, all unknown members
// whose names do not begin with x-.
func (r *report) names(all []member, pointer string, known map[string]string, strict bool) {
	for _, m := range all {
		want, near := known[plainName(m.name)]
		switch {
		case near && want == m.name:
		case near:
			r.add(at(pointer, m.name), "member", "write "+want, "%s is not the name of a member", quoted(m.name))
		case strict && !strings.HasPrefix(m.name, "x-") && m.name != "$schema":
			r.add(at(pointer, m.name), "member", "remove it, or begin its name with x-", "%s is not known here", quoted(m.name))
		}
	}
}

// A member is one member of an object. value shares the document's memory.
type member struct {
	name  string
	value []byte
}

// membersOf returns the members of an object in their order. raw is valid JSON.
func membersOf(raw []byte) []member {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil
	}
	var all []member
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return all
		}
		m := member{name: name.String()}
		v, err := dec.ReadValue()
		if err != nil {
			return all
		}
		end := int(dec.InputOffset())
		m.value = raw[end-len(v) : end]
		all = append(all, m)
	}
	return all
}

// itemsOf returns the items of an array. raw is valid JSON.
func itemsOf(raw []byte) [][]byte {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '[' {
		return nil
	}
	var all [][]byte
	for dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if err != nil || err == io.EOF {
			return all
		}
		end := int(dec.InputOffset())
		all = append(all, raw[end-len(v):end])
	}
	return all
}

// textOf returns the text of a JSON string, "" for any other value.
func textOf(raw []byte) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(text)
}

func isNull(raw []byte) bool { return len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" }

// quoteJSON returns s as a JSON string.
func quoteJSON(s string) []byte {
	out, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		return []byte(strconv.Quote(s))
	}
	return out
}
