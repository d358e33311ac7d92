// Package jmespath evaluates JMESPath expressions, and says whether the result
// is truthy.
//
//	p, err := jmespath.Compile("items[?price > `10`].sku | length(@) > `2`")
//	ok, err := p.Eval(budget, value)
//
// The language is that of jmespath.org with the additions of the JMESPath
// community: arithmetic, let, the root $, and more functions. Empty arrays,
// objects and texts, false and null are falsy; 0 is not. Unknown functions and
// wrong numbers of arguments are errors of Compile; wrong types of arguments
// are errors of Eval.
//
// # Parser and evaluator
//
// The parser and most functions are jmespath-community/go-jmespath's. Its
// evaluator is not used, for three reasons. It cannot be stopped, and an
// expression may come from a stranger, such as [@,@][]|[@,@][]|…, which doubles
// a list with every nine bytes. It visits the members of an object in random
// order, so that *|[0] has a random result. Its sort_by sorts the caller's own
// data. The evaluator of this package spends a [limit.Budget] for each step and
// for the input and output of functions, and visits members in the order of
// their names.
//
// A Program is safe for concurrent use.
package jmespath
