// Package jmespath evaluates JMESPath expressions, and says whether the result
// is truthy.
//
//	p, err := jmespath.Compile("items[?price > `10`].sku | length(@) > `2`")
//	ok, err := p.Eval(budget, value)
//
// The language is that of jmespath.org with the additions of the JMESPath
// community: arithmetic, let, the root $, and more functions. Empty arrays,
// objects and texts, false and null are falsy; 0 is not. Functions that there
// are not, and wrong numbers of arguments, are errors of Compile; wrong types of
// arguments are errors of Eval.
//
// # Parser and evaluator
//
// The parser and most functions are jmespath-community/go-jmespath's. Its
// evaluator is not used: it cannot be stopped, and an expression is a stranger's,
// such as [@,@][]|[@,@][]|…, which doubles a list in nine bytes; it visits the
// members of an object in an order that changes from run to run, so that *|[0]
// has a result by chance; and sort_by orders the caller's own data. This one
// spends a [limit.Budget] for each step and for what functions read and make, and
// visits members in the order of their names.
//
// A Program may be used by any number of goroutines.
package jmespath
