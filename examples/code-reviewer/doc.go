// Package reviewer is the code reviewer of the demo: an AAIF agent on the
// offline model, in agent.yaml, and the function tools that it calls, which
// really inspect the Go files they are given.
//
//	tools := reviewer.Tools("/srv/checkout") // what the agent may read, and nothing else
//	t, err := tools.Lookup("check_code")
//	result, err := t.Call(ctx, json.RawMessage(`{"path": "."}`))
//
// [Document] is agent.yaml, and [WriteSample] writes a small package with
// planted faults, so that the demo works from any folder.
//
// # Tools
//
//	check_format  what gofmt would change, and syntax errors
//	check_code    mistakes that compile: see the table of rules below
//	find_secrets  shapes of credentials in Go and configuration files
//	summarize     sorts findings, counts them, and puts them into words
//
// A finding is {file, line, column, rule, severity, message}. Messages quote
// names, never literals or lines: no tool repeats a secret it came upon.
// find_secrets shows a few leading characters of each.
//
// The rules of check_code:
//
//	ignored-error     a call's error is dropped without a word
//	printf            a format and its arguments do not agree
//	shadowed-error    an inner err hides the outer one, which is read later
//	defer-in-loop     deferred calls pile up until the function returns
//	copied-lock       a lock is copied, and its copy guards nothing
//	unreachable       a statement that can never run
//	typed-nil         a nil pointer becomes an interface that is not nil
//	lost-cancel       a context's cancel function is thrown away
//	nil-map           a write to a map that was never made
//	string-int        string(n) is one rune, not digits
//	unmarshal-value   a decoder is given a copy, not a pointer
//	self-assignment   x = x
//	self-comparison   x == x
//
// They need no Go installation and no network. Types of the standard library
// come from a built-in excerpt (stubs.txtar), and a rule is silent about types
// that it cannot know.
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
package reviewer
