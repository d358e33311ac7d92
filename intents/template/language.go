package template

import (
	"maps"
	"slices"

	"golang.org/x/text/language"
)

// maxPreferred bounds the examined bytes of a preferred_language.
const maxPreferred = 256

// In returns the template in the language that fits preferred best, and the tag of that language.
// In the result every key has one description, and Language is the tag. preferred is a BCP 47 tag
// or a list in the form of Accept-Language. If preferred is empty, malformed or fits no language of
// the template, the descriptions are the default ones. A key without a description in the language
// keeps its default one.
func (t *Template) In(preferred string) (*Template, string) {
	c := t.clone()
	tag := t.match(preferred)
	for i := range c.Keys {
		k := &c.Keys[i]
		if tag != t.Language {
			k.Description = k.in(tag)
		}
		k.Descriptions = nil
	}
	c.Language = tag
	return c, tag
}

// match returns the template's language that fits best.
func (t *Template) match(preferred string) string {
	if preferred == "" || len(preferred) > maxPreferred {
		return t.Language
	}
	wanted, _, err := language.ParseAcceptLanguage(preferred)
	if err != nil || len(wanted) == 0 {
		return t.Language
	}
	tags := slices.DeleteFunc(t.Languages(), func(tag string) bool { return tag == t.Language })
	if t.Language != "" {
		tags = slices.Insert(tags, 0, t.Language)
	}
	if i, confidence := best(tags, wanted); confidence > language.No {
		return tags[i]
	}
	return t.Language
}

// in returns the key's description in a language.
func (k *Key) in(tag string) string {
	if text, ok := k.Descriptions[tag]; ok {
		return text
	}
	wanted, err := language.Parse(tag)
	if err != nil {
		return k.Description
	}
	tags := slices.Sorted(maps.Keys(k.Descriptions))
	if i, confidence := best(tags, []language.Tag{wanted}); confidence >= language.High {
		return k.Descriptions[tags[i]]
	}
	return k.Description
}

// best returns the index of the tag that fits best, and how well.
func best(tags []string, wanted []language.Tag) (int, language.Confidence) {
	if len(tags) == 0 {
		return 0, language.No
	}
	parsed := make([]language.Tag, len(tags))
	for i, tag := range tags {
		parsed[i] = language.Make(tag)
	}
	_, i, confidence := language.NewMatcher(parsed).Match(wanted...)
	return i, confidence
}

// Languages returns the languages in which the template has descriptions, sorted.
func (t *Template) Languages() []string {
	var all []string
	if t.Language != "" {
		all = append(all, t.Language)
	}
	for _, k := range t.Keys {
		for tag := range k.Descriptions {
			all = append(all, tag)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
