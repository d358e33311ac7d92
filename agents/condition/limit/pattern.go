package limit

import (
	"errors"
	"math"
	"regexp"
	"regexp/syntax"
)

// The bounds of regular expressions.
const (
	maxPattern = 4 << 10 // bytes
	maxProgram = 20_000  // instructions, about
)

// ErrPattern is the error of a regular expression that is too large: a few
// kilobytes of x{1000} compile to hundreds of megabytes.
var ErrPattern = errors.New("the regular expression is too large")

// Pattern is a compiled regular expression. Matching is linear in the text: Go's
// matcher does not go back.
type Pattern struct {
	re   *regexp.Regexp
	size int
}

// Compile compiles a regular expression in Go's syntax, RE2's, within bounds.
func Compile(text string) (*Pattern, error) {
	if len(text) > maxPattern {
		return nil, ErrPattern
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := program(parsed)
	if size > maxProgram {
		return nil, ErrPattern
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &Pattern{re, size}, nil
}

// Match says whether the text has a match.
func (p *Pattern) Match(b *Budget, text string) bool {
	b.Spend(int(min(p.Cost(text), math.MaxInt32)))
	return p.re.MatchString(text)
}

// MatchString is Match without a budget: see Cost.
func (p *Pattern) MatchString(text string) bool { return p.re.MatchString(text) }

// Cost is what matching the text costs, about.
func (p *Pattern) Cost(text string) Cost { return 1 + Cost(len(text)+1)*Cost(p.size)/8 }

// program is about how many instructions a parsed expression compiles to; once
// they are too many, it is any number above.
func program(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		if n += program(sub); n > maxProgram {
			return n
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}
