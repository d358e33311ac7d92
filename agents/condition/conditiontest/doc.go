// Package conditiontest has the test cases for every evaluator of the
// conditions of AAIF documents: the draft's truth rules (Condition Expressions)
// for each language, and expressions that must fail.
//
//	conditiontest.Run(t, func(lang, expr, data string) (bool, error) { … })
//
// The languages' own test suites are not repeated here; docs/conditions.md says
// how to run them.
package conditiontest
