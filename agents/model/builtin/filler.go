package builtin

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// mappingExample finds the examples of a description: 'from Oslo' -> 'OSL'.
var mappingExample = pattern.Of(`'([^']+)'\s*(?:->|→)\s*(?:'([^']*)'|(-?[0-9.]+|true|false))`)

// acceptable matches the values that a description lists: "Acceptable values: a, b, c."
var acceptable = pattern.Of(`(?i)acceptable values:\s*([^.]+)`)

// fill simulates a model that fills in a form for package intents/template. The JSON Schema of the
// answer has a property "keys". The user's message contains the form in one line, a JSON object
// with the keys' descriptions, and the request in the last line.
func fill(req *model.Request) (answer, error) {
	var form struct {
		Properties struct {
			Keys struct {
				Properties map[string]struct {
					Properties struct {
						Value field `json:"value"`
					} `json:"properties"`
				} `json:"properties"`
			} `json:"keys"`
			Number json.RawMessage `json:"number"`
		} `json:"properties"`
	}
	if json.Unmarshal(req.Format.Schema, &form) != nil || form.Properties.Keys.Properties == nil && form.Properties.Number == nil {
		return answer{}, model.Errorf(model.ErrBadRequest, "model %q only fills in schema templates, and the requested format is not the form of one", Filler)
	}
	asked, err := echo(req)
	if err != nil {
		return answer{}, err
	}
	lines := strings.Split(strings.TrimSpace(asked.text), "\n")
	text := lines[len(lines)-1]
	_ = json.Unmarshal([]byte(text), &text) // a request that is not a JSON string is used unchanged
	if form.Properties.Number != nil {
		return choose(lines, text), nil
	}
	type mapped struct {
		Value      any     `json:"value"`
		Fragment   string  `json:"fragment"`
		Confidence float64 `json:"confidence"`
	}
	described, now := descriptions(lines), nowOf(lines)
	keys := map[string]mapped{}
	for name, k := range form.Properties.Keys.Properties {
		field := k.Properties.Value
		field.Description = cmp.Or(described[name], field.Description)
		value, fragment, ok := field.find(text)
		if !ok && field.isDate() {
			value, fragment, ok = findDate(text, now)
		}
		if ok {
			keys[name] = mapped{value, fragment, 0.9}
		}
	}
	raw, err := json.Marshal(map[string]any{"keys": keys, "other": []string{}})
	return answer{text: string(raw)}, err
}

// descriptions returns the descriptions of the keys of the form in a message.
func descriptions(lines []string) map[string]string {
	out := map[string]string{}
	for _, line := range lines {
		var form struct {
			Keys []struct {
				Name        string `json:"key_name"`
				Description string `json:"semantic_description"`
			} `json:"keys"`
		}
		if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &form) == nil {
			for _, k := range form.Keys {
				out[k.Name] = k.Description
			}
		}
	}
	return out
}

// choose simulates a model that chooses a scenario: the one whose name and description have more
// words of the request than those of any other.
func choose(lines []string, text string) answer {
	var offers struct {
		Scenarios []struct {
			Scenario, Description string
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "{") {
			_ = json.Unmarshal([]byte(line), &offers) // a line in another form has no scenarios
		}
	}
	number, most, second := 0, 0, 0
	for i, o := range offers.Scenarios {
		n := 0
		for _, w := range strings.FieldsFunc(strings.ToLower(o.Scenario+" "+o.Description), func(r rune) bool { return !unicode.IsLetter(r) }) {
			if len(w) > 3 && index(text, w).found() {
				n++
			}
		}
		if n > most {
			number, most, second = i+1, n, most
		} else {
			second = max(second, n)
		}
	}
	if most == second {
		number = 0
	}
	return answer{text: `{"number":` + strconv.Itoa(number) + `,"confidence":0.8}`}
}

// field has the members of a key's JSON Schema that the filler uses.
type field struct {
	Type        any    `json:"type"`
	Description string `json:"description"`
	Enum        []any  `json:"enum"`
	Format      string `json:"format"`
}

// isDate reports whether the key's values are dates in the form YYYY-MM-DD.
func (f *field) isDate() bool {
	return f.Type == "string" && (f.Format == "date" || strings.Contains(f.Description, "ISO 8601"))
}

// find searches a text for the value of a key: for the mapping examples of its description, for the
// values that it accepts, and for a capitalized value in the place of an example's ('from Oslo'
// finds "from Rome").
func (f *field) find(text string) (value any, fragment string, ok bool) {
	examples := mappingExample.RE().FindAllStringSubmatch(f.Description, 20)
	for _, e := range examples {
		if at := index(text, e[1]); at.found() {
			return f.typed(e[2] + e[3]), text[at.begin:at.end], true
		}
	}
	for _, v := range f.values() {
		words := strings.ReplaceAll(v, "_", " ")
		if at := index(text, words); at.found() && len(v) > 1 {
			return f.typed(v), text[at.begin:at.end], true
		}
	}
	for _, e := range examples {
		lead, _, two := strings.Cut(e[1], " ")
		switch at := index(text, lead+" "); {
		case f.Type == "string" && two && at.found() && lead != "" && !unicode.IsUpper(rune(lead[0])):
			rest := at.end
			for _, article := range []string{"the ", "a ", "an "} {
				if strings.HasPrefix(text[rest:], article) {
					rest += len(article)
					break
				}
			}
			if word := capitalized(text[rest:]); word != "" {
				return word, text[at.begin : rest+len(word)], true
			}
		case f.Type == "integer" || f.Type == "number":
			if unit := e[1][strings.LastIndexByte(e[1], ' ')+1:]; unit != e[1] {
				if n := regexp.MustCompile(`(?i)\b(\d+)\s+` + regexp.QuoteMeta(unit)).FindStringSubmatch(text); n != nil {
					return f.typed(n[1]), n[0], true
				}
			}
		}
	}
	return nil, "", false
}

// values returns the values that the key accepts, longest first: "premium economy" before
// "economy".
func (f *field) values() (out []string) {
	if f.Type != "string" {
		return nil
	}
	for _, v := range f.Enum {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	if m := acceptable.RE().FindStringSubmatch(f.Description); len(out) == 0 && m != nil {
		for v := range strings.SplitSeq(m[1], ",") {
			if v = strings.TrimSpace(v); v != "" && !strings.Contains(v, " ") {
				out = append(out, v)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// typed converts a value to the key's type.
func (f *field) typed(s string) any {
	switch f.Type {
	case "integer", "number":
		if n, err := strconv.ParseFloat(s, 64); err == nil {
			return n
		}
	case "boolean":
		return s == "true"
	}
	return s
}

// span is a part of a text; the zero value means that there is none.
type span struct{ begin, end int }

func (s span) found() bool { return s.end > 0 }

// index finds whole words in a text, ignoring case.
func index(text, words string) span {
	letter := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for at := range text {
		n := prefix(text[at:], words)
		if n == 0 {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+n:])
		if !letter(before) && (strings.HasSuffix(words, " ") || !letter(after)) {
			return span{at, at + n}
		}
	}
	return span{}
}

// prefix returns how many bytes the words have at the beginning of a text, ignoring case; 0 if the
// text does not begin with them. Upper and lower case of a letter may differ in length.
func prefix(text, words string) (n int) {
	for _, want := range words {
		r, size := utf8.DecodeRuneInString(text[n:])
		if size == 0 || unicode.ToLower(r) != unicode.ToLower(want) {
			return 0
		}
		n += size
	}
	return n
}

// capitalized returns the leading words of a text that begin with a capital letter.
func capitalized(text string) string {
	end := 0
	for i, word := range strings.SplitAfter(text, " ") {
		r := rune(0)
		for _, r = range word {
			break
		}
		if !unicode.IsUpper(r) || i > 3 {
			break
		}
		bare := strings.TrimRight(strings.TrimSpace(word), ",.;:!?")
		if bare != strings.TrimSpace(word) {
			return strings.TrimSpace(text[:end] + bare)
		}
		end += len(word)
	}
	return strings.TrimSpace(text[:min(end, len(text))])
}
