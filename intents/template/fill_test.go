package template_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/aeemesh/aeemesh/intents/template"
)

// plays is a model with a sequence of answers.
type plays struct {
	answers []string
	prompts []template.Prompt
}

func (p *plays) Complete(_ context.Context, prompt template.Prompt) (json.RawMessage, error) {
	p.prompts = append(p.prompts, prompt)
	if len(p.prompts) > len(p.answers) {
		return nil, errors.New("no more answers")
	}
	return json.RawMessage(p.answers[len(p.prompts)-1]), nil
}

func fill(t *testing.T, text string, o template.FillOptions, answers ...string) (*template.Mapping, *plays) {
	t.Helper()
	p := &plays{answers: answers}
	m, err := template.Fill(t.Context(), p, parse(t, tram), text, o)
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

const wish = "Please buy a tram ticket from the harbour for two zones, and I'd like a window seat"

const good = `{"keys":{"stop_from":{"value":"Harbour","fragment":"from the harbour","confidence":0.95},"zone_count":{"value":2,"fragment":"two zones","confidence":0.9}},"other":["a window seat"]}`

func TestFill(t *testing.T) {
	t.Parallel()
	m, p := fill(t, wish, template.FillOptions{Now: time.Date(2026, 4, 28, 9, 0, 0, 0, time.UTC)}, good)
	raw, _ := json.Marshal(m)
	if want := `{"schema_id":"tram_ticket_v1","keys":[{"key_name":"stop_from","value":"Harbour","fragment":"from the harbour","confidence":0.95},` +
		`{"key_name":"zone_count","value":2,"fragment":"two zones","confidence":0.9}],"other":["buy a tram ticket","a window seat"],"payload":{"stop_from":"Harbour","zone_count":2,"other":"buy a tram ticket; a window seat"}}`; string(raw) != want {
		t.Errorf("got %s", raw)
	}
	prompt := p.prompts[0]
	for _, want := range []string{`"key_name":"stop_from"`, "'from the harbour' -> 'Harbour'", "Tuesday, 2026-04-28", `"Please buy`} {
		if !strings.Contains(prompt.Text, want) {
			t.Errorf("the prompt has no %s: %s", want, prompt.Text)
		}
	}
	if strings.Contains(prompt.Instructions, "harbour") {
		t.Error("the form is among the instructions")
	}
	answers, err := schema.Compile(prompt.Schema)
	if err != nil {
		t.Fatal(err)
	}
	if err := answers.Validate(json.RawMessage(good)); err != nil {
		t.Error(err)
	}
}

func TestFillRoutesToOther(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		other  []string
		keys   string
	}{
		"a low confidence":       {strings.Replace(good, "0.9}", "0.69}", 1), []string{"buy a tram ticket", "two zones", "a window seat"}, "stop_from"},
		"the threshold":          {strings.Replace(good, "0.9}", "0.7}", 1), []string{"buy a tram ticket", "a window seat"}, "stop_from zone_count"},
		"a value out of range":   {strings.Replace(good, `"value":2`, `"value":7`, 1), []string{"buy a tram ticket", "two zones", "a window seat"}, "stop_from"},
		"words that nobody said": {strings.Replace(good, "two zones", "children", 1), []string{"buy a tram ticket", "two zones", "a window seat"}, "stop_from"},
		"an unknown key":         {strings.Replace(good, `"zone_count"`, `"zones"`, 1), []string{"buy a tram ticket", "two zones", "a window seat"}, "stop_from"},
		"a forgotten fragment":   {strings.Replace(good, `["a window seat"]`, `[]`, 1), []string{"buy a tram ticket", "window seat"}, "stop_from zone_count"},
		"an invented fragment":   {strings.Replace(good, `["a window seat"]`, `["free lunch"]`, 1), []string{"buy a tram ticket", "window seat"}, "stop_from zone_count"},
		"nothing":                {`{"keys":{},"other":[]}`, []string{"buy a tram ticket from the harbour for two zones", "window seat"}, ""},
		"no JSON":                {`I cannot do that`, []string{"buy a tram ticket from the harbour for two zones", "window seat"}, ""},
	} {
		m, _ := fill(t, wish, template.FillOptions{}, c.answer, c.answer)
		var keys []string
		for _, k := range m.Keys {
			keys = append(keys, k.Key)
		}
		if got := strings.Join(keys, " "); got != c.keys {
			t.Errorf("%s: keys %q", name, got)
		}
		if !slices.Equal(m.Other, c.other) {
			t.Errorf("%s: other %q", name, m.Other)
		}
	}
}

func TestFillTakesOneRepair(t *testing.T) {
	t.Parallel()
	bad := strings.Replace(good, `"value":2`, `"value":"two"`, 1)
	m, p := fill(t, wish, template.FillOptions{}, bad, good)
	if len(p.prompts) != 2 || len(m.Keys) != 2 || !strings.Contains(p.prompts[1].Text, "/keys/zone_count/value") || strings.Contains(p.prompts[0].Text, "did not fit") {
		t.Errorf("%d prompts, %+v", len(p.prompts), m)
	}
	if _, p := fill(t, wish, template.FillOptions{}, bad, bad, good); len(p.prompts) != 2 {
		t.Errorf("%d prompts", len(p.prompts))
	}
	if _, err := template.Fill(t.Context(), &plays{}, parse(t, tram), wish, template.FillOptions{}); err == nil {
		t.Error("the model's error is lost")
	}
	if _, err := template.Fill(t.Context(), &plays{answers: []string{good}}, parse(t, tram), strings.Repeat("x", template.MaxText+1), template.FillOptions{}); err == nil {
		t.Error("a request that is too long is accepted")
	}
}

func TestFillSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	m, _ := fill(t, "a ticket for two zones", template.FillOptions{}, `{"keys":{"zone_count":{"value":2,"fragment":"two zones","confidence":0.9}},"other":[]}`)
	if len(m.Missing) != 1 || m.Missing[0].Name != "stop_from" || len(m.Other) != 0 {
		t.Fatalf("%+v", m)
	}
	more, _ := fill(t, "the harbour", template.FillOptions{}, `{"keys":{"stop_from":{"value":"Harbour","fragment":"the harbour","confidence":1},"zone_count":{"value":5,"fragment":"harbour","confidence":1}},"other":[]}`)
	m.Add(more)
	if len(m.Missing) != 0 || string(m.Payload) != `{"zone_count":2,"stop_from":"Harbour"}` {
		t.Errorf("%+v, %s", m, m.Payload)
	}
}

// The agent assesses learned keys as long as they exist, so it gets the words of their values, also
// of stable ones. The words of other keys do not concern it.
func TestEvidenceIsOfLearnedKeys(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 5, 4, 9, 30, 0, 0, time.UTC)
	patch := template.Patch{PatchID: "p1", ParentSchemaID: "tram_ticket_v1", Timestamp: now, Expires: now.Add(time.Hour), NewKeys: []template.Key{
		{Name: "window_seat", Type: template.Boolean, Description: "Whether a seat at the window is wanted."},
		{Name: "quiet_cabin", Type: template.Boolean, Description: "Whether it must be quiet.", Experimental: true}}}
	own := parse(t, tram)
	tpl, err := own.Apply(patch)
	if err != nil {
		t.Fatal(err)
	}
	tpl, _ = tpl.In("de")
	m := &template.Mapping{Keys: []template.Mapped{{Key: "stop_from", Fragment: "from the harbour"}, {Key: "window_seat", Fragment: "a window seat"}, {Key: "quiet_cabin", Fragment: "a quiet one"}}}
	if got, want := m.Evidence(tpl), map[string]string{"window_seat": "a window seat", "quiet_cabin": "a quiet one"}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	raw, err := json.Marshal(tpl)
	if err != nil || strings.Contains(strings.ToLower(string(raw)), `"learned"`) {
		t.Errorf("on the wire: %s, %v", raw, err)
	}
	if patch.NewKeys[0].Learned || own.Hash() != parse(t, tram).Hash() {
		t.Error("Apply has changed its arguments")
	}
}

// An agent keeps a bounded number of fragments. Those of keys on trial are among them, because a trial
// comes to no decision without them.
func TestEvidenceOfTrialsComesFirst(t *testing.T) {
	t.Parallel()
	tpl, m, want := &template.Template{}, &template.Mapping{SchemaID: "tram_v1", Payload: json.RawMessage(`{}`)}, map[string]string{}
	for i := range 50 {
		k := template.Key{Name: fmt.Sprintf("key_%02d", i), Type: template.String, Learned: true, Experimental: i >= 40}
		tpl.Keys = append(tpl.Keys, k)
		m.Keys = append(m.Keys, template.Mapped{Key: k.Name, Value: json.RawMessage(`"x"`), Fragment: "words"})
		if i < 10 || i >= 40 {
			want[k.Name] = "words"
		}
	}
	p := template.Payload{SchemaID: m.SchemaID, Payload: m.Payload, Fragments: m.Evidence(tpl)}
	got, err := template.ParsePayload(p.Encode())
	if err != nil || !maps.Equal(got.Fragments, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// Whatever the model answers, every word of the request with a meaning is in the fragment of a key
// or in "other".
func FuzzFill(f *testing.F) {
	f.Add(wish, good)
	f.Add("2 zones, zone 2 and a SEAT, a seat", `{"keys":{"zone_count":{"value":2,"fragment":"zone 2","confidence":1}},"other":["seat"]}`)
	f.Add("窓側の席をお願いします", `{"keys":{},"other":["席"]}`)
	tpl, err := template.Parse([]byte(tram))
	if err != nil {
		f.Fatal(err)
	}
	form, err := template.NewForm(tpl, template.FormOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, answer string) {
		m, err := template.Fill(t.Context(), &plays{answers: []string{answer, answer}}, tpl, text, template.FillOptions{})
		if err != nil {
			return
		}
		kept := ""
		for _, k := range m.Keys {
			kept += " " + strings.ToLower(k.Fragment)
		}
		for _, o := range m.Other {
			kept += " " + strings.ToLower(o)
		}
		for _, w := range strings.FieldsFunc(strings.ToLower(strings.ToValidUTF8(text, "\uFFFD")), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			if len(w) > 5 && len(w) == len([]rune(w)) && !strings.Contains(kept, w) && !strings.HasPrefix(w, "tick") && !strings.HasPrefix(w, "tram") && !strings.HasPrefix(w, "zone") && !strings.HasPrefix(w, "coun") && !strings.HasPrefix(w, "stop") && !strings.HasPrefix(w, "from") && !strings.HasPrefix(w, "fare") && !strings.HasPrefix(w, "bike") && !slices.Contains([]string{"please", "thanks", "hello", "should", "einen", "einem", "diese", "dieser", "könnte", "würde", "möchte", "bitte", "danke", "hätte", "brauche", "pourrait", "voudrais", "plaît", "merci", "bonjour", "quiero", "quisiera", "puede", "favor", "gracias"}, w) {
				t.Fatalf("%q is lost of %q: %+v", w, text, m)
			}
		}
		var missing *template.PayloadError
		if _, err := form.Check(m.Payload); err != nil && (!errors.As(err, &missing) || len(missing.Problems) != len(m.Missing)) {
			t.Fatalf("%s: %v", m.Payload, err)
		}
	})
}
