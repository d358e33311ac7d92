package template_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aeemesh/aeemesh/intents/template"
)

const basePatch = `{
  "patch_id": "p1",
  "parent_schema_id": "stay_v1",
  "timestamp": "2031-05-04T09:30:00Z",
  "expiration": "2031-06-03T09:30:00Z",
  "new_keys": [{"key_name": "pets", "key_type": "integer", "required": false, "default_value": 0, "experimental": true, "semantic_description": "How many pets. Example: 'with my dog' -> 1."}],
  "modified_keys": [{"key_name": "city", "semantic_description": "The city or its airport."}]
}`

func TestParsePatchRefuses(t *testing.T) {
	t.Parallel()
	if p, err := template.ParsePatch([]byte(basePatch)); err != nil || len(p.NewKeys) != 1 || !p.NewKeys[0].Experimental || len(p.ModifiedKeys) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, tt := range []struct{ name, old, new, pointer, rule string }{
		// SDSI 6.2.2: a patch carries these
		{"no patch_id", `"patch_id": "p1",`, ``, "", "required"},
		{"no parent_schema_id", `"parent_schema_id": "stay_v1",`, ``, "", "required"},
		{"no timestamp", `"timestamp": "2031-05-04T09:30:00Z",`, ``, "", "required"},
		{"no expiration", `"timestamp": "2031-05-04T09:30:00Z",`, `"timestamp": "2031-05-04T09:30:00Z"}`, "", "json"},
		{"expiration is no time", `"2031-06-03T09:30:00Z"`, `"in June"`, "/expiration", "format"},
		{"expires when it is made", `2031-06-03T09`, `2031-05-04T09`, "/expiration", "expiration"},
		{"expires before it is made", `2031-06-03T09`, `2031-05-03T09`, "/expiration", "expiration"},
		{"nothing in it", `"new_keys": [`, `"x-new_keys": [`, "", ""},
		// keys of the template are never removed or retyped
		{"retypes a key", `"key_name": "city",`, `"key_name": "city", "key_type": "integer",`, "/modified_keys/0/key_type", "additionalProperties"},
		{"makes a key required", `"key_name": "city",`, `"key_name": "city", "required": true,`, "/modified_keys/0/required", "additionalProperties"},
		{"gives a default", `"key_name": "city",`, `"key_name": "city", "default_value": "Porto",`, "/modified_keys/0/default_value", "additionalProperties"},
		{"constrains a key", `"key_name": "city",`, `"key_name": "city", "value_schema": {"enum": ["Porto"]},`, "/modified_keys/0/value_schema", "additionalProperties"},
		{"deprecates a key", `"key_name": "city",`, `"key_name": "city", "deprecated": true,`, "/modified_keys/0/deprecated", "additionalProperties"},
		{"removes keys", `"patch_id"`, `"removed_keys": ["city"], "patch_id"`, "/removed_keys", "additionalProperties"},
		{"replaces keys", `"patch_id"`, `"keys": [], "patch_id"`, "/keys", "additionalProperties"},
		{"a required new key", `"required": false`, `"required": true`, "/new_keys/0/required", "additive"},
		{"a new other", `"key_name": "pets", "key_type": "integer", "required": false, "default_value": 0, "experimental": true,`, `"key_name": "other", "key_type": "string", "required": false,`, "/new_keys/0/key_name", "additive"},
		{"a better other", `"key_name": "city"`, `"key_name": "other"`, "/modified_keys/0/key_name", "additive"},
		{"one key twice", `"key_name": "city"`, `"key_name": "pets"`, "/modified_keys/0/key_name", "unique"},
		{"a bad default", `"default_value": 0`, `"default_value": "none"`, "/new_keys/0/default_value", "type"},
		{"no description", `, "semantic_description": "How many pets. Example: 'with my dog' -> 1."`, ``, "/new_keys/0", "required"},
		{"an unknown member of a key", `"experimental": true`, `"experimental": true, "overrides": "city"`, "/new_keys/0/overrides", "member"},
		{"hidden characters", `The city or its airport.`, `The city.\u202e`, "/modified_keys/0/semantic_description", "text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			raw := strings.Replace(basePatch, tt.old, tt.new, 1)
			if tt.name == "nothing in it" {
				raw = strings.Replace(raw, `"modified_keys": [`, `"x-modified_keys": [`, 1)
				tt.rule = "empty"
			}
			if tt.name == "no expiration" {
				raw, tt.rule = strings.Replace(basePatch, `"expiration": "2031-06-03T09:30:00Z",`, ``, 1), "required"
			}
			_, err := template.ParsePatch([]byte(raw))
			problems := problemsOf(t, err)
			if !slices.ContainsFunc(problems, func(p template.Problem) bool { return p.Pointer == tt.pointer && p.Rule == tt.rule }) {
				t.Errorf("want %s (%s), got %v", tt.pointer, tt.rule, problems)
			}
		})
	}
}

func patch(id string, keys ...template.Key) template.Patch {
	at := time.Date(2031, 5, 4, 0, 0, 0, 0, time.UTC)
	return template.Patch{PatchID: id, ParentSchemaID: "stay_v1", Timestamp: at, Expires: at.Add(24 * time.Hour), NewKeys: keys}
}

func TestApply(t *testing.T) {
	t.Parallel()
	s := stay(t)
	before := s.Hash()
	pets := template.Key{Name: "pets", Type: template.Integer, Description: "How many pets."}
	p, q := patch("p", pets), patch("q")
	q.ModifiedKeys = []template.Refinement{{Name: "city", Description: "Where to."}, {Name: "pets", Description: "Dogs and cats."}}
	got, err := s.Apply(q, p)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range got.Keys {
		names = append(names, k.Name)
	}
	if strings.Join(names, " ") != "city nights board ages late_arrival nothing pets other" || got.Keys[0].Description != "Where to." || got.Keys[6].Description != "Dogs and cats." {
		t.Errorf("%+v", got.Keys)
	}
	if s.Hash() != before {
		t.Error("Apply has changed its template")
	}
	for name, tt := range map[string]struct {
		patches []template.Patch
		want    string
	}{
		"another template":   {[]template.Patch{{PatchID: "p", ParentSchemaID: "stay_v2", Timestamp: p.Timestamp, Expires: p.Expires, NewKeys: p.NewKeys}}, "the patch is for"},
		"a key there is":     {[]template.Patch{patch("p", template.Key{Name: "city", Type: template.Integer, Description: "A number."})}, "has the key"},
		"a key there is not": {[]template.Patch{q}, "there is no key"},
		"an invalid patch":   {[]template.Patch{{}}, "refused"},
		"no times":           {[]template.Patch{{PatchID: "p", ParentSchemaID: "stay_v1", NewKeys: p.NewKeys}}, "/timestamp: is not set"},
		"no expiration":      {[]template.Patch{{PatchID: "p", ParentSchemaID: "stay_v1", Timestamp: p.Timestamp, NewKeys: p.NewKeys}}, "/expiration"},
		"two meanings":       {[]template.Patch{p, patch("r", template.Key{Name: "pets", Type: template.String, Description: "How many pets."})}, "conflict"},
		"two parents":        {[]template.Patch{p, {PatchID: "p", ParentSchemaID: "stay_v2", Timestamp: p.Timestamp, Expires: p.Expires, NewKeys: p.NewKeys}}, "others are for"},
		"two properties":     {[]template.Patch{patch("p", template.Key{Name: "late", Property: "lateArrival", Type: template.String, Description: "Late."})}, "is the property of"},
	} {
		if _, err := s.Apply(tt.patches...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		} else if errors.Is(err, template.ErrConflict) != (name == "two meanings") {
			t.Errorf("%s: ErrConflict is wrong in %v", name, err)
		}
	}
}

func TestPatchesExpire(t *testing.T) {
	t.Parallel()
	p := patch("p", template.Key{Name: "pets", Type: template.Integer, Description: "Pets."})
	if p.Expired(p.Expires.Add(-1)) || !p.Expired(p.Expires) {
		t.Error("a patch expires at its expiration")
	}
}

// drawPatches draws patches of the template of stay that agree with each other or do not.
func drawPatches(t *rapid.T) []template.Patch {
	at := time.Date(2031, 5, 4, 0, 0, 0, 0, time.UTC)
	var all []template.Patch
	for i := range rapid.IntRange(1, 4).Draw(t, "patches") {
		p := template.Patch{PatchID: fmt.Sprintf("p%d", rapid.IntRange(0, 2).Draw(t, "id")), ParentSchemaID: "stay_v1",
			Timestamp: at.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "at")) * time.Hour), Expires: at.Add(time.Duration(rapid.IntRange(48, 50).Draw(t, "expires")) * time.Hour)}
		used := map[string]bool{}
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			name := rapid.SampledFrom([]string{"pets", "view", "floor", "sauna", "city", "nights", "board"}).Draw(t, "name")
			text := rapid.SampledFrom([]string{"One meaning.", "One meaning.", "Another meaning."}).Draw(t, "text")
			if used[name] {
				continue
			}
			used[name] = true
			if rapid.Bool().Draw(t, "new") {
				p.NewKeys = append(p.NewKeys, template.Key{Name: name, Type: rapid.SampledFrom([]template.Type{template.String, template.String, template.Integer}).Draw(t, "type"), Description: text, Experimental: true})
			} else {
				p.ModifiedKeys = append(p.ModifiedKeys, template.Refinement{Name: name, Description: text})
			}
		}
		if len(p.NewKeys)+len(p.ModifiedKeys) == 0 {
			p.NewKeys = []template.Key{{Name: fmt.Sprintf("extra%d", i), Type: template.String, Description: "Extra."}}
		}
		all = append(all, p)
	}
	return all
}

// Patches commute or conflict, and never corrupt: whatever their order, the result is the
// same template or always an error; every key of the base is there with its type, and
// payloads that fit the base fit the result.
func TestPatchesCommuteOrConflict(t *testing.T) {
	t.Parallel()
	base := stay(t)
	applied := 0
	rapid.Check(t, func(t *rapid.T) {
		patches := drawPatches(t)
		one, err := base.Apply(patches...)
		shuffled := slices.Clone(patches)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		two, err2 := base.Apply(shuffled...)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("the order decides: %v, %v", err, err2)
		}
		merged, errMerge := template.Merge(patches...)
		mergedAgain, errAgain := template.Merge(shuffled...)
		if (errMerge == nil) != (errAgain == nil) || errMerge == nil && merged.Hash() != mergedAgain.Hash() {
			t.Fatalf("the order decides: %v, %v", errMerge, errAgain)
		}
		for _, p := range patches {
			if errMerge == nil && (merged.Timestamp.Before(p.Timestamp) || merged.Expires.After(p.Expires)) {
				t.Fatalf("merged of %+v is older, or lives longer: %+v", p, merged)
			}
		}
		if err != nil {
			return
		}
		applied++
		if errMerge != nil {
			t.Fatalf("Apply accepts what Merge refuses: %v", errMerge)
		}
		three, err := base.Apply(merged)
		if err != nil || one.Hash() != two.Hash() || one.Hash() != three.Hash() {
			t.Fatalf("the order decides: %v\n%+v\n%+v\n%+v", err, one, two, three)
		}
		for i, k := range base.Keys {
			at := slices.IndexFunc(one.Keys, func(o template.Key) bool { return o.Name == k.Name })
			if at < 0 {
				t.Fatalf("%s is gone", k.Name)
			}
			got := one.Keys[at]
			got.Description = k.Description
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(k)
			if string(a) != string(b) {
				t.Fatalf("key %d has changed: %s, %s", i, a, b)
			}
		}
		f, err := template.NewForm(one, template.FormOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Check(json.RawMessage(`{"city":"Porto","nights":2,"other":"x"}`)); err != nil {
			t.Fatal(err)
		}
	})
	if applied == 0 {
		t.Error("all patches conflict: the test shows nothing")
	}
}

func TestMergeRefusesDisagreement(t *testing.T) {
	t.Parallel()
	p, q := patch("p"), patch("q")
	p.ModifiedKeys = []template.Refinement{{Name: "city", Description: "One."}}
	q.ModifiedKeys = []template.Refinement{{Name: "city", Description: "Two."}}
	q.Expires = q.Expires.Add(time.Hour)
	if _, err := template.Merge(p, q); !errors.Is(err, template.ErrConflict) {
		t.Error(err)
	}
	q.ModifiedKeys[0].Description = "One."
	got, err := template.Merge(q, p)
	if err != nil || !got.Expires.Equal(p.Expires) || len(got.ModifiedKeys) != 1 || got.PatchID == "p" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := template.Merge(); err == nil {
		t.Error("nothing can be merged")
	}
}
