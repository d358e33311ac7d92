package schema

import (
	"fmt"
	"net/url"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/envelope/clip"
)

// uri checks $schema and $id. Both are accepted only at the top: further down they would
// change the draft and the base URI of a part.
func (w *vetter) uri(at int32, name string, top bool) {
	if !w.want(at, kString) {
		return
	}
	text := string(w.text(&w.values[at]))
	switch {
	case name == "$schema" && !drafts[draftName(text)]:
		w.fail(at, name, "is no JSON Schema draft that is understood; 2020-12 is, and 2019-09, 07, 06 and 04 are")
	case name == "$schema" && draftName(text) != w.draft:
		w.fail(at, name, "differs from the draft of the whole schema")
	case name == "$id" && top:
		w.id, _, _ = strings.Cut(text, "#")
	case name == "$id":
		w.fail(at, name, "is accepted at the top of a schema only; use $defs and $anchor")
	}
}

// pattern refuses regular expressions that Go's engine cannot run, or that are so large
// that matching them takes long. The engine does not backtrack. Once the limit of a
// schema's patterns is exceeded, further patterns are not examined.
func (w *vetter) pattern(at int32, expr string) {
	if w.patterns > maxPatternsSize {
		return
	}
	size, err := PatternSize(expr)
	w.patterns += size
	if err != nil {
		w.fail(at, "pattern", "%s", err)
		return
	}
	if size > MaxPatternSize || w.patterns > maxPatternsSize {
		w.fail(at, "limit", "is too large a regular expression, or one too many; mind counts such as {1000}")
	}
}

// PatternSize measures an untrusted regular expression without compiling it for use: the
// number of its instructions, and one for each sixteen runes that its character classes
// list (\pL lists 1,300). The error says why it is refused: it is longer than 1 KiB, or
// not in the RE2 syntax. The size is then an estimate of the cost of examining it.
func PatternSize(expr string) (int, error) {
	if len(expr) > maxPatternLength {
		return 1, fmt.Errorf("is a regular expression of more than %d bytes", maxPatternLength)
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return 32 * len(expr), fmt.Errorf("is no regular expression of the RE2 syntax: %s", clip.Text(err.Error(), 200))
	}
	size := classes(re) / 16
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return size, err
	}
	return size + len(prog.Inst), nil
}

// classes counts the runes that the character classes of an expression list.
func classes(re *syntax.Regexp) int {
	runes := 0
	if re.Op == syntax.OpCharClass {
		runes = len(re.Rune)
	}
	for _, sub := range re.Sub {
		runes += classes(sub)
	}
	return runes
}

// ref requires that a $ref refers to a schema in the same document.
func (w *vetter) ref(at int32) {
	text := string(w.text(&w.values[at]))
	base, fragment, _ := strings.Cut(text, "#")
	if base != "" && (w.id == "" || base != w.id) {
		w.fail(at, "$ref", "refers to another document, %s; schemas are never loaded from disk or network: put it under $defs", quoted(base))
		return
	}
	if fragment == "" {
		return
	}
	if !strings.HasPrefix(fragment, "/") {
		if !w.anchors[fragment] {
			w.fail(at, "$ref", "refers to an $anchor that does not exist")
		}
		return
	}
	target, ok := w.follow(fragment)
	if !ok || !w.schemas[target] {
		w.fail(at, "$ref", "refers to a place in this schema that holds no schema")
	}
}

// follow resolves a JSON pointer from a URI's fragment.
func (w *vetter) follow(pointer string) (int32, bool) {
	pointer, err := url.PathUnescape(pointer)
	if err != nil {
		return none, false
	}
	at := int32(0)
	for token := range jsontext.Pointer(pointer).Tokens() {
		v := &w.values[at]
		switch v.kind {
		case kObject:
			at = w.member(v, token)
		case kArray:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= int(v.count) {
				return none, false
			}
			for at = v.first; i > 0; i-- {
				at = w.values[at].next
			}
		default:
			return none, false
		}
		if at == none {
			return none, false
		}
	}
	return at, true
}
