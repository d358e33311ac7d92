package pattern

import (
	"regexp"
	"sync"
)

// Pattern is an expression that is compiled at its first use.
type Pattern struct {
	expr string
	once sync.Once
	re   *regexp.Regexp
}

// Of returns the pattern of an expression, which must be a constant, because a test of the
// repository compiles all of them.
func Of(expr string) *Pattern { return &Pattern{expr: expr} }

// RE returns the compiled expression. It panics if the expression is invalid.
func (p *Pattern) RE() *regexp.Regexp {
	p.once.Do(func() { p.re = regexp.MustCompile(p.expr) })
	return p.re
}
