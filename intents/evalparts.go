package intents

import (
	"encoding/json"
	"slices"
	"strings"
)

// checkObject is every keyword about objects, save the unevaluated one.
func (e *eval) checkObject(r *rule, at int32, marks seen) bool {
	v := &e.values[at]
	ok := e.checkNames(r, at)
	if !ok && !e.collect {
		return false
	}
	if r.props == nil && r.names == nil && r.patterns == nil && r.additional == nil {
		return ok
	}
	for c := v.first; c != none; c = e.values[c].next {
		if !e.spend(2) {
			return false
		}
		if !e.checkMember(r, c, marks) {
			if ok = false; !e.collect {
				return false
			}
		}
	}
	return ok
}

// checkNames is what depends only on which names an object has.
func (e *eval) checkNames(r *rule, at int32) bool {
	v := &e.values[at]
	ok := true
	if int(v.count) < r.minProps {
		ok = false
		e.fail(at, "minProperties", "has %d properties, %d at least are due", v.count, r.minProps)
	}
	if r.maxProps >= 0 && int(v.count) > r.maxProps {
		ok = false
		e.fail(at, "maxProperties", "has %d properties, %d at most are allowed", v.count, r.maxProps)
	}
	for _, name := range r.required {
		if e.spend(int(v.count)); e.member(v, name) == none {
			if ok = false; !e.fail(at, "required", "lacks the property %s", named(name)) {
				return false
			}
		}
	}
	for _, d := range r.dependentNames {
		if e.spend(int(v.count)); e.member(v, d.name) == none {
			continue
		}
		for _, name := range d.required {
			if e.spend(int(v.count)); e.member(v, name) == none {
				if ok = false; !e.fail(at, "dependentRequired", "has %s and so must have %s", named(d.name), named(name)) {
					return false
				}
			}
		}
	}
	return ok
}

// checkMember holds one member against whatever covers its name.
func (e *eval) checkMember(r *rule, c int32, marks seen) bool {
	v := &e.values[c]
	ok, covered := true, false
	if r.names != nil && !e.checkName(r.names, c) {
		if ok = false; !e.collect {
			return false
		}
	}
	if sub := r.props[string(v.name)]; sub != nil {
		covered = true
		ok = e.check(sub, c, nil) && ok
	}
	for _, p := range r.patterns {
		if !e.spend(len(v.name) * p.size / 4) {
			return false
		}
		if p.expr.Match(v.name) {
			covered = true
			ok = e.check(p.rule, c, nil) && ok
		}
	}
	if r.additional != nil && !covered {
		covered = true
		if r.additional.never {
			e.fail(c, "additionalProperties", "is no property that is allowed here")
			ok = false
		} else {
			ok = e.check(r.additional, c, nil) && ok
		}
	}
	if covered || r.additional != nil {
		marks.mark(v.index)
	}
	return ok
}

// checkName holds a member's name against propertyNames, as a string value
// that takes the member's place in the tree for the moment.
func (e *eval) checkName(r *rule, c int32) bool {
	member := e.values[c]
	raw, err := json.Marshal(string(member.name))
	if err != nil {
		return false
	}
	e.spend(len(raw))
	e.values[c] = value{kind: kString, escaped: true, parent: member.parent, first: none, next: member.next, index: member.index, name: member.name, raw: raw}
	ok := e.check(r, c, nil)
	e.values[c] = member
	return ok
}

// checkArray is every keyword about arrays, save the unevaluated one.
func (e *eval) checkArray(r *rule, at int32, marks seen) bool {
	v := &e.values[at]
	ok := true
	if int(v.count) < r.minItems {
		ok = false
		e.fail(at, "minItems", "has %d items, %d at least are due", v.count, r.minItems)
	}
	if r.maxItems >= 0 && int(v.count) > r.maxItems {
		ok = false
		e.fail(at, "maxItems", "has %d items, %d at most are allowed", v.count, r.maxItems)
	}
	if r.unique && v.count > 1 && !e.distinct(at) {
		ok = false
		e.fail(at, "uniqueItems", "has the same item twice")
	}
	if !ok && !e.collect {
		return false
	}
	for c := v.first; c != none && (r.items != nil || len(r.prefix) > 0); c = e.values[c].next {
		i := e.values[c].index
		sub := r.items
		if int(i) < len(r.prefix) {
			sub = r.prefix[i]
		}
		if sub == nil {
			break
		}
		marks.mark(i)
		if !e.check(sub, c, nil) {
			if ok = false; !e.collect {
				return false
			}
		}
		if e.work < 0 {
			return false
		}
	}
	return e.checkContains(r, at, marks) && ok
}

func (e *eval) checkContains(r *rule, at int32, marks seen) bool {
	if r.contains == nil {
		return true
	}
	matched, ok := 0, true
	for c := e.values[at].first; c != none; c = e.values[c].next {
		if e.silently(func() bool { return e.check(r.contains, c, nil) }) {
			if matched++; r.containsCounts {
				marks.mark(e.values[c].index)
			}
		}
		if e.work < 0 {
			return false
		}
	}
	if matched < r.minContains {
		ok = false
		e.fail(at, "contains", "has %d items of the kind that is due, %d at least must be there", matched, r.minContains)
	}
	if r.maxContains >= 0 && matched > r.maxContains {
		ok = false
		e.fail(at, "maxContains", "has %d items of one kind, %d at most are allowed", matched, r.maxContains)
	}
	return ok
}

// silently asks without collecting problems.
func (e *eval) silently(ask func() bool) bool {
	collect := e.collect
	e.collect = false
	ok := ask()
	e.collect = collect
	return ok
}

// inPlace holds the value against a subschema of r's. What that has looked at
// counts for r when it agrees.
func (e *eval) inPlace(sub *rule, at int32, marks seen) bool {
	if marks == nil {
		return e.check(sub, at, nil)
	}
	own := make(seen, len(marks))
	e.spend(2 * len(own))
	if !e.check(sub, at, own) {
		return false
	}
	marks.add(own)
	return true
}

// checkInPlace is every keyword that applies subschemas to the same value.
func (e *eval) checkInPlace(r *rule, at int32, marks seen) bool {
	ok := r.ref == nil || e.inPlace(r.ref, at, marks)
	if !ok && !e.collect {
		return false
	}
	for _, sub := range r.allOf {
		if !e.inPlace(sub, at, marks) {
			if ok = false; !e.collect {
				return false
			}
		}
	}
	if r.not != nil && e.silently(func() bool { return e.inPlace(r.not, at, marks) }) {
		if ok = false; !e.fail(at, "not", "is of a kind that is excluded here") {
			return false
		}
	}
	if len(r.anyOf) > 0 && e.alternatives("anyOf", r.anyOf, at, marks, false) == 0 {
		if ok = false; !e.collect {
			return false
		}
	}
	if len(r.oneOf) > 0 && e.alternatives("oneOf", r.oneOf, at, marks, true) != 1 {
		if ok = false; !e.collect {
			return false
		}
	}
	if r.when != nil {
		branch := r.otherwise
		if e.silently(func() bool { return e.inPlace(r.when, at, marks) }) {
			branch = r.then
		}
		if branch != nil && !e.inPlace(branch, at, marks) {
			if ok = false; !e.collect {
				return false
			}
		}
	}
	for _, d := range r.dependent {
		v := &e.values[at]
		if v.kind != kObject {
			break
		}
		e.spend(int(v.count))
		if e.member(v, d.name) != none && !e.inPlace(d.rule, at, marks) {
			if ok = false; !e.collect {
				return false
			}
		}
	}
	return ok
}

// alternatives counts how many of the rules agree. When none does, the problem
// is followed by those of the alternative that came nearest; with exactlyOne, two
// that agree are a problem as well.
func (e *eval) alternatives(keyword string, rules []*rule, at int32, marks seen, exactlyOne bool) int {
	matched := 0
	var nearest []Problem
	before, cut := len(e.problems), e.truncated
	for _, sub := range rules {
		if e.work < 0 {
			return 0
		}
		if e.inPlace(sub, at, marks) {
			if matched++; matched == 2 && exactlyOne {
				break
			}
			// Without annotations to gather, one is enough for anyOf.
			if !exactlyOne && marks == nil {
				break
			}
		} else if e.collect {
			if mine := e.problems[before:]; nearer(mine, nearest) {
				nearest = slices.Clone(mine)
			}
		}
		e.problems, e.truncated = e.problems[:before], cut
	}
	e.problems, e.truncated = e.problems[:before], cut
	switch {
	case matched == 0:
		e.fail(at, keyword, "fits none of the %d alternatives", len(rules))
		for _, p := range nearest {
			if e.collect && len(e.problems) < MaxProblems {
				e.problems = append(e.problems, p)
			}
		}
	case matched == 2 && exactlyOne:
		e.fail(at, keyword, "fits more than one alternative, exactly one is due")
	}
	return matched
}

// nearer reports whether an alternative that failed with these problems tells
// more than the best so far: one of the wrong type tells least.
func nearer(mine, best []Problem) bool {
	if len(mine) == 0 {
		return false
	}
	if best == nil {
		return true
	}
	mineOff, bestOff := wrongType(mine), wrongType(best)
	if mineOff != bestOff {
		return bestOff
	}
	return len(mine) < len(best)
}

func wrongType(problems []Problem) bool {
	return len(problems) == 1 && problems[0].Keyword == "type"
}

// equal compares the value at index at with one of a schema's.
func (e *eval) equal(at int32, want any) bool {
	v := &e.values[at]
	e.spend(1)
	switch want := want.(type) {
	case nil:
		return v.kind == kNull
	case bool:
		return v.kind == kBool && (v.raw[0] == 't') == want
	case string:
		return v.kind == kString && string(e.text(v)) == want
	case json.Number:
		if v.kind != kNumber {
			return false
		}
		if string(v.raw) == want.String() {
			return true
		}
		e.spend(len(v.raw) * 10)
		return ratOf(v.raw).Cmp(ratOf([]byte(want))) == 0
	case []any:
		if v.kind != kArray || int(v.count) != len(want) {
			return false
		}
		c := v.first
		for _, item := range want {
			if !e.equal(c, item) {
				return false
			}
			c = e.values[c].next
		}
		return true
	case map[string]any:
		if v.kind != kObject || int(v.count) != len(want) {
			return false
		}
		for c := v.first; c != none; c = e.values[c].next {
			item, ok := want[string(e.values[c].name)]
			if !ok || !e.equal(c, item) {
				return false
			}
		}
		return true
	}
	return false
}

// distinct reports whether no two items of an array are equal.
func (e *eval) distinct(at int32) bool {
	known := make(map[string]bool, e.values[at].count)
	var key []byte
	for c := e.values[at].first; c != none; c = e.values[c].next {
		if key = e.appendKey(key[:0], c); !e.spend(len(key) + 20) {
			return false
		}
		if known[string(key)] {
			return false
		}
		known[string(key)] = true
	}
	return true
}

// appendKey writes a value so that equal values, and only they, are written alike.
func (e *eval) appendKey(dst []byte, at int32) []byte {
	v := &e.values[at]
	switch v.kind {
	case kNumber:
		if n, ok := smallInt(v.raw); ok && n != 0 {
			return append(append(dst, v.raw...), ';')
		}
		e.spend(len(v.raw) * 10)
		return append(append(dst, ratOf(v.raw).RatString()...), ';')
	case kString:
		return appendText(dst, e.text(v))
	case kArray:
		dst = append(dst, '[')
		for c := v.first; c != none; c = e.values[c].next {
			dst = e.appendKey(dst, c)
		}
		return append(dst, ']')
	case kObject:
		members := make([]int32, 0, v.count)
		for c := v.first; c != none; c = e.values[c].next {
			members = append(members, c)
		}
		slices.SortFunc(members, func(a, b int32) int {
			return strings.Compare(string(e.values[a].name), string(e.values[b].name))
		})
		dst = append(dst, '{')
		for _, c := range members {
			dst = e.appendKey(appendText(dst, e.values[c].name), c)
		}
		return append(dst, '}')
	}
	return append(dst, v.raw[0]) // null, true, false
}

// appendText writes a string with its quotes doubled, so that where it ends is plain.
func appendText(dst, text []byte) []byte {
	dst = append(dst, '"')
	for _, c := range text {
		if dst = append(dst, c); c == '"' {
			dst = append(dst, '"')
		}
	}
	return append(dst, '"', ';')
}
