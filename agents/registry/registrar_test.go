package registry_test

import (
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/registry"
)

// A registration keeps its entity and aliases when its document changes, is
// left alone when nothing changes, and gives way only to Replace.
func TestARegistrarKeepsWhatTheDocumentDoesNotSay(t *testing.T) {
	t.Parallel()
	reg := &registry.Mem{}
	registrar := func() *registry.Registrar {
		all, err := reg.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return registry.NewRegistrar(reg, all)
	}
	document := func(id, version string) *aaif.Document {
		doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent_id":"`+id+`","agent":{"name":"Linter","goal":"x","version":"`+version+`"}}`), aaif.Options{Kind: aaif.KindAgent})
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	const id, other = "5e0c0000-0000-4000-8000-00000000000a", "5e0c0000-0000-4000-8000-00000000000b"
	put := func(r *registry.Registrar, doc *aaif.Document, as string, aliases ...string) (registry.Record, registry.Registered) {
		t.Helper()
		rec, err := r.Record(doc, as, "human.ada")
		if err != nil {
			t.Fatal(err)
		}
		if aliases != nil {
			rec.Aliases = aliases
		}
		if err := r.Free(&rec); err != nil {
			t.Fatal(err)
		}
		done, err := r.Put(t.Context(), rec)
		if err != nil {
			t.Fatal(err)
		}
		return rec, done
	}
	if _, done := put(registrar(), document(id, "1.0.0"), "agent.eu.linter", "lint"); done.Outcome != "new" || done.Revision == 0 {
		t.Errorf("first: %+v", done)
	}
	rec, done := put(registrar(), document(id, "1.1.0"), "")
	if done.Outcome != "changed" || done.Was != "1.0.0" || rec.Entity != "agent.eu.linter" || len(rec.Aliases) != 1 {
		t.Errorf("second: %+v, %+v", done, rec)
	}
	if _, again := put(registrar(), document(id, "1.1.0"), ""); again.Outcome != "unchanged" || again.Revision != done.Revision {
		t.Errorf("third: %+v after %+v", again, done)
	}

	r := registrar()
	rival, err := r.Record(document(other, "1.0.0"), "agent.eu.linter", "human.ada")
	if err != nil {
		t.Fatal(err)
	}
	var taken *registry.TakenError
	if err := r.Free(&rival); !errors.As(err, &taken) || taken.Key != id {
		t.Errorf("a rival: %v", err)
	}
	r.Replace, r.Dry = true, true
	if _, done := put(r, document(other, "1.0.0"), "agent.eu.linter"); done.Replaced != id || done.Revision != 0 {
		t.Errorf("dry: %+v", done)
	}
	if _, err := reg.Get(t.Context(), id); err != nil {
		t.Errorf("a dry run has removed: %v", err)
	}
	r.Dry = false
	if _, done := put(r, document(other, "1.0.0"), "agent.eu.linter"); done.Outcome != "new" || done.Replaced != id {
		t.Errorf("replacing: %+v", done)
	}
	if _, err := reg.Get(t.Context(), id); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the replaced one: %v", err)
	}
}
