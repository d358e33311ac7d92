package schema

import "slices"

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
