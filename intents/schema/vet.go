package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxPatternSize is the largest [PatternSize] of one regular expression.
const MaxPatternSize = 2_000

// Limits of a schema. They are far above what people write: a schema that reaches all of
// them at once compiles in a tenth of a second.
const (
	MaxBytes         = 256 << 10 // of its text
	maxSchemaDepth   = 64        // open objects and arrays
	maxSchemaValues  = 20_000    // JSON values in it
	maxSubschemas    = 2_000
	maxPatternLength = 1_024  // bytes of one regular expression
	maxPatternsSize  = 20_000 // all of a schema's together
	maxCount         = 1 << 53
)

// accepts says which JSON a keyword accepts.
type accepts uint8

const (
	aString accepts = iota
	aAnchor
	aURI
	aPattern
	aBool
	aNumber
	aLimit // a number, or draft 4's boolean
	aCount // a non-negative integer
	aMultiple
	aType
	aEnum
	aSchema
	aItems // a schema, or an array of them before 2020-12
	aSchemas
	aSchemaMap
	aPatternMap
	aNames // an array of strings
	aNamesMap
	aDependencies
	aRef
	aRefused
)

// keywords are the keywords of all drafts from 4 to 2020-12 that constrain a document.
// All other members are annotations or unknown, and are not examined.
var keywords = map[string]accepts{
	"$ref": aRef, "$id": aURI, "$schema": aURI, "$anchor": aAnchor,
	"format": aString, "pattern": aPattern, "uniqueItems": aBool,
	"minimum": aNumber, "maximum": aNumber, "exclusiveMinimum": aLimit, "exclusiveMaximum": aLimit, "multipleOf": aMultiple,
	"minLength": aCount, "maxLength": aCount, "minItems": aCount, "maxItems": aCount,
	"minProperties": aCount, "maxProperties": aCount, "minContains": aCount, "maxContains": aCount,
	"type": aType, "enum": aEnum,
	"not": aSchema, "if": aSchema, "then": aSchema, "else": aSchema, "contains": aSchema, "propertyNames": aSchema,
	"additionalProperties": aSchema, "additionalItems": aSchema, "unevaluatedProperties": aSchema, "unevaluatedItems": aSchema,
	"contentSchema": aSchema, "items": aItems,
	"allOf": aSchemas, "anyOf": aSchemas, "oneOf": aSchemas, "prefixItems": aSchemas,
	"properties": aSchemaMap, "$defs": aSchemaMap, "definitions": aSchemaMap, "dependentSchemas": aSchemaMap,
	"patternProperties": aPatternMap, "required": aNames, "dependentRequired": aNamesMap, "dependencies": aDependencies,
	// What these refer to depends on the references at run time, so the work of a schema
	// with them cannot be limited; payload schemas hardly use them.
	"$dynamicRef": aRefused, "$dynamicAnchor": aRefused, "$recursiveRef": aRefused, "$recursiveAnchor": aRefused,
	"$vocabulary": aRefused, "regexProperties": aRefused,
}

// drafts are the supported values of $schema, without scheme and fragment.
var drafts = map[string]bool{
	defaultDraft:                           true,
	"json-schema.org/draft/2019-09/schema": true,
	"json-schema.org/draft-07/schema":      true,
	"json-schema.org/draft-06/schema":      true,
	"json-schema.org/draft-04/schema":      true,
}

const defaultDraft = "json-schema.org/draft/2020-12/schema"

// draftName returns a draft's URI in the form of drafts: authors write it with http or
// https, and with or without an empty fragment.
func draftName(uri string) string {
	uri = strings.TrimSuffix(uri, "#")
	if rest, ok := strings.CutPrefix(uri, "https://"); ok {
		return rest
	}
	return strings.TrimPrefix(uri, "http://")
}

// A vetter examines a schema before the compiler does: it refuses schemas that exceed the
// limits, that would load another document, or that a compiler or validator cannot handle
// safely.
type vetter struct {
	tree
	problems  []Problem
	truncated bool
	schemas   map[int32]bool // values that are schemas
	anchors   map[string]bool
	refs      []int32
	id        string // $id of the whole schema
	draft     string // its $schema
	patterns  int    // size of all patterns so far
}

func (w *vetter) fail(at int32, keyword, format string, args ...any) {
	if len(w.problems) >= MaxProblems {
		w.truncated = true
		return
	}
	w.problems = append(w.problems, Problem{Pointer: w.pointer(at), Keyword: keyword, Message: fmt.Sprintf(format, args...)})
}

// vet examines a schema, and returns its cost (see [MaxTogether]). The error is an
// [*Error]; the cost of a refused schema is the cost of examining it.
func vet(raw []byte) (cost int, err error) {
	if len(raw) > MaxBytes {
		return 1, refuse("limit", fmt.Sprintf("is larger than %d bytes", MaxBytes))
	}
	w := &vetter{schemas: map[int32]bool{}, anchors: map[string]bool{}}
	if p := w.parse(raw, maxSchemaDepth, maxSchemaValues); p != nil {
		w.problems = []Problem{*p}
	} else {
		w.whole()
	}
	cost = len(raw)/100 + len(w.values) + 30*len(w.schemas) + w.patterns
	if len(w.problems) > 0 {
		return cost, &Error{Problems: w.problems, Truncated: w.truncated}
	}
	return cost, nil
}

func (w *vetter) whole() {
	w.draft = defaultDraft
	if i := w.member(&w.values[0], "$schema"); i != none && w.values[i].kind == kString {
		w.draft = draftName(string(w.text(&w.values[i])))
	}
	w.schema(0)
	for _, at := range w.refs {
		w.ref(at)
	}
}

// refuse returns the error for one problem of the whole schema.
func refuse(keyword, message string) *Error {
	return &Error{Problems: []Problem{{Keyword: keyword, Message: message}}}
}

// schema examines the value at index at, which must be a schema.
func (w *vetter) schema(at int32) {
	v := &w.values[at]
	if v.kind != kObject && v.kind != kBool {
		w.fail(at, "schema", "must be a schema: an object or a boolean, not %s", v.kind)
		return
	}
	if w.schemas[at] = true; len(w.schemas) > maxSubschemas {
		if len(w.schemas) == maxSubschemas+1 {
			w.fail(none, "limit", "has more than %d subschemas", maxSubschemas)
		}
		return
	}
	for c := v.first; c != none && v.kind == kObject; c = w.values[c].next {
		if takes, known := keywords[string(w.values[c].name)]; known {
			w.keyword(c, takes, at == 0)
		}
	}
}

func (w *vetter) keyword(at int32, takes accepts, top bool) {
	v := &w.values[at]
	name := string(v.name)
	switch takes {
	case aRefused:
		w.fail(at, "keyword", "%s is not accepted here", name)
	case aString:
		w.want(at, kString)
	case aAnchor:
		if w.want(at, kString) {
			if text := string(w.text(v)); w.anchors[text] {
				w.fail(at, name, "stands twice in this schema")
			} else {
				w.anchors[text] = true
			}
		}
	case aURI:
		w.uri(at, name, top)
	case aRef:
		if w.want(at, kString) {
			w.refs = append(w.refs, at)
		}
	case aBool:
		w.want(at, kBool)
	case aNumber:
		w.want(at, kNumber)
	case aLimit:
		w.want(at, kNumber|kBool)
	case aMultiple:
		if w.want(at, kNumber) && ratOf(v.raw).Sign() <= 0 {
			w.fail(at, name, "must be above 0")
		}
	case aCount:
		if w.want(at, kNumber) && (!isInteger(v.raw) || ratOf(v.raw).Sign() < 0 || countLimit.compare(v.raw) > 0) {
			w.fail(at, name, "must be an integer from 0 to 2^53")
		}
	case aPattern:
		if w.want(at, kString) {
			w.pattern(at, string(w.text(v)))
		}
	case aType:
		w.types(at)
	case aEnum:
		if w.want(at, kArray) && v.count == 0 {
			w.fail(at, name, "must list at least one value")
		}
	case aNames:
		w.names(at)
	case aSchema, aItems, aSchemas:
		w.subschemas(at, takes)
	case aSchemaMap, aPatternMap, aNamesMap, aDependencies:
		w.members(at, takes)
	}
}

var countLimit = &bound{i: maxCount, small: true, rat: ratOf([]byte(strconv.Itoa(maxCount)))}

func (w *vetter) want(at int32, k kind) bool {
	if got := w.values[at].kind; got&k == 0 {
		w.fail(at, string(w.values[at].name), "must be %s, not %s", k, got)
		return false
	}
	return true
}

func (w *vetter) subschemas(at int32, takes accepts) {
	v := w.values[at]
	if takes == aSchema || takes == aItems && v.kind != kArray {
		w.schema(at)
		return
	}
	if !w.want(at, kArray) {
		return
	}
	if v.count == 0 && takes == aSchemas {
		w.fail(at, string(v.name), "must list at least one schema")
	}
	for c := v.first; c != none; c = w.values[c].next {
		w.schema(c)
	}
}

func (w *vetter) members(at int32, takes accepts) {
	if !w.want(at, kObject) {
		return
	}
	for c := w.values[at].first; c != none; c = w.values[c].next {
		switch m := &w.values[c]; {
		case takes == aNamesMap, takes == aDependencies && m.kind == kArray:
			w.names(c)
		case takes == aPatternMap:
			w.pattern(c, string(m.name))
			w.schema(c)
		default:
			w.schema(c)
		}
	}
}

func (w *vetter) names(at int32) {
	v := &w.values[at]
	if v.kind != kArray {
		w.fail(at, string(v.name), "must be array, not %s", v.kind)
		return
	}
	for c := v.first; c != none; c = w.values[c].next {
		if w.values[c].kind != kString {
			w.fail(c, string(v.name), "must be string, not %s", w.values[c].kind)
		}
	}
}

func (w *vetter) types(at int32) {
	one := func(i int32) {
		if v := &w.values[i]; v.kind != kString || kindNamed(string(w.text(v))) == 0 {
			w.fail(i, "type", "must be one of null, boolean, number, integer, string, array, object")
		}
	}
	if w.values[at].kind != kArray {
		one(at)
		return
	}
	if w.values[at].count == 0 {
		w.fail(at, "type", "must name at least one type")
	}
	for c := w.values[at].first; c != none; c = w.values[c].next {
		one(c)
	}
}

func kindNamed(name string) kind {
	for k := kNull; k <= kInteger; k <<= 1 {
		if k.String() == name {
			return k
		}
	}
	return 0
}
