package template

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// plainKeywords are the keywords of JSON Schema that apply to values of all types.
var plainKeywords = func() map[string]bool {
	m := map[string]bool{}
	for _, k := range strings.Fields("type enum const allOf anyOf oneOf not if then else title description default examples $comment deprecated readOnly writeOnly contentSchema") {
		m[k] = true
	}
	return m
}()

// own adds the problems of a valid template that its author cannot have meant. It is only called
// for the user's own templates.
func (r *report) own(t *Template) {
	for i := range t.Keys {
		k, p := &t.Keys[i], at("/keys", i)
		if k.Required && !isNull(k.Default) {
			r.add(p+"/default_value", "default", "remove it, or write \"required\": false", "is never used: the key is required")
		}
		walkSchema(k.Value, p+"/value_schema", func(pointer string, m member) {
			if _, known := typeOfKeyword[m.name]; !known && !plainKeywords[m.name] && !strings.HasPrefix(m.name, "x-") {
				r.add(at(pointer, m.name), "keyword", "correct it; names of your own begin with x-", "%s is no keyword of JSON Schema", quoted(m.name))
			}
		})
		have := keywordsOf(k.Value)
		least, out, ok := bound(have, "minimum", "exclusiveMinimum", 1)
		most, outToo, both := bound(have, "maximum", "exclusiveMaximum", -1)
		if ok && both && (least > most || least == most && (out || outToo)) {
			r.add(p+"/value_schema", "value", "correct one of them", "no value fits it: its lower limit is above its upper one, or is the same and excluded")
		}
		for _, pair := range [][2]string{{"minLength", "maxLength"}, {"minItems", "maxItems"}, {"minProperties", "maxProperties"}} {
			least, ok := numberOf(have[pair[0]])
			most, both := numberOf(have[pair[1]])
			if ok && both && least > most {
				r.add(p+"/value_schema", "value", "correct one of them", "no value fits it: %s is above %s", pair[0], pair[1])
			}
		}
	}
}

// seen adds a problem if a string in a JSON value has an invisible character.
func (r *report) seen(p string, raw []byte) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	before := len(r.problems)
	for len(r.problems) == before {
		tok, err := dec.ReadToken()
		if err != nil {
			return
		}
		if tok.Kind() == '"' {
			r.text(p, tok.String(), true)
		}
	}
}
