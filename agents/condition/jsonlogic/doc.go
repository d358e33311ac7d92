// Package jsonlogic evaluates JsonLogic rules (jsonlogic.com), as the reference
// implementation in JavaScript does.
//
//	p, err := jsonlogic.Compile([]byte(`{">": [{"var": "input.amount"}, 100]}`))
//	ok, err := p.Eval(budget, value)
//
// A rule is an object with one member, whose name is the operator. The
// operators are those of the reference: var, missing, missing_some, if (and
// ?:), ==, ===, !=, !==, !, !!, or, and, >, >=, <, <=, max, min, +, -, *, /, %,
// map, filter, reduce, all, none, some, merge, in, cat, substr and log, which
// returns its argument and logs nothing. Any other operator in a rule is an
// error of Compile; so is a rule nested deeper than 100.
//
// Coercion is JavaScript's: 1 == "1" holds, "3" + 4 is 7, and the text of an
// array is its elements, joined by commas. Properties of JavaScript's own
// objects, such as an array's length, do not exist.
//
// The package has its own evaluator because a rule may be a stranger's program:
// {"reduce": …} that doubles a list in each step exceeds any memory in forty
// steps, and no existing evaluator can be stopped. This one spends a
// [limit.Budget] for every step, element and text that it makes.
//
// A Program is safe for concurrent use.
package jsonlogic
