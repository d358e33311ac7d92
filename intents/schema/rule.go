package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// A rule is one subschema, prepared for validation. Rules refer to each other as the subschemas do,
// also in cycles. They are immutable once built.
type rule struct {
	place string // its JSON pointer in the schema
	never bool   // the schema false
	types kind   // 0 for any

	constant *any
	enum     []any
	oneOfMsg string // the message of enum and const

	format   string
	formatOK func(any) bool

	// subschemas for the same value
	ref, not                   *rule
	allOf, anyOf, oneOf        []*rule
	when, then, otherwise      *rule
	dependent                  []dependency
	unevaluated, unevaluatedAt *rule // properties, items

	// objects
	minProps, maxProps int
	required           []string
	props              map[string]*rule
	names              *rule
	patterns           []patternRule
	additional         *rule
	dependentNames     []dependentNames

	// arrays
	minItems, maxItems       int
	unique                   bool
	prefix                   []*rule
	items                    *rule // beyond prefix
	contains                 *rule
	minContains, maxContains int
	containsCounts           bool // items that it matches count as evaluated (2020-12)

	// strings and numbers
	minLen, maxLen                       int
	pattern                              *regexp.Regexp
	patternSize                          int
	minimum, maximum, above, below, step *bound
}

type patternRule struct {
	expr *regexp.Regexp
	size int
	rule *rule
}

type dependency struct {
	name string
	rule *rule
}

type dependentNames struct {
	name     string
	required []string
}

// newRule returns the rule that every value conforms to.
func newRule() *rule {
	return &rule{minProps: -1, maxProps: -1, minItems: -1, maxItems: -1, minLen: -1, maxLen: -1}
}

var nothing = &rule{never: true}

// A builder converts compiled schemas to rules, each once.
type builder struct {
	rules     map[*jsonschema.Schema]*rule
	annotates bool // the schema has an unevaluated* keyword somewhere
}

func (b *builder) rule(s *jsonschema.Schema) *rule {
	if s == nil {
		return nil
	}
	if r, ok := b.rules[s]; ok {
		return r
	}
	r := newRule()
	r.place = placeOf(s.Location)
	b.rules[s] = r // before its parts are built, because they may refer to this rule
	if s.Always != nil {
		r.never = !*s.Always
		return r
	}
	b.general(r, s)
	b.object(r, s)
	b.array(r, s)
	r.minLen, r.maxLen = s.MinLength, s.MaxLength
	if r.pattern = s.Pattern; r.pattern != nil {
		r.patternSize = sizeOf(r.pattern)
	}
	r.minimum, r.maximum = newBound(s.Minimum), newBound(s.Maximum)
	r.above, r.below = newBound(s.ExclusiveMinimum), newBound(s.ExclusiveMaximum)
	r.step = newBound(s.MultipleOf)
	return r
}

// placeOf returns the JSON pointer in a compiled schema's URL.
func placeOf(location string) string {
	_, fragment, _ := strings.Cut(location, "#")
	if decoded, err := url.PathUnescape(fragment); err == nil {
		return decoded
	}
	return fragment
}

func (b *builder) general(r *rule, s *jsonschema.Schema) {
	for _, name := range s.Types {
		r.types |= kindNamed(name)
	}
	if len(s.Constant) > 0 {
		r.constant = &s.Constant[0]
		r.oneOfMsg = "must be " + listed(s.Constant)
	}
	if r.enum = s.Enum; len(r.enum) > 0 {
		r.oneOfMsg = "must be one of " + listed(r.enum)
	}
	if ok := formats[s.Format]; ok != nil {
		r.format, r.formatOK = s.Format, ok
	}
	r.ref, r.not = b.rule(s.Ref), b.rule(s.Not)
	r.allOf, r.anyOf, r.oneOf = b.all(s.AllOf), b.all(s.AnyOf), b.all(s.OneOf)
	r.when, r.then, r.otherwise = b.rule(s.If), b.rule(s.Then), b.rule(s.Else)
	for _, name := range slices.Sorted(maps.Keys(s.DependentSchemas)) {
		r.dependent = append(r.dependent, dependency{name, b.rule(s.DependentSchemas[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		switch d := s.Dependencies[name].(type) {
		case *jsonschema.Schema:
			r.dependent = append(r.dependent, dependency{name, b.rule(d)})
		case []string:
			r.dependentNames = append(r.dependentNames, dependentNames{name, d})
		}
	}
	r.unevaluated, r.unevaluatedAt = b.rule(s.UnevaluatedProperties), b.rule(s.UnevaluatedItems)
	b.annotates = b.annotates || r.unevaluated != nil || r.unevaluatedAt != nil
}

func (b *builder) object(r *rule, s *jsonschema.Schema) {
	r.minProps, r.maxProps = s.MinProperties, s.MaxProperties
	r.required = s.Required
	if len(s.Properties) > 0 {
		r.props = make(map[string]*rule, len(s.Properties))
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			r.props[name] = b.rule(s.Properties[name])
		}
	}
	r.names = b.rule(s.PropertyNames)
	for expr, sub := range s.PatternProperties {
		r.patterns = append(r.patterns, patternRule{expr, sizeOf(expr), b.rule(sub)})
	}
	sort.Slice(r.patterns, func(i, j int) bool { return r.patterns[i].expr.String() < r.patterns[j].expr.String() })
	r.additional = b.open(s.AdditionalProperties)
	for _, name := range slices.Sorted(maps.Keys(s.DependentRequired)) {
		r.dependentNames = append(r.dependentNames, dependentNames{name, s.DependentRequired[name]})
	}
}

func (b *builder) array(r *rule, s *jsonschema.Schema) {
	r.minItems, r.maxItems, r.unique = s.MinItems, s.MaxItems, s.UniqueItems
	switch items := s.Items.(type) { // before 2020-12
	case *jsonschema.Schema:
		r.items = b.rule(items)
	case []*jsonschema.Schema:
		r.prefix, r.items = b.all(items), b.open(s.AdditionalItems)
	}
	if len(s.PrefixItems) > 0 {
		r.prefix = b.all(s.PrefixItems)
	}
	if s.Items2020 != nil {
		r.items = b.rule(s.Items2020)
	}
	r.contains = b.rule(s.Contains)
	r.minContains, r.maxContains, r.containsCounts = s.MinContains, s.MaxContains, s.ContainsEval
}

// open converts additionalProperties and additionalItems: nil, a bool or a schema. True
// becomes a rule, too, because the values that it covers count as evaluated.
func (b *builder) open(v any) *rule {
	switch v := v.(type) {
	case bool:
		if !v {
			return nothing
		}
		return newRule()
	case *jsonschema.Schema:
		return b.rule(v)
	}
	return nil
}

func (b *builder) all(schemas []*jsonschema.Schema) []*rule {
	rules := make([]*rule, len(schemas))
	for i, s := range schemas {
		rules[i] = b.rule(s)
	}
	return rules
}

// inPlace returns the rules that r applies to the same value.
func (r *rule) inPlace() []*rule {
	var list []*rule
	for _, sub := range []*rule{r.ref, r.not, r.when, r.then, r.otherwise} {
		if sub != nil {
			list = append(list, sub)
		}
	}
	list = append(append(append(list, r.allOf...), r.anyOf...), r.oneOf...)
	for _, d := range r.dependent {
		list = append(list, d.rule)
	}
	return list
}

// endless reports whether some value would be checked against the same rule without end
// ({"$ref": "#"} and longer cycles). The compiler misses cycles that it first reaches
// through a property.
func (b *builder) endless() bool {
	const open, done = 1, 2
	state := make(map[*rule]int, len(b.rules))
	var visit func(r *rule) bool
	visit = func(r *rule) bool {
		switch state[r] {
		case open:
			return true
		case done:
			return false
		}
		state[r] = open
		if slices.ContainsFunc(r.inPlace(), visit) {
			return true
		}
		state[r] = done
		return false
	}
	for _, r := range b.rules {
		if visit(r) {
			return true
		}
	}
	return false
}

func sizeOf(expr *regexp.Regexp) int {
	size, err := PatternSize(expr.String())
	if err != nil {
		return MaxPatternSize // unreachable: the expression was compiled
	}
	return size
}

// listed formats the values that a schema allows. They come from the schema and not from
// a payload, so they may be shown, but there may be many.
func listed(values []any) string {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		if text, err := json.Marshal(v); err == nil {
			b.WriteString(clip.Text(string(text), 60))
		}
		if b.Len() > 160 && i < len(values)-1 {
			fmt.Fprintf(&b, " and %d more", len(values)-1-i)
			break
		}
	}
	return b.String()
}
