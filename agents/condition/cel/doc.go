// Package cel evaluates conditions in the Common Expression Language (cel.dev),
// with Google's implementation.
//
//	p, err := cel.Compile(`input.amount > 100.0 && has(input.customer)`)
//	ok, err := p.Eval(ctx, limit.Cost(1e6), value)
//
// The variables of an expression are the members of the value; all are of type
// dyn. A missing variable is an error of Eval, unless the result does not
// depend on it. The numbers of JSON are doubles, as CEL maps them: write
// input.n + 1.0, or int(input.n) + 1; comparisons take both. The language is
// CEL's standard one, without the extensions of some hosts, so that an
// expression means the same everywhere.
//
// Compile checks types as far as they are known: an expression that cannot be
// boolean is refused; an expression that turns out not to be boolean is an
// error of Eval.
//
// An evaluation is bounded by CEL's own cost, which is deterministic, and ends
// with its context. The macros visit the members of an object in the order of
// their names.
//
// A Program is safe for concurrent use.
package cel
