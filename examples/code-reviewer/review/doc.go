// Package review is what the code reviewer and the demo of aeemesh share: findings,
// the reading of files below a folder, and tools whose checks need no syntax tree.
//
//	tools := review.Tools("/srv/checkout", review.Checks{}) // what may be read, and nothing else
//	result, err := review.Call(ctx, tools, "check_code", json.RawMessage(`{"path": "."}`))
//
// [Team] is the code-review team of the demo, and [WriteSample] writes a small
// package with planted faults, so that the demo works from any folder.
//
// # Tools
//
//	check_format   how the code is laid out
//	check_code     mistakes that compile
//	find_secrets   shapes of credentials in Go and configuration files
//	summarize      sorts findings, counts them, and puts them into words
//	grade          how grave findings are together
//	merge_reviews  one review of a team's
//
// A finding is {file, line, column, rule, severity, message}. Messages quote
// names, never literals or lines: no tool repeats a secret that it finds.
// find_secrets shows a few leading characters of each.
//
// [Checks] says what stands behind check_format and check_code. The program
// examples/code-reviewer puts gofmt and its typed rules there. Without, they are
// [CheckLayout] and [CheckTokens], which read tokens (go/scanner) and know no types,
// so that a program that links them stays small:
//
//	layout           blanks where gofmt has none, or none where it has one
//	copied-lock      a method's receiver is a copy of a struct with a lock
//	defer-in-loop    deferred calls pile up until the function returns
//	unreachable      a statement behind a return
//	lost-cancel      a context's cancel function is thrown away
//	self-assignment  x = x
//
// # Confinement and limits
//
// Paths are relative to the root that the operator gave; neither ".." nor a
// symbolic link leads out of it, and links found on the way are not followed.
// Below the given path, vendor, testdata, node_modules and names that begin
// with a dot or an underscore are skipped. At most 2000 files of 1 MiB each and
// 32 MiB together are read a call, and 500 findings reported; the result says
// when there was more.
//
// Tools are safe for concurrent use, and safe to repeat: they only read.
package review
