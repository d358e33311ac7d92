// Command code-reviewer provides the tools of an agent that reviews Go code, agent.yaml: as an MCP
// server on standard input and output, or as a program that makes one call of one tool.
//
//	aeemesh worker examples/code-reviewer/agent.yaml --mcp reviewer='go run ./examples/code-reviewer --root .'
//
// For permanent use, build it first:
//
//	go build -o code-reviewer ./examples/code-reviewer
//	aeemesh worker agent.yaml --mcp reviewer='./code-reviewer --root /srv/checkout'
//
// With --tool NAME it reads the arguments of one call from standard input, writes the result and
// exits, as a program behind a function tool must:
//
//	aeemesh worker logic.yaml --tool check_code='./code-reviewer --root . --tool check_code' \
//	  --tool grade='./code-reviewer --tool grade'
//
// The tools, their limits and the files that they may read are those of package review. This
// program uses gofmt for check_format, and rules with type information for check_code:
//
//	ignored-error     a call's error is ignored
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
// They need no Go installation and no network. Types of the standard library come from a built-in
// excerpt (stubs.txtar), and a rule reports nothing about types that it does not know.
package main
