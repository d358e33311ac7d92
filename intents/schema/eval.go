package schema

import (
	"fmt"
	"math"
	"sync"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Limits of one validation.
const (
	maxValues = envelope.DefaultMaxValues // JSON values of a document
	maxWork   = 50_000_000                // steps, see eval.spend; about a second at the very worst
	maxEval   = 4_000                     // nested rules
)

// An eval validates one document against one schema, in at most two passes. The first
// pass stops at the first problem; it is enough for a valid document. The second pass
// collects the problems of an invalid one.
type eval struct {
	tree
	examines  bool  // for Examine: formats are annotations, pointers are whole, problems have places
	most      int   // problems to collect
	rule      *rule // the rule that is being checked
	collect   bool
	problems  []Problem
	truncated bool
	work      int // steps left
	depth     int
	annotates bool
}

var evals = sync.Pool{New: func() any { return new(eval) }}

// validate returns the document's problems.
func (s *Schema) validate(doc []byte) (problems []Problem, truncated bool) {
	e := evals.Get().(*eval)
	e.examines, e.anyNumber, e.most = false, false, MaxProblems
	return e.validate(s, doc, maxValues)
}

func (e *eval) validate(s *Schema, doc []byte, values int) (problems []Problem, truncated bool) {
	defer func() {
		e.release()
		e.problems, e.rule = nil, nil
		if cap(e.values) <= 4096 { // do not keep huge trees in the pool
			evals.Put(e)
		}
	}()
	if p := e.parse(doc, maxDepth, values); p != nil {
		return []Problem{*p}, false
	}
	if ok, within := e.run(s, false); ok && within {
		return nil, false
	} else if within {
		_, within = e.run(s, true)
		if within || e.examines && len(e.problems) > 0 {
			return e.problems, e.truncated || !within
		}
	}
	return []Problem{{Keyword: "limit", Message: "takes too much work to check against its schema"}}, false
}

// run checks the root value against the schema. within is false if the work limit was
// exceeded; then ok has no meaning.
func (e *eval) run(s *Schema, collect bool) (ok, within bool) {
	e.collect, e.annotates = collect, s.annotates
	e.problems, e.truncated = nil, false
	e.work, e.depth = maxWork, 0
	ok = e.check(s.root, 0, nil)
	return ok, e.work >= 0
}

// spend subtracts steps from the work limit. One step is some 10 ns; checking a value
// against a rule is ten steps, and all work that grows with the document is counted.
func (e *eval) spend(steps int) bool {
	e.work -= steps
	return e.work >= 0
}

// fail records a problem if problems are collected. It returns whether to look for more.
func (e *eval) fail(at int32, keyword, format string, args ...any) bool {
	if !e.collect {
		return false
	}
	if len(e.problems) >= e.most {
		e.truncated = true
		return false
	}
	p := Problem{Keyword: keyword, Message: fmt.Sprintf(format, args...)}
	if !e.examines {
		p.Pointer = e.pointer(at)
	} else if p.Pointer, p.Place = e.pointerUpTo(at, math.MaxInt), e.rule.place; !e.spend(len(p.Pointer)) {
		return false
	}
	e.problems = append(e.problems, p)
	return true
}

// named is a name that is quoted only when a message is formatted.
type named string

func (n named) String() string { return quoted(string(n)) }

// seen marks the children of a value that a rule has evaluated, for the unevaluated keywords; nil
// if the schema has none of these keywords.
type seen []bool

func (s seen) mark(i int32) {
	if s != nil {
		s[i] = true
	}
}

func (s seen) add(other seen) {
	for i, m := range other {
		s[i] = s[i] || m
	}
}

// check checks the value at index at against r. All check functions follow the same
// pattern: after a problem they continue only while problems are collected.
func (e *eval) check(r *rule, at int32, marks seen) bool {
	if e.depth >= maxEval || !e.spend(10) {
		e.work = -1
		return false
	}
	outer := e.rule
	e.depth, e.rule = e.depth+1, r
	defer func() { e.depth, e.rule = e.depth-1, outer }()
	if r.never {
		e.fail(at, "false", "is not allowed")
		return false
	}
	v := &e.values[at]
	if r.types != 0 && r.types&v.kind == 0 && !(v.kind == kNumber && r.types&kInteger != 0 && isInteger(v.raw)) {
		got := v.kind.String()
		if r.types&kInteger != 0 && v.kind == kNumber {
			got = "a number with a fraction"
		}
		e.fail(at, "type", "must be %s, not %s", r.types, got)
		return false
	}
	if e.annotates && marks == nil && v.count > 0 {
		marks = make(seen, v.count)
		e.spend(int(v.count))
	}
	ok := e.checkValue(r, at)
	if !ok && !e.collect {
		return false
	}
	switch v.kind {
	case kObject:
		ok = e.checkObject(r, at, marks) && ok
	case kArray:
		ok = e.checkArray(r, at, marks) && ok
	case kString:
		ok = e.checkString(r, at) && ok
	case kNumber:
		ok = e.checkNumber(r, at) && ok
	}
	if !ok && !e.collect {
		return false
	}
	ok = e.checkInPlace(r, at, marks) && ok
	if !ok && !e.collect {
		return false
	}
	return e.checkUnevaluated(r, at, marks) && ok
}

// checkValue checks const, enum and format.
func (e *eval) checkValue(r *rule, at int32) bool {
	ok := true
	if r.constant != nil && !e.equal(at, *r.constant) {
		if ok = false; !e.fail(at, "const", "%s", r.oneOfMsg) {
			return false
		}
	}
	if len(r.enum) > 0 {
		found := false
		for _, allowed := range r.enum {
			if found = e.equal(at, allowed); found {
				break
			}
		}
		if !found {
			if ok = false; !e.fail(at, "enum", "%s", r.oneOfMsg) {
				return false
			}
		}
	}
	if v := &e.values[at]; r.formatOK != nil && v.kind == kString && !e.examines {
		e.spend(len(v.raw))
		if !r.formatOK(string(e.text(v))) {
			e.fail(at, "format", "is not a %s", clip.Text(r.format, 40))
			return false
		}
	}
	return ok
}

func (e *eval) checkString(r *rule, at int32) bool {
	if r.minLen < 0 && r.maxLen < 0 && r.pattern == nil {
		return true
	}
	ok, text := true, e.text(&e.values[at])
	if r.minLen >= 0 || r.maxLen >= 0 {
		e.spend(len(text) / 8)
		ok = e.between(at, utf8.RuneCount(text), r.minLen, r.maxLen, "minLength", "maxLength", "characters")
	}
	if r.pattern != nil {
		if !e.spend(len(text) * r.patternSize / 4) {
			return false
		}
		if !r.pattern.Match(text) {
			ok = false
			e.fail(at, "pattern", "does not match %s", named(r.pattern.String()))
		}
	}
	return ok
}

func (e *eval) checkNumber(r *rule, at int32) bool {
	if r.minimum == nil && r.maximum == nil && r.above == nil && r.below == nil && r.step == nil {
		return true
	}
	ok, raw := true, e.values[at].raw
	for _, b := range [...]struct {
		bound   *bound
		keyword string
		words   string
		broken  func(c int) bool
	}{
		{r.minimum, "minimum", "must be at least %s", func(c int) bool { return c < 0 }},
		{r.maximum, "maximum", "must be at most %s", func(c int) bool { return c > 0 }},
		{r.above, "exclusiveMinimum", "must be above %s", func(c int) bool { return c <= 0 }},
		{r.below, "exclusiveMaximum", "must be below %s", func(c int) bool { return c >= 0 }},
	} {
		if b.bound == nil {
			continue
		}
		e.spend(len(raw) * 10)
		if b.broken(b.bound.compare(raw)) {
			ok = false
			e.fail(at, b.keyword, b.words, b.bound)
		}
	}
	if r.step != nil {
		e.spend(len(raw) * 10)
		if !r.step.divides(raw) {
			ok = false
			e.fail(at, "multipleOf", "must be a multiple of %s", r.step)
		}
	}
	return ok
}

// checkUnevaluated runs last: it checks the children that no other rule has evaluated.
func (e *eval) checkUnevaluated(r *rule, at int32, marks seen) bool {
	v := &e.values[at]
	sub, keyword := r.unevaluated, "unevaluatedProperties"
	if v.kind == kArray {
		sub, keyword = r.unevaluatedAt, "unevaluatedItems"
	}
	if sub == nil || v.kind&(kArray|kObject) == 0 {
		return true
	}
	ok := true
	for c := v.first; c != none; c = e.values[c].next {
		if marks[e.values[c].index] {
			continue
		}
		if sub.never {
			if ok = false; !e.fail(c, keyword, "is not allowed here") {
				return false
			}
		} else if ok = e.check(sub, c, nil) && ok; !ok && !e.collect {
			return false
		}
		marks.mark(e.values[c].index)
	}
	return ok
}
