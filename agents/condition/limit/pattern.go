package limit

import (
	"errors"
	"math"
	"regexp"
	"regexp/syntax"
)

// Limits of regular expressions.
const (
	maxPattern = 4 << 10 // bytes
	maxProgram = 20_000  // estimated instructions
)

// ErrPattern is the error of a regular expression that is too large: a few
// kilobytes of x{1000} would compile to hundreds of megabytes.
var ErrPattern = errors.New("the regular expression is too large")

// Pattern is a compiled regular expression. Matching takes time linear in the
// text: Go's matcher does not backtrack.
type Pattern struct {
	re   *regexp.Regexp
	size int
}

// Compile compiles a regular expression in Go's syntax (RE2), within the
// limits.
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

// Match reports whether the text has a match.
func (p *Pattern) Match(b *Budget, text string) bool {
	b.Spend(int(min(p.Cost(text), math.MaxInt32)))
	return p.re.MatchString(text)
}

// MatchString is Match without a budget: see Cost.
func (p *Pattern) MatchString(text string) bool { return p.re.MatchString(text) }

// Size estimates the number of instructions.
func (p *Pattern) Size() int { return p.size }

// Cost estimates the cost of matching the text.
func (p *Pattern) Cost(text string) Cost { return 1 + Cost(len(text)+1)*Cost(p.size)/8 }

// program estimates how many instructions a parsed expression compiles to.
// Above the limit the result is any larger number.
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
