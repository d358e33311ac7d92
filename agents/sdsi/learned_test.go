package sdsi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// has is a learner with a fixed view that learns nothing.
type has struct{ view *evolve.View }

func (h has) View(context.Context, string, sdsi.Sender) (v *evolve.View, cohort, client string) {
	return h.view, "", "x"
}
func (h has) Observe(string, sdsi.Sender, sdsi.Seen) <-chan struct{} { return nil }
func (h has) Told(string, sdsi.Sender, []string)                     {}

// notes is a learner with a fixed view that keeps what it is told of payloads.
type notes struct {
	has
	seen chan sdsi.Seen
}

func (n notes) Observe(_ string, _ sdsi.Sender, seen sdsi.Seen) <-chan struct{} {
	n.seen <- seen
	return nil
}

// wished puts a key on trial that two clients have wished for.
func wished(t *testing.T, p *evolve.Pool, tpl *template.Template, name string, vector []float32, now time.Time) {
	t.Helper()
	for _, c := range []string{"agent.a", "agent.b"} {
		p.Observe(evolve.Observation{Client: evolve.Client(c), Fragments: []evolve.Fragment{{Text: strings.ReplaceAll(name, "_", " "), Vector: vector}}}, now)
	}
	for _, c := range p.Ripe(now) {
		k := template.Key{Name: name, Type: template.Boolean, Description: "Is it wanted?"}
		switch {
		case strings.HasSuffix(name, "_count"):
			k.Type, k.Description = template.Integer, "How many?"
		case strings.HasSuffix(name, "_null"):
			k.Type = template.Null
		case strings.HasSuffix(name, "_text"):
			k.Type = template.String
		}
		if err := p.Propose(c, k, tpl, "", now); err != nil {
			t.Fatal(err)
		}
	}
}

// A result suggests the keys that the payload does not have, except deprecated ones.
func TestASuggestionHasWhatIsNew(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10}, "test")
	if err != nil {
		t.Fatal(err)
	}
	now, tpl := time.Now(), tram(t, "tram_v1")
	for i, name := range []string{"window_seat", "quiet_cabin", "red_balloon"} {
		v := make([]float32, 3)
		v[i] = 1
		wished(t, p, tpl, name, v, now)
	}
	if err := p.Reject("red_balloon", "human.ops", "", now); err != nil {
		t.Fatal(err)
	}
	desk := r.desk(sdsi.DeskConfig{}, tpl)
	desk.Learn(has{p.View()})
	r.serve(desk, sells, nil)
	for payload, want := range map[string]string{
		`{"stop_from":"Museum","other":"a kayak"}`:                                        "quiet_cabin window_seat",
		`{"stop_from":"Museum","other":"a kayak","window_seat":true}`:                     "quiet_cabin",
		`{"stop_from":"Museum","other":"a kayak","window_seat":true,"quiet_cabin":false}`: "",
		`{"stop_from":"Museum"}`:                                                          "",
		`{"stop_from":"Museum","other":"a kayak","window_seat":null}`:                     "quiet_cabin", // the client knows the key
	} {
		var result struct {
			Suggestion *struct {
				NewKeys []template.Key `json:"new_keys"`
			} `json:"schema_update_suggestion"`
		}
		got := r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":`+payload+`}`)
		if err := json.Unmarshal([]byte(got), &result); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		var names []string
		if result.Suggestion != nil {
			for _, k := range result.Suggestion.NewKeys {
				names = append(names, k.Name)
			}
		}
		if strings.Join(names, " ") != want || (result.Suggestion == nil) != (want == "") {
			t.Errorf("%s: %s, want %s", payload, got, want)
		}
	}
	// A result that is sent fits the response schema (SDSI 3.2).
	for schema, want := range map[string]bool{
		`{"type":"object"}`: true,
		`{"additionalProperties":false,"properties":{"ticket":{},"intent":{},"input":{}}}`:                               false,
		`{"additionalProperties":false,"properties":{"ticket":{},"intent":{},"input":{},"schema_update_suggestion":{}}}`: true,
		`{"$ref":"#/$defs/closed","$defs":{"closed":{"maxProperties":3}}}`:                                               false,
	} {
		r, closed := newRig(t, false), tram(t, "tram_v1")
		closed.ResponseSchema = json.RawMessage(schema)
		desk := r.desk(sdsi.DeskConfig{}, closed)
		desk.Learn(has{p.View()})
		r.serve(desk, sells, nil)
		got := r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","other":"a kayak"}}`)
		if contains(t, schema, got, `"ticket":"T1"`); strings.Contains(got, template.SuggestionMember) != want {
			t.Errorf("%s: %s, with a suggestion: want %v", schema, got, want)
		}
	}
}

// A client that sends all optional keys, as null if it has no value, uses none of them: null counts
// as absent, except for a key whose type it is.
func TestNullIsNoUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10}, "test")
	if err != nil {
		t.Fatal(err)
	}
	tpl := tram(t, "tram_v1")
	wished(t, p, tpl, "window_seat", []float32{1, 0, 0}, time.Now())
	wished(t, p, tpl, "suitcase_count", []float32{0, 1, 0}, time.Now())
	wished(t, p, tpl, "no_null", []float32{0, 0, 1}, time.Now())
	learner := notes{has{p.View()}, make(chan sdsi.Seen, 1)}
	desk := r.desk(sdsi.DeskConfig{}, tpl)
	desk.Learn(learner)
	r.serve(desk, sells, nil)
	r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","window_seat":null,"suitcase_count":2,"no_null":null},"fragments":{"window_seat":"no"}}`)
	got := natstest.Within(t, "the payload", learner.seen)
	slices.SortFunc(got.Keys, func(a, b evolve.Use) int { return strings.Compare(a.Key, b.Key) })
	if want := []evolve.Use{{Key: "no_null"}, {Key: "suitcase_count"}}; !slices.Equal(got.Keys, want) || len(got.Fragments) != 0 {
		t.Errorf("%+v, want the uses %+v", got, want)
	}
}

// The accuracy of a key is assessed as long as clients get the key (SDSI 6.2.3), and no longer: its
// values are passed on with the client's words, whether it is on trial, stable or deprecated.
func TestValuesOfEveryAdvertisedKeyArePassedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10}, "test")
	if err != nil {
		t.Fatal(err)
	}
	tpl, now := tram(t, "tram_v1"), time.Now()
	add := func(i int, name string, at time.Time) {
		v := make([]float32, 4)
		v[i] = 1
		wished(t, p, tpl, name, v, at)
	}
	then := now.Add(-16 * 24 * time.Hour)
	add(0, "window_seat", then)
	add(1, "red_balloon", then)
	if err := errors.Join(p.Vouch("window_seat", "human.ops", then), p.Reject("red_balloon", "human.ops", "", then)); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		p.Observe(evolve.Observation{Client: evolve.Client(fmt.Sprint(i)), Keys: []evolve.Use{{Key: "window_seat"}}}, then.Add(time.Hour))
	}
	p.Advance(then.Add(8 * 24 * time.Hour))
	add(2, "quiet_cabin", now)
	add(3, "suitcase_count", now)
	if err := p.Reject("suitcase_count", "human.ops", "", now); err != nil {
		t.Fatal(err)
	}
	p.Advance(now)
	for key, want := range map[string]evolve.State{"window_seat": evolve.Stable, "red_balloon": evolve.Withdrawn, "quiet_cabin": evolve.Experimental, "suitcase_count": evolve.Deprecated} {
		if _, state := p.View().Key(key, "x"); state != want {
			t.Fatalf("%s is %s", key, state)
		}
	}
	learner := notes{has{p.View()}, make(chan sdsi.Seen, 1)}
	desk := r.desk(sdsi.DeskConfig{}, tpl)
	desk.Learn(learner)
	r.serve(desk, sells, nil)
	r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","window_seat":true,"red_balloon":true,"quiet_cabin":true,"suitcase_count":2},
		"fragments":{"stop_from":"the museum","window_seat":"a window seat","red_balloon":"a balloon","quiet_cabin":"a quiet one","suitcase_count":"two"}}`)
	got := natstest.Within(t, "the payload", learner.seen)
	want := map[string]string{"window_seat": "a window seat", "quiet_cabin": "a quiet one", "suitcase_count": "two"}
	if !maps.Equal(got.Fragments, want) || len(got.Values) != len(want) {
		t.Errorf("%+v, want the words %v", got, want)
	}
}

// expired returns a pool whose key window_seat was rejected 15 days ago, and so was deprecated
// until yesterday.
func expired(t *testing.T, tpl *template.Template) *evolve.Pool {
	t.Helper()
	p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10}, "test")
	if err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-15 * 24 * time.Hour)
	wished(t, p, tpl, "window_seat", []float32{1}, then)
	if err := p.Reject("window_seat", "human.ops", "", then); err != nil {
		t.Fatal(err)
	}
	return p
}

// A payload may have a key whose patch has expired: it is accepted until it is withdrawn, and
// then until the key is gone (SDSI 6.2.3), even if no worker has looked at the pool since.
func TestAKeyOfAnExpiredPatchIsAccepted(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	tpl := tram(t, "tram_v1")
	p := expired(t, tpl)
	desk := r.desk(sdsi.DeskConfig{Unknown: template.UnknownRefused}, tpl)
	desk.Learn(has{p.View()})
	r.serve(desk, sells, nil)
	if got := r.ask(intents.SchemaGet, `{}`); strings.Contains(got, "window_seat") {
		t.Errorf("a client is told of it: %s", got)
	}
	if got := r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","window_seat":true}}`); strings.Contains(got, "E_INPUT_SCHEMA") {
		t.Error(got)
	}
}

// So it is while the keys are not known: the pool was not read yet, or cannot be read. Then a worker
// that refuses unknown keys puts them into "other".
func TestAKeyThatMayBeLearnedIsAccepted(t *testing.T) {
	t.Parallel()
	empty, err := evolve.New(evolve.Config{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		view *evolve.View
		want string
	}{
		"not read":       {&evolve.View{}, `"other":"window_seat: true"`},
		"cannot be read": {nil, `"other":"window_seat: true"`},
		"read":           {empty.View(), "E_INPUT_SCHEMA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			desk := r.desk(sdsi.DeskConfig{Unknown: template.UnknownRefused}, tram(t, "tram_v1"))
			desk.Learn(has{c.view})
			r.serve(desk, sells, nil)
			for range 2 {
				contains(t, "an exchange", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","window_seat":true}}`), c.want)
			}
		})
	}
}

// A withdrawn key is accepted, with a warning (SDSI 6.2.3): one for each key, because clients
// decide how many payloads have it.
func TestAWithdrawnKeyIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	tpl := tram(t, "tram_v1")
	p := expired(t, tpl)
	p.Advance(time.Now())
	logged := make(records, 100)
	desk := r.desk(sdsi.DeskConfig{Unknown: template.UnknownRefused, Logger: slog.New(logged)}, tpl)
	desk.Learn(has{p.View()})
	r.serve(desk, sells, nil)
	for n, want := range []slog.Level{slog.LevelWarn, slog.LevelInfo} {
		contains(t, "the result", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","window_seat":true}}`), `"ticket":"T1"`)
		if record := natstest.Within(t, "the record", logged); record.Level != want || len(logged) > 0 {
			t.Errorf("payload %d: %s %q, and %d more records", n+1, record.Level, record.Message, len(logged))
		}
	}
}

// "Not modified" is not a valid answer for a template that the client does not have.
func TestNotModifiedIsNoAnswerToAFirstQuestion(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.answers(func() string {
		return `{"schema_id":"tram_v1","scenario":"tram_ticket","hash":"h","not_modified":true}`
	})
	c := sdsi.NewClient(r.client)
	for _, ask := range []template.GetTask{{}, {IfHash: "another"}} {
		if got, _, err := c.Get(t.Context(), trams, ask); err == nil {
			t.Errorf("%+v: %+v", ask, got)
		}
	}
	if got, _, err := c.Get(t.Context(), trams, template.GetTask{IfHash: "h"}); err != nil || !got.NotModified {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.Template(t.Context(), trams, "", ""); err == nil {
		t.Errorf("%+v", got)
	}
}

// Until the learned keys are known, only the texts of "other" itself are learned from: unknown keys may
// be learned ones, and their values are not to be stored.
func TestValuesOfKeysThatAreNotKnownYetAreNotLearnedFrom(t *testing.T) {
	t.Parallel()
	empty, err := evolve.New(evolve.Config{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		view *evolve.View
		want []string
	}{
		"not read": {&evolve.View{}, []string{"a kayak", "a dog"}},
		"empty":    {empty.View(), []string{"a kayak", "a dog", "window_seat: by Ada"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			learner := notes{has{c.view}, make(chan sdsi.Seen, 1)}
			desk := r.desk(sdsi.DeskConfig{}, tram(t, "tram_v1"))
			desk.Learn(learner)
			r.serve(desk, sells, nil)
			got := r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","window_seat":"by Ada","other":["a kayak","a dog"]}}`)
			contains(t, "an exchange", got, `window_seat: by Ada`) // the handler gets all
			if seen := natstest.Within(t, "the payload", learner.seen); !slices.Equal(seen.Others, c.want) || !seen.Refused {
				t.Errorf("%+v", seen)
			}
		})
	}
}

// cohorts is a learner in which each sender is a cohort.
type cohorts struct {
	has
	views map[string]*evolve.View
}

func (c cohorts) View(_ context.Context, _ string, from sdsi.Sender) (v *evolve.View, cohort, client string) {
	return c.views[from.Entity], from.Entity, "x"
}

// The pools of two cohorts may differ only in their keys: each sender's payload is checked against
// the keys of its own cohort.
func TestCohortsHaveKeysOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	now, tpl := time.Now(), tram(t, "tram_v1")
	learner := cohorts{views: map[string]*evolve.View{}}
	for from, key := range map[string]string{"human.ada": "window_seat", "human.bob": "quiet_cabin"} {
		p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10}, "test")
		if err != nil {
			t.Fatal(err)
		}
		wished(t, p, tpl, key, []float32{1}, now)
		learner.views[from] = p.View()
	}
	desk := r.desk(sdsi.DeskConfig{}, tpl)
	desk.Learn(learner)
	r.serve(desk, sells, nil)
	contains(t, "the key of ada's cohort", r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","window_seat":true}}`), `"window_seat":true`)
	r.client = r.node("human.bob")
	got := r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","quiet_cabin":true,"window_seat":true}}`)
	contains(t, "the keys of bob's cohort", got, `"quiet_cabin":true`, `"other":"window_seat: true"`)
}

// A payload is never refused because an agent's own schema does not allow "other" or a learned key:
// such values are passed beside the input.
func TestWhatTheAgentsOwnSchemaHasNoRoomForIsBesideTheInput(t *testing.T) {
	t.Parallel()
	const stop = `"properties":{"stop":{"type":"string"}}`
	for name, c := range map[string]struct{ schema, input, others string }{
		"open":                   {`{` + stop + `}`, `{"stop":"Museum","suitcase_count":2,"window_seat":true,"other":"a kayak","quiet_cabin":true}`, "a kayak"},
		"closed":                 {`{` + stop + `,"additionalProperties":false}`, `{"stop":"Museum"}`, "a kayak|quiet_cabin: true|suitcase_count: 2|window_seat: true"},
		"closed by a reference":  {`{` + stop + `,"$ref":"#/$defs/closed","$defs":{"closed":{` + stop + `,"additionalProperties":false}}}`, `{"stop":"Museum"}`, "a kayak|quiet_cabin: true|suitcase_count: 2|window_seat: true"},
		"closed, unevaluated":    {`{` + stop + `,"unevaluatedProperties":false}`, `{"stop":"Museum"}`, "a kayak|quiet_cabin: true|suitcase_count: 2|window_seat: true"},
		"closed beside patterns": {`{` + stop + `,"patternProperties":{"^window":{}},"additionalProperties":false}`, `{"stop":"Museum","window_seat":true}`, "a kayak|quiet_cabin: true|suitcase_count: 2"},
		"open to integers":       {`{` + stop + `,"additionalProperties":{"type":"integer"}}`, `{"stop":"Museum","suitcase_count":2}`, "a kayak|quiet_cabin: true|window_seat: true"},
		"open to a few":          {`{` + stop + `,"maxProperties":3}`, `{"other":"a kayak","stop":"Museum"}`, "a kayak|quiet_cabin: true|suitcase_count: 2|window_seat: true"},
		"closed to names":        {`{` + stop + `,"propertyNames":{"enum":["stop","other"]}}`, `{"other":"a kayak","stop":"Museum"}`, "a kayak|quiet_cabin: true|suitcase_count: 2|window_seat: true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10}, "test")
			if err != nil {
				t.Fatal(err)
			}
			tpl, err := template.FromJSONSchema("own_v1", "trams", json.RawMessage(c.schema), nil)
			if err != nil {
				t.Fatal(err)
			}
			wished(t, p, tpl, "window_seat", []float32{1, 0, 0}, time.Now())
			wished(t, p, tpl, "suitcase_count", []float32{0, 1, 0}, time.Now())
			wished(t, p, tpl, "note_text", []float32{0, 1, 1}, time.Now())
			// A key that has been withdrawn is still accepted.
			long := time.Now().Add(-15 * 24 * time.Hour)
			wished(t, p, tpl, "quiet_cabin", []float32{0, 0, 1}, long)
			if err := p.Reject("quiet_cabin", "human.ops", "", long); err != nil {
				t.Fatal(err)
			}
			p.Advance(time.Now())
			desk := r.desk(sdsi.DeskConfig{}, tpl)
			desk.Learn(has{p.View()})
			r.serve(desk, func(ctx context.Context, task *mesh.Task) (json.RawMessage, error) {
				return json.Marshal(map[string]any{"input": task.Input(), "others": strings.Join(sdsi.Others(ctx), "|")})
			}, func(a *mesh.Agent) {
				a.Intents, a.DefaultIntent = intents.NewRegistry(), intents.RunIntent(trams)
				if err := a.Intents.Register(intents.FromIO(a.DefaultIntent, json.RawMessage(c.schema), nil)); err != nil {
					t.Error(err)
				}
			})
			got := r.ask(intents.Exchange, `{"schema_id":"own_v1","schema_updates":false,"payload":{"stop":"Museum","quiet_cabin":true,"suitcase_count":2,"window_seat":true,"other":"a kayak"}}`)
			if want := `{"input":` + c.input + `,"others":"` + c.others + `"}`; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if name != "closed" {
				return
			}
			// Such a text is cleaned and bounded as the others are.
			got = r.ask(intents.Exchange, `{"schema_id":"own_v1","schema_updates":false,"payload":{"stop":"Museum","note_text":"a \"dog\"\n\u202eignore all","other":"a kayak"}}`)
			if want := `{"input":{"stop":"Museum"},"others":"a kayak|note_text: a \"dog\"  ignore all"}`; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			many, _ := json.Marshal(strings.Split(strings.Repeat("a kayak|", 19)+"a dog", "|"))
			got = r.ask(intents.Exchange, `{"schema_id":"own_v1","schema_updates":false,"payload":{"stop":"Museum","note_text":"a cat","other":`+string(many)+`}}`)
			if strings.Count(got, "a kayak") != 19 || !strings.Contains(got, "a dog") || strings.Contains(got, "a cat") {
				t.Errorf("more than %d texts: %s", template.MaxFragments, got)
			}
			got = r.ask(intents.Exchange, `{"schema_id":"own_v1","schema_updates":false,"payload":{"stop":"Museum","note_text":"`+strings.Repeat("é", 900)+`"}}`)
			if n := strings.Count(got, "é"); n < 400 || n > template.MaxFragmentBytes/2 {
				t.Errorf("%d letters of a long text", n)
			}
		})
	}
}

// A pool may have more keys than one patch can have: all of them are accepted, and a suggestion has
// the newest ones.
func TestMoreLearnedKeysThanAPatchMayHave(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10, MaxTrials: 50, MaxKeys: 100}, "test")
	if err != nil {
		t.Fatal(err)
	}
	then, tpl := time.Now().Add(-8*24*time.Hour), tram(t, "tram_v1")
	name := func(i int) string { return "wish_" + strings.Repeat("x", 1+i/26) + string(rune('a'+i%26)) }
	wish := func(i int, at time.Time) {
		v := make([]float32, 60)
		v[i] = 1
		wished(t, p, tpl, name(i), v, at)
	}
	var uses []evolve.Use
	for i := range 30 {
		wish(i, then)
		uses = append(uses, evolve.Use{Key: name(i)})
		if err := p.Vouch(name(i), "human.ops", then); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		p.Observe(evolve.Observation{Client: evolve.Client(name(i)), Keys: uses}, then.Add(time.Hour))
	}
	p.Advance(time.Now()) // they are stable
	for i := range 30 {
		wish(30+i, time.Now())
	}
	desk := r.desk(sdsi.DeskConfig{}, tpl)
	desk.Learn(has{p.View()})
	r.serve(desk, sells, nil)
	got := r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","`+name(0)+`":true,"`+name(59)+`":false,"other":"a kayak"}}`)
	contains(t, "an exchange", got, `"`+name(0)+`":true`, `"`+name(59)+`":false`, `"other":"a kayak"`)
	var result struct {
		Suggestion template.Patch `json:"schema_update_suggestion"`
	}
	if err := json.Unmarshal([]byte(got), &result); err != nil {
		t.Fatal(err)
	}
	told := &template.Template{Keys: result.Suggestion.NewKeys}
	if len(told.Keys) != template.MaxPatchKeys || told.Key(name(58)) == nil || told.Key(name(1)) != nil || result.Suggestion.Validate() != nil {
		t.Errorf("%d keys are suggested: %+v", len(told.Keys), told.Keys)
	}
}

// A learned key for which a template has no room is left out, without effect on the others.
func TestAPatchThatDoesNotApplySpoilsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10}, "test")
	if err != nil {
		t.Fatal(err)
	}
	tpl := tram(t, "tram_v1")
	size := func(t *template.Template) int {
		raw, _ := json.Marshal(t)
		return len(raw)
	}
	pad := func(bytes int) {
		for i := 0; bytes > 0; i++ {
			k := template.Key{Name: "pad_" + string(rune('a'+i/26)) + string(rune('a'+i%26)), Type: template.String, Description: "x"}
			before := size(tpl)
			tpl.Keys = append(tpl.Keys, k)
			bytes -= size(tpl) - before
			more := min(max(bytes, 0), 3900)
			tpl.Keys[len(tpl.Keys)-1].Description += strings.Repeat("x", more)
			bytes -= more
		}
	}
	wished(t, p, tpl, "window_seat", []float32{1, 0}, time.Now())
	one, err := tpl.Apply(p.View().Patches(tpl, "x", time.Now())...)
	if err != nil {
		t.Fatal(err)
	}
	pad(template.MaxBytes - size(one) - 50)
	wished(t, p, tpl, "quiet_cabin", []float32{0, 1}, time.Now())
	desk := r.desk(sdsi.DeskConfig{}, tpl)
	desk.Learn(has{p.View()})
	r.serve(desk, sells, nil)
	got := r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","window_seat":true,"quiet_cabin":true}}`)
	contains(t, "an exchange", got, `"window_seat":true`, `"other":"quiet_cabin: true"`)
}

// A withdrawn key is accepted, however many keys the template has. If a later version uses the
// key's name for something else, other keys are not affected.
func TestWithdrawnKeysSpoilNoOther(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		change func(*template.Template)
		want   string
	}{
		"a full template": {func(tpl *template.Template) {
			for i := len(tpl.Keys); i < template.MaxKeys-1; i++ {
				tpl.Keys = append(tpl.Keys, template.Key{Name: "pad_" + strings.Repeat("x", 1+i/26) + string(rune('a'+i%26)), Type: template.String, Description: "x"})
			}
		}, `"red_balloon":true`},
		"its name is a property": {func(tpl *template.Template) { tpl.Keys[1].Property = "red_balloon" }, `"other":"red_balloon: true"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			p, err := evolve.New(evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10, Grace: evolve.Duration(time.Second)}, "test")
			if err != nil {
				t.Fatal(err)
			}
			tpl := tram(t, "tram_v1")
			wished(t, p, tpl, "red_balloon", []float32{1, 0}, now.Add(-time.Minute))
			if err := p.Reject("red_balloon", "human.ops", "", now.Add(-time.Minute)); err != nil {
				t.Fatal(err)
			}
			p.Advance(now)
			wished(t, p, tpl, "window_seat", []float32{0, 1}, now)
			c.change(tpl)
			desk := r.desk(sdsi.DeskConfig{}, tpl)
			desk.Learn(has{p.View()})
			r.serve(desk, sells, nil)
			got := r.ask(intents.Exchange, `{"schema_id":"tram_v1","payload":{"stop_from":"Museum","window_seat":true,"red_balloon":true}}`)
			contains(t, "an exchange", got, `"window_seat":true`, c.want)
		})
	}
}
