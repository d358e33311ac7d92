// Package review is shared by the code reviewer and the demo of aeemesh. It has findings, functions
// that read files below a folder, and tools whose checks need no syntax tree.
//
//	tools := review.Tools("/srv/checkout", review.Checks{}) // what may be read, and nothing else
//	result, err := review.Call(ctx, tools, "check_code", json.RawMessage(`{"path": "."}`))
//
// [Team] is the code-review team of the demo. [WriteSample] writes a small package with deliberate
// faults, so that the demo works in any folder.
//
// # Tools
//
//	check_format   the layout of the code
//	check_code     mistakes that compile
//	find_secrets   texts in the form of credentials, in Go and configuration files
//	summarize      sorts and counts findings, and describes them
//	grade          the overall severity of findings
//	merge_reviews  merges the reviews of a team
//
// A finding is {file, line, column, rule, severity, message}. Messages quote
// names, never literals or lines: no tool repeats a secret that it finds.
// find_secrets shows a few leading characters of each.
//
// [Checks] has the implementations of check_format and check_code. The program
// examples/code-reviewer sets gofmt and its rules with type information. The defaults are
// [CheckLayout] and [CheckTokens], which read tokens (go/scanner) and know no types, so that a
// program that links them stays small:
//
//	layout           blanks where gofmt has none, or none where it has one
//	copied-lock      a method's receiver is a copy of a struct with a lock
//	defer-in-loop    deferred calls pile up until the function returns
//	unreachable      a statement after a return
//	lost-cancel      a context's cancel function is thrown away
//	self-assignment  x = x
//
// # Confinement and limits
//
// Paths are relative to the operator's root; neither ".." nor a symbolic link leads out of it, and
// links below the given path are not followed. Below the given path, vendor, testdata, node_modules
// and names that begin with a dot or an underscore are skipped. A call reads at most 2000 files of
// 1 MiB each and 32 MiB together, and reports at most 500 findings; the result says if there were
// more.
//
// Tools are safe for concurrent use, and safe to repeat: they only read.
package review
