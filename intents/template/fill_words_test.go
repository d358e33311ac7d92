package template

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// twice is a model that gives two answers.
type twice struct{ first, second string }

func (m *twice) Complete(context.Context, Prompt) (json.RawMessage, error) {
	said := m.first
	m.first = m.second
	return json.RawMessage(said), nil
}

// SDSI 6.1: whatever a model answers (it may drop, duplicate or invent fragments), every word of
// the request is in the fragment of a key or in "other", or has no meaning; there are no words that
// the request does not have; and the agent accepts the whole payload.
func FuzzFillKeepsEveryWord(f *testing.F) {
	const answer = `{"keys":{"harbour_to":{"value":"OSL","fragment":"to Oslo","confidence":1}},"other":["two bicycles"]}`
	f.Add("Please book me a ferry from Kiel to Oslo, an outside cabin, two bicycles, and I'd like a table by the window!", answer, `{}`)
	f.Add("from Kiel from Kiel", `{"keys":{"harbour_to":{"value":"x","fragment":"from Kiel","confidence":1},"harbour_from":{"value":"x","fragment":"Kiel","confidence":1}},"other":["from Kiel","Kiel"]}`, answer)
	f.Add("from Kiel to Oslo with two bicycles, an outside cabin and a crib", `{"keys":{"harbour_to":{"value":"Oslo","fragment":"from Kiel to Oslo with two bicycles, an outside cabin and a crib","confidence":1},"cabin":{"value":"outside","fragment":"outside cabin","confidence":1}},"other":[]}`, `null`)
	f.Add("two", `{"keys":{"bicycles":{"value":1e999,"fragment":"two","confidence":1},"cabin":{"value":{"a":1,"a":2},"fragment":"two","confidence":-1}}}`, `{"keys":{"bicycles":{"value":3,"fragment":"TWO","confidence":1}},"other":[]}`)
	f.Add(strings.Repeat("十", 700), `{"keys":{},"other":["十"]}`, `null`)
	f.Add(strings.Repeat("to x ", 500), `{"keys":{"harbour_to":{"value":"OSL","fragment":"to","confidence":1}},"other":null}`, `null`)
	f.Add("5% off\x05-3 degrees & 20€ #1\x00 \u202e \xff", answer, answer)
	tpl, err := Parse([]byte(`{"schema_id":"ferry_booking_v1","scenario":"ferry_booking","keys":[
		{"key_name":"harbour_from","key_type":"string","required":false,"semantic_description":"Where the crossing begins."},
		{"key_name":"harbour_to","key_type":"string","required":false,"semantic_description":"Where it ends."},
		{"key_name":"cabin","key_type":"string","required":false,"semantic_description":"Kind of cabin.","value_schema":{"enum":["inside","outside"]}},
		{"key_name":"bicycles","key_type":"integer","required":false,"semantic_description":"How many bicycles.","value_schema":{"minimum":0,"maximum":9}}]}`))
	if err != nil {
		f.Fatal(err)
	}
	form, err := NewForm(tpl, FormOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, request, first, second string) {
		m, err := Fill(t.Context(), &twice{first, second}, tpl, request, FillOptions{})
		if err != nil {
			return
		}
		covers(t, tpl, strings.ToValidUTF8(request, "\uFFFD"), m)
		arrives(t, form, m)
	})
}

// Words of a request are lost neither because a description contains them nor because one fragment
// contains all of them.
func TestNoWordIsLostToADescriptionOrOneFragment(t *testing.T) {
	t.Parallel()
	const request = "from Kiel to Oslo with two bicycles and a wooden crib near window seven"
	for name, c := range map[string]struct{ description, answer, want string }{
		"a hostile description": {request, `{"keys":{"harbour_to":{"value":"OSL","fragment":"to Oslo","confidence":1}},"other":[]}`, "Kiel|two bicycles and a wooden crib near window seven"},
		"one fragment":          {"", `{"keys":{"harbour_to":{"value":"Oslo","fragment":"` + request + `","confidence":1}},"other":[]}`, "Kiel|two bicycles and a wooden crib near window seven"},
		"a value of two words":  {"", `{"keys":{"harbour_to":{"value":"Oslo window","fragment":"` + request + `","confidence":1}},"other":[]}`, "Kiel|two bicycles and a wooden crib near|seven"},
		"a fragment of its own": {"", `{"keys":{"harbour_to":{"value":"OSL","fragment":"from Kiel to Oslo with two bicycles","confidence":1}},"other":[]}`, "wooden crib near window seven"},
	} {
		tpl, err := Parse([]byte(`{"schema_id":"ferry_booking_v1","scenario":"ferry_booking","keys":[{"key_name":"harbour_to","key_type":"string","required":false,"semantic_description":"Where it ends."}]}`))
		if err != nil {
			t.Fatal(err)
		}
		tpl.Description = c.description
		m, err := Fill(t.Context(), &twice{c.answer, c.answer}, tpl, request, FillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(m.Other, "|"); got != c.want {
			t.Errorf("%s: other has %q, want %q", name, got, c.want)
		}
		if len(m.Keys) != 1 {
			t.Errorf("%s: the value is lost: %+v", name, m)
		}
	}
}

// covers counts the words of a request and of a mapping. Unlike Fill it ignores their positions.
func covers(t *testing.T, tpl *Template, request string, m *Mapping) {
	t.Helper()
	words := wordsIn(request)
	names, idle := tpl.Scenario, functionWordsOf(words)
	for _, p := range m.Keys {
		names += " " + p.Key
	}
	about := wordsIn(strings.ReplaceAll(names, "_", " "))
	has, kept := map[string]int{}, map[string]int{}
	for _, w := range words {
		has[w.lower]++
	}
	for _, o := range m.Other {
		for _, w := range wordsIn(o) {
			if kept[w.lower]++; kept[w.lower] > has[w.lower] {
				t.Errorf("other has %q more often than the request %q", w.lower, request)
			}
		}
	}
	for _, p := range m.Keys {
		own, beyond := map[string]bool{}, 0
		for _, w := range valueWords(p.Value) {
			own[w.lower] = true
		}
		for _, w := range wordsIn(p.Fragment) {
			if has[w.lower] == 0 {
				t.Errorf("the fragment %q is not of the request %q", p.Fragment, request)
			}
			if !own[w.lower] && !idle[w.lower] {
				beyond++
			}
		}
		for _, w := range wordsIn(p.Fragment) { // of a long fragment only the value's words count
			if beyond <= 4 || own[w.lower] {
				kept[w.lower]++
			}
		}
	}
	for w, n := range has {
		if kept[w] < n && !idle[w] && !named(about, w) {
			t.Errorf("%q is lost of the request %q: %+v", w, request, m)
		}
	}
}

// arrives checks that an agent takes the payload, with all the words of "other".
func arrives(t *testing.T, form *Form, m *Mapping) {
	t.Helper()
	filled, err := form.Check(m.Payload)
	var misfit *PayloadError
	if errors.As(err, &misfit) {
		for _, p := range misfit.Problems {
			if !slices.ContainsFunc(m.Missing, func(k Key) bool { return k.Name == p.Key }) {
				t.Errorf("the payload %s: %v", m.Payload, err)
			}
		}
		return
	}
	if err != nil {
		t.Fatalf("the payload %s: %v", m.Payload, err)
	}
	// Compare letters, because a word beyond the limit of a text arrives in pieces.
	letters := func(texts []string) string {
		var b strings.Builder
		for _, o := range texts {
			for _, w := range wordsIn(o) {
				b.WriteString(w.lower)
			}
		}
		return b.String()
	}
	if sent, arrived := letters(m.Other), letters(filled.Other); sent != arrived {
		t.Errorf("of %q arrives %q: %s", sent, arrived, m.Payload)
	}
}

// A request of few texts, of which some are long, arrives whole, too.
func TestLongTextsPushOutNoOther(t *testing.T) {
	t.Parallel()
	tpl, err := Parse([]byte(`{"schema_id":"ferry_booking_v1","scenario":"ferry_booking","keys":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	form, err := NewForm(tpl, FormOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, texts := range map[string][]string{
		"a long one first": append([]string{strings.Repeat("crib ", 300)}, wishes(19)...),
		"a long one last":  append(wishes(19), strings.Repeat("crib ", 300)),
		"long words":       {"a " + strings.Repeat("x", 1_500), "b " + strings.Repeat("y", 1_500), "c " + strings.Repeat("z", 1_500), strings.Join(wishes(17), "; ")},
		"many":             wishes(400),
	} {
		request := strings.Join(texts, "; ")
		m, err := Fill(t.Context(), &twice{`{"keys":{},"other":[]}`, `null`}, tpl, request, FillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		covers(t, tpl, request, m)
		arrives(t, form, m)
	}
}

func wishes(n int) (out []string) {
	for i := range n {
		out = append(out, "wish"+strings.Repeat("s", i%7)+" number "+strconv.Itoa(i))
	}
	return out
}
