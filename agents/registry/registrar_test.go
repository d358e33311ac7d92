package registry_test

import (
	"context"
	"errors"
	"slices"
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
	if _, done := put(r, document(other, "1.0.0"), "agent.eu.linter"); !slices.Equal(done.Replaced, []string{id}) || done.Revision != 0 {
		t.Errorf("dry: %+v", done)
	}
	if _, err := reg.Get(t.Context(), id); err != nil {
		t.Errorf("a dry run has removed: %v", err)
	}
	r.Dry = false
	if _, done := put(r, document(other, "1.0.0"), "agent.eu.linter"); done.Outcome != "new" || !slices.Equal(done.Replaced, []string{id}) {
		t.Errorf("replacing: %+v", done)
	}
	if _, err := reg.Get(t.Context(), id); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the replaced one: %v", err)
	}
}

// A registration may have the entity of one and the aliases of others: Replace
// removes all of them, and only when the new one is stored. Until then readers
// find the old one; afterwards there is one.
func TestReplaceRemovesAllAndNothingTooEarly(t *testing.T) {
	t.Parallel()
	const first, second, third = "5e0c0000-0000-4000-8000-00000000000a", "5e0c0000-0000-4000-8000-00000000000b", "5e0c0000-0000-4000-8000-00000000000c"
	reg := &failing{Registry: &registry.Mem{}}
	put := func(id, entity string, replace bool, aliases ...string) (registry.Registered, error) {
		t.Helper()
		all, err := reg.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := registry.NewRegistrar(reg, all)
		r.Replace = replace
		doc, err := aaif.Parse([]byte(`{"sc_standard":"SC-006","agent_id":"`+id+`","agent":{"name":"Linter","goal":"x","version":"1.0.0"}}`), aaif.Options{Kind: aaif.KindAgent})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := r.Record(doc, entity, "human.ada")
		if err != nil {
			t.Fatal(err)
		}
		rec.Aliases = aliases
		return r.Put(t.Context(), rec)
	}
	keys := func() (out []string) {
		all, err := reg.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			out = append(out, e.Key)
		}
		return out
	}
	for id, entity := range map[string]string{first: "agent.linter", second: "agent.checker"} {
		if _, err := put(id, entity, false, entity[len("agent."):]); err != nil {
			t.Fatal(err)
		}
	}
	lost := errors.New("no connection")
	reg.put = lost
	if _, err := put(third, "agent.linter", true, "checker"); !errors.Is(err, lost) || len(keys()) != 2 {
		t.Errorf("a failed registration: %v, registered %v", err, keys())
	}
	reg.put, reg.remove = nil, lost
	if _, err := put(third, "agent.linter", true, "checker"); !errors.Is(err, lost) || len(keys()) != 3 {
		t.Errorf("a failed removal: %v, registered %v", err, keys())
	}
	reg.remove = nil
	done, err := put(third, "agent.linter", true, "checker")
	slices.Sort(done.Replaced)
	if err != nil || done.Outcome != "unchanged" || !slices.Equal(done.Replaced, []string{first, second}) {
		t.Errorf("repeated: %+v, %v", done, err)
	}
	if got := keys(); !slices.Equal(got, []string{third}) {
		t.Errorf("registered %v", got)
	}
	if done, err := put(third, "agent.linter", true, "checker"); err != nil || done.Outcome != "unchanged" || done.Replaced != nil {
		t.Errorf("once more: %+v, %v", done, err)
	}
}

// failing is a registry whose writes fail with the errors that are set.
type failing struct {
	registry.Registry
	put, remove error
}

func (f *failing) Put(ctx context.Context, rec registry.Record, after uint64) (uint64, error) {
	if f.put != nil {
		return 0, f.put
	}
	return f.Registry.Put(ctx, rec, after)
}

func (f *failing) Remove(ctx context.Context, key string, revision uint64) error {
	if f.remove != nil {
		return f.remove
	}
	return f.Registry.Remove(ctx, key, revision)
}
