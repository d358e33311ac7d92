package schema

import "slices"

// silently calls ask without collecting problems.
func (e *eval) silently(ask func() bool) bool {
	collect := e.collect
	e.collect = false
	ok := ask()
	e.collect = collect
	return ok
}

// inPlace checks the value against a subschema of r. If it conforms, the children that
// the subschema has evaluated count as evaluated for r.
func (e *eval) inPlace(sub *rule, at int32, marks seen) bool {
	if marks == nil {
		return e.check(sub, at, nil)
	}
	if !e.spend(2 * len(marks)) {
		return false
	}
	own := make(seen, len(marks))
	if !e.check(sub, at, own) {
		return false
	}
	marks.add(own)
	return true
}

// checkInPlace checks all keywords that apply subschemas to the same value.
func (e *eval) checkInPlace(r *rule, at int32, marks seen) bool {
	ok := r.ref == nil || e.inPlace(r.ref, at, marks)
	if !ok && !e.collect {
		return false
	}
	for _, sub := range r.allOf {
		if ok = e.inPlace(sub, at, marks) && ok; !ok && !e.collect {
			return false
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
		if ok = (branch == nil || e.inPlace(branch, at, marks)) && ok; !ok && !e.collect {
			return false
		}
	}
	for _, d := range r.dependent {
		v := &e.values[at]
		if v.kind != kObject {
			break
		}
		if !e.spend(int(v.count)) {
			return false
		}
		if ok = (e.member(v, d.name) == none || e.inPlace(d.rule, at, marks)) && ok; !ok && !e.collect {
			return false
		}
	}
	return ok
}

// alternatives counts the rules that the value conforms to. If there is none, it records
// a problem and those of the alternative that came nearest; with exactlyOne, two matches
// are a problem, too.
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
			// If no annotations are collected, one match is enough for anyOf.
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
			if e.collect && len(e.problems) < e.most {
				e.problems = append(e.problems, p)
			}
		}
	case matched == 2 && exactlyOne:
		e.fail(at, keyword, "fits more than one alternative, exactly one must fit")
	}
	return matched
}

// nearer reports whether an alternative that failed with the problems mine is more
// informative than the best so far: a wrong type is the least informative.
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
