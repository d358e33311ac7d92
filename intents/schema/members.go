package schema

import "encoding/json"

// checkObject checks all keywords about objects, except unevaluatedProperties.
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
		if ok = e.checkMember(r, c, marks) && ok; !ok && !e.collect {
			return false
		}
	}
	return ok
}

// checkNames checks the keywords that depend only on the names in an object.
func (e *eval) checkNames(r *rule, at int32) bool {
	v := &e.values[at]
	ok := e.between(at, int(v.count), r.minProps, r.maxProps, "minProperties", "maxProperties", "properties")
	for _, name := range r.required {
		if !e.spend(int(v.count)) {
			return false
		}
		if e.member(v, name) == none {
			if ok = false; !e.fail(at, "required", "lacks the property %s", named(name)) {
				return false
			}
		}
	}
	for _, d := range r.dependentNames {
		if !e.spend(int(v.count)) {
			return false
		}
		if e.member(v, d.name) == none {
			continue
		}
		for _, name := range d.required {
			if !e.spend(int(v.count)) {
				return false
			}
			if e.member(v, name) == none {
				if ok = false; !e.fail(at, "dependentRequired", "has %s and so must have %s", named(d.name), named(name)) {
					return false
				}
			}
		}
	}
	return ok
}

// between checks a count against the limits of two keywords.
func (e *eval) between(at int32, n, least, most int, minimum, maximum, things string) bool {
	under, over := n < least, most >= 0 && n > most
	if under && e.collect { // fail would allocate
		e.fail(at, minimum, "has %d %s, at least %d are required", n, things, least)
	}
	if over && e.collect {
		e.fail(at, maximum, "has %d %s, at most %d are allowed", n, things, most)
	}
	return !under && !over
}

// checkMember checks one member against all subschemas that apply to its name.
func (e *eval) checkMember(r *rule, c int32, marks seen) bool {
	v := &e.values[c]
	ok, covered := true, false
	if ok = r.names == nil || e.checkName(r.names, c); !ok && !e.collect {
		return false
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
	if covered {
		marks.mark(v.index)
	}
	return ok
}

// checkName checks a member's name against propertyNames. The name temporarily replaces
// the member in the tree, as a string value.
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

// checkArray checks all keywords about arrays, except unevaluatedItems.
func (e *eval) checkArray(r *rule, at int32, marks seen) bool {
	v := &e.values[at]
	ok := e.between(at, int(v.count), r.minItems, r.maxItems, "minItems", "maxItems", "items")
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
		if ok = e.check(sub, c, nil) && ok; !ok && !e.collect {
			return false
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
		e.fail(at, "contains", "has %d items of the required kind, at least %d are required", matched, r.minContains)
	}
	if r.maxContains >= 0 && matched > r.maxContains {
		ok = false
		e.fail(at, "maxContains", "has %d items of one kind, at most %d are allowed", matched, r.maxContains)
	}
	return ok
}
