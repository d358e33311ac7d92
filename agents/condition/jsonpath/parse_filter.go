package jsonpath

import (
	"math"
	"strconv"
	"strings"
)

func (p *parser) logicalExpr() logical {
	p.down()
	defer func() { p.depth-- }()
	list := or{p.logicalAnd()}
	for p.operator("||") {
		list = append(list, p.logicalAnd())
	}
	if len(list) == 1 {
		return list[0]
	}
	return list
}

func (p *parser) logicalAnd() logical {
	list := and{p.basicExpr()}
	for p.operator("&&") {
		list = append(list, p.basicExpr())
	}
	if len(list) == 1 {
		return list[0]
	}
	return list
}

// operator reads an operator with the space around it.
func (p *parser) operator(op string) bool {
	before := p.pos
	p.space()
	if p.accept(op) {
		p.space()
		return true
	}
	p.pos = before
	return false
}

func (p *parser) basicExpr() logical {
	if p.accept("!") {
		p.space()
		if p.peek() == '(' {
			return not{p.paren()}
		}
		start := p.pos
		return not{p.testable(p.operand(), start)}
	}
	if p.peek() == '(' {
		return p.paren()
	}
	start := p.pos
	left := p.operand()
	for _, op := range []string{"==", "!=", "<=", ">=", "<", ">"} {
		if p.operator(op) {
			x := comparison{left: p.comparable(left, start), op: op}
			start = p.pos
			x.right = p.comparable(p.operand(), start)
			return x
		}
	}
	return p.testable(left, start)
}

func (p *parser) paren() logical {
	p.expect("(")
	p.space()
	x := p.logicalExpr()
	p.space()
	p.expect(")")
	return x
}

// operand reads a literal, a query or a function call. It returns a literal, a
// *query, or a function of type valued or logical.
func (p *parser) operand() any {
	switch c := p.peek(); {
	case c == '@' || c == '$':
		p.pos++
		return &query{relative: c == '@', segments: p.segments()}
	case c == '\'' || c == '"':
		return literal{p.stringLiteral()}
	case c == '-' || c >= '0' && c <= '9':
		return literal{p.number()}
	case c >= 'a' && c <= 'z':
		return p.word()
	}
	p.fail("an expression is expected, not %s", p.here())
	return nil
}

// comparable checks that x may be an operand of a comparison.
func (p *parser) comparable(x any, at int) valued {
	switch x := x.(type) {
	case valued:
		return x
	case *query:
		if x.singular() {
			return singular{x}
		}
		p.pos = at
		p.fail("only a query that selects at most one node can be compared")
	}
	p.pos = at
	p.fail("the function's result cannot be compared")
	return nil
}

// testable checks that x may be a test by itself.
func (p *parser) testable(x any, at int) logical {
	switch x := x.(type) {
	case *query:
		return existence{x}
	case logical:
		return x
	}
	p.pos = at
	p.fail("a value alone is no test: compare it")
	return nil
}

func (p *parser) number() float64 {
	start := p.pos
	p.accept("-")
	whole := p.digits()
	good := whole != "" && (len(whole) == 1 || whole[0] != '0')
	if p.accept(".") {
		good = p.digits() != "" && good
	}
	if p.accept("e") || p.accept("E") {
		if !p.accept("-") {
			p.accept("+")
		}
		good = p.digits() != "" && good
	}
	n, _ := strconv.ParseFloat(p.text[start:p.pos], 64)
	if !good || math.IsInf(n, 0) {
		p.pos = start
		p.fail("this is no number of JSON")
	}
	return n
}

// word reads true, false, null or a function call.
func (p *parser) word() any {
	start := p.pos
	for c := p.peek(); c >= 'a' && c <= 'z' || c == '_' || c >= '0' && c <= '9'; c = p.peek() {
		p.pos++
	}
	word := p.text[start:p.pos]
	if p.peek() == '(' {
		return p.function(word, start)
	}
	switch word {
	case "true":
		return literal{true}
	case "false":
		return literal{false}
	case "null":
		return literal{nil}
	}
	p.pos = start
	p.fail("%q means nothing here: texts are in quotes", word)
	return nil
}

// function reads a call of one of the five functions, and checks its types (RFC
// 9535, section 2.4.3).
func (p *parser) function(word string, start int) any {
	p.down()
	defer func() { p.depth-- }()
	args := p.arguments()
	want := map[string]int{"length": 1, "count": 1, "value": 1, "match": 2, "search": 2}[word]
	switch {
	case want == 0:
		p.pos = start
		p.fail("there is no function %q", word)
	case len(args) != want:
		p.pos = start
		p.fail("%s takes %s", word, strings.Repeat("an argument", 2-want)+strings.Repeat("two arguments", want-1))
	}
	nodes := func(x any) *query {
		q, ok := x.(*query)
		if !ok {
			p.pos = start
			p.fail("%s takes a query", word)
		}
		return q
	}
	switch word {
	case "length":
		return lengthOf{p.comparable(args[0], start)}
	case "count":
		return countOf{nodes(args[0])}
	case "value":
		return valueOf{nodes(args[0])}
	}
	f := regex{text: p.comparable(args[0], start), pattern: p.comparable(args[1], start), whole: word == "match"}
	if l, ok := f.pattern.(literal); ok {
		f.fixed = &iregexp{}
		if source, ok := l.v.(string); ok {
			f.fixed = compilePattern(source, f.whole)
		}
	}
	return f
}

func (p *parser) arguments() (args []any) {
	p.expect("(")
	p.space()
	if p.accept(")") {
		return nil
	}
	for {
		args = append(args, p.operand())
		p.space()
		if !p.accept(",") {
			p.expect(")")
			return args
		}
		p.space()
	}
}
