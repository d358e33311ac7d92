// Package condition evaluates the conditions of AAIF documents (Condition
// Expressions): which subagent is chosen, when a run is delegated, which events
// start an agent, which tool calls need a person's approval.
//
//	p, err := condition.Compile(c, condition.Options{})    // once
//	v, err := condition.Facts{Input: payload, Task: task}.Value()
//	ok, err := p.Eval(ctx, v)                              // any number of times
//
// # The languages
//
// A jsonpath condition holds if the query selects a node, jmespath and
// jsonlogic if the result is truthy by the language's own definition, cel if
// the result is true. always and never need no expression. Evaluation is
// deterministic: its only input is the value, and it does not depend on the
// order in which Go visits a map.
//
// A condition that is a string is a hint for people. It is never evaluated: it
// is unsatisfied, and [Program.Eval] returns [ErrHint]. Compile refuses a
// condition in an unknown language with [ErrLanguage]; [aaif.Negotiate], given
// [Languages], decides whether the agent is hosted.
//
// # The value
//
// All conditions are evaluated on the same kind of value, an object that
// [Facts] makes: the members of the payload, overridden by input, task, output,
// tool, event and state, as docs/conditions.md lists them.
//
// # Bounds
//
// Expressions and values may come from strangers. The source is bounded before
// it is parsed, and the size and depth of values before they are decoded. Each
// evaluation is limited in cost and time ([Options]). A panic of an evaluator
// becomes an error. If Eval returns an error, it also returns false: the
// condition is unsatisfied, and callers should log a warning. Errors contain no
// part of the value.
//
// [Check] compiles all conditions of a document, and reports those that do not
// compile, with their JSON pointers.
//
// A Program and a Value are safe for concurrent use.
//
// # From the bottom up
//
// Package limit is the budget of an evaluation. jsonpath, jmespath, jsonlogic
// and cel implement the languages and know nothing of documents. This package
// is their common interface.
package condition
