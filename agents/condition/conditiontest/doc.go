// Package conditiontest has the cases that whatever evaluates the conditions of
// AAIF documents must pass: the draft's truth rules (Condition Expressions),
// language by language, and what must be an error.
//
//	conditiontest.Run(t, func(lang, expr, data string) (bool, error) { … })
//
// The languages have suites of their own, which are not repeated here;
// docs/conditions.md says how to run them.
package conditiontest
