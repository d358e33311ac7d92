package registry_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/agents/registry/registrytest"
)

func TestMem(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, func(*testing.T) registry.Registry { return &registry.Mem{} })
}

func record(t testing.TB, text string, o registry.Options) registry.Record {
	t.Helper()
	doc, err := aaif.Parse([]byte(text), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := registry.New(doc, o)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestIndexFindsByEveryName(t *testing.T) {
	t.Parallel()
	var x registry.Index
	const id = "5e0c0000-0000-4000-8000-00000000000a"
	for i, rec := range []registry.Record{
		record(t, `{"sc_standard":"SC-006","agent_id":"`+id+`","agent":{"name":"Code Reviewer","goal":"x","skills":["Go review","lint"]}}`, registry.Options{Aliases: []string{"rev"}}),
		record(t, `{"sc_standard":"SC-006","agent":{"name":"Linter","goal":"x","skills":["LINT"]}}`, registry.Options{Entity: "service.eu.linter"}),
		record(t, `{"sc_standard":"SC-006","agent_id":"legacy-7","agent":{"name":"Code Reviewer","goal":"x"}}`, registry.Options{}),
	} {
		x.Set(&registry.Entry{Key: rec.Key(), Revision: uint64(i + 1), Record: rec})
	}
	for name, want := range map[string]string{
		id: id, strings.ToUpper(id): id, "agent.code_reviewer": id, "rev": id, "code_reviewer": id, "legacy-7": "legacy-7",
		"service.eu.linter": "service.eu.linter", "eu.linter": "service.eu.linter", "linter": "", "": "", "Code Reviewer": "",
	} {
		if got, ok := x.Find(name); got.Key != want || ok != (want != "") {
			t.Errorf("%q is %q, want %q", name, got.Key, want)
		}
	}
	var lint []string
	for _, c := range x.Skilled("Lint") {
		lint = append(lint, c.Entity)
	}
	if !reflect.DeepEqual(lint, []string{"agent.code_reviewer", "service.eu.linter"}) {
		t.Errorf("%v", lint)
	}
	twin := record(t, `{"sc_standard":"SC-006","agent_id":"new","agent":{"name":"Other","goal":"x"}}`, registry.Options{Aliases: []string{"rev"}})
	if got, ok := x.Taken(&twin); !ok || got.Key != id {
		t.Errorf("%+v, %v", got, ok)
	}
	x.Set(&registry.Entry{Key: id, Removed: true})
	if got, _ := x.Find("agent.code_reviewer"); got.Key != "legacy-7" {
		t.Errorf("%+v", got)
	}
	if _, ok := x.Taken(&twin); ok {
		t.Error("the alias is still taken")
	}
}

func TestSkillsAreComparedFolded(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"Go review": "go_review", " go--REVIEW ": "go_review", "go_review": "go_review", "C++": "c", "Überprüfung 2": "überprüfung_2", "…": ""} {
		if got := registry.FoldSkill(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// The reader of a stored record of a later release, or of one that was tampered
// with, is told so.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	rec := record(t, `{"sc_standard":"SC-006","agent":{"name":"One","goal":"x"}}`, registry.Options{})
	good, err := rec.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(map[string]any){
		"version 2 is not known":        func(m map[string]any) { m["v"] = 2 },
		"the document is not the one":   func(m map[string]any) { m["document"] = m["document"].(string) + " " },
		"it has two documents":          func(m map[string]any) { m["document_base64"] = "AAAA" },
		"there is no document":          func(m map[string]any) { delete(m, "document") },
		"reads like an entity":          func(m map[string]any) { m["agent_id"] = "agent.two" },
		`entity "": is empty`:           func(m map[string]any) { m["entity"] = "" },
		"characters that do not print":  func(m map[string]any) { m["agent_id"] = "a\u0000" },
		"none of json, yaml, cbor":      func(m map[string]any) { m["format"] = "toml" },
		"cannot unmarshal number":       func(m map[string]any) { m["skills"] = 1 },
		"no agent is hosted":            func(m map[string]any) { m["entity"] = "human.ada" },
		"17 aliases: at most 16":        func(m map[string]any) { m["aliases"] = strings.Split("abcdefghijklmnopq", "") },
		`alias "a" is there twice`:      func(m map[string]any) { m["aliases"] = []string{"a", "a"} },
		"no entity, UUID or URI":        func(m map[string]any) { m["aliases"] = []string{"file:x"} },
		"257 skills: at most 256":       func(m map[string]any) { m["skills"] = make([]string, 257) },
		"has 201 bytes, must have 1 to": func(m map[string]any) { m["agent_id"] = strings.Repeat("x", 201) },
	} {
		var m map[string]any
		if err := json.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		bad, _ := json.Marshal(m)
		if _, err := registry.Decode(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	if _, err := registry.Decode(append(good, make([]byte, registry.MaxRecord)...)); err == nil {
		t.Error("too large a record")
	}
}

func FuzzDecode(f *testing.F) {
	rec := record(f, `{"sc_standard":"SC-006","agent_id":"x","agent":{"name":"One","goal":"x","skills":["a"]}}`, registry.Options{Aliases: []string{"y"}})
	good, err := rec.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"v":1}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := registry.Decode(data)
		if err != nil {
			return
		}
		again, err := rec.Encode()
		if err != nil {
			if strings.Contains(err.Error(), "at most") {
				return // what was written shorter
			}
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := registry.Decode(again)
		if err != nil || back.Key() != rec.Key() || !back.Same(&rec) {
			t.Fatalf("%v\n%+v\n%+v", err, rec, back)
		}
		if err := registry.ValidKey(rec.Key()); err != nil {
			t.Fatal(err)
		}
		var x registry.Index
		x.Set(&registry.Entry{Key: rec.Key(), Revision: 1, Record: rec})
		if c, ok := x.Find(rec.Key()); !ok || c.Entity != rec.Entity {
			t.Fatalf("%q is not found", rec.Key())
		}
		_, _ = rec.Parse()
	})
}
