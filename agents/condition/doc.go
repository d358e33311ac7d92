// Package condition evaluates the conditions of AAIF documents (Condition
// Expressions): which subagent is chosen, when a run is handed over, which events
// start an agent, which tool calls a person approves.
//
//	p, err := condition.Compile(c, condition.Options{})    // once
//	v, err := condition.Facts{Input: payload, Task: task}.Value()
//	ok, err := p.Eval(ctx, v)                              // any number of times
//
// # The languages
//
// jsonpath holds if the query selects something, jmespath and jsonlogic if the
// result is truthy as each of them defines it, cel if it is true; always and
// never need no expression. Evaluating is deterministic: no language sees the
// clock, chance, a model or anything but the value, and none depends on the
// order in which Go visits a map.
//
// A condition that is a string is a hint for people. It is never evaluated, by
// nobody: it is unsatisfied, and [Program.Eval] says so with [ErrHint]. One in a
// language that there is not is refused by Compile with [ErrLanguage]; what
// becomes of the agent is for [aaif.Negotiate], to which [Languages] are to be
// offered.
//
// # The value
//
// All conditions are held against one kind of value, an object that [Facts]
// makes of what is known at the place: the members of the payload, and over them
// input, task, output, tool, event and state, as docs/conditions.md lists them.
//
// # Bounds
//
// Expressions and values are strangers'. The source is bounded before it is
// parsed, as are the size and depth of values before they are decoded; each
// evaluation has a cost that it cannot exceed, and a time ([Options]). An
// evaluator that panics is an error like any other. An error of Eval always comes
// with false: the condition is unsatisfied, and the error is for a warning.
// Errors name no part of the value.
//
// [Check] compiles all conditions of a document, and reports those that do not,
// with their JSON pointers.
//
// A Program and a Value may be used by any number of goroutines.
//
// # From the bottom up
//
// limit is the budget under which everything is evaluated; jsonpath, jmespath,
// jsonlogic and cel are the languages, each a package of its own that knows
// nothing of documents. This package puts them behind one door.
package condition
