// Package program is a function tool backed by a program that the operator
// names. The command never comes from a document.
//
//	t, err := program.New(program.Config{
//		Definition: tool.Definition{Name: "lint", Description: "Lints a file.", Parameters: schema},
//		Command:    []string{"/usr/local/bin/lint-tool", "--json"},
//		Dir:        "/srv/checkout",
//		Env:        []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"},
//		Log:        logger,
//	})
//
// # The contract with the program
//
// Each call starts the program once, with no shell between. It reads its
// arguments, one JSON value, from standard input, which then ends. It writes
// its result, one JSON value, to standard output, and exits with status 0. With
// any other status the call has failed; if standard output then holds
// {"error": "words"}, these words are what the model is told. Standard error is
// for people: its last part goes to the log, never to the model.
//
// The program gets the environment in Config.Env and nothing else, but for the
// idempotency key of the call as AEEMESH_IDEMPOTENCY_KEY: the same when a call
// is repeated, because a worker died while it ran; see [tool.KeyFrom]. When the
// call's context is done, or the program writes more than it may, it is killed
// with its whole process group: a child that it left behind holding standard
// output is killed as well. On systems without process groups only the program
// itself is killed.
//
// # Concurrency and limits
//
// Calls run side by side, each in a process of its own; bound their number
// where you call. A call returns only after its process has gone. Put
// tool.Guard around the tool for schemas and a time limit.
package program
