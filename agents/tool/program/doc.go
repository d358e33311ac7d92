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
// Each call starts the program once, without a shell. It reads its arguments,
// one JSON value, from standard input, which then ends. It writes its result,
// one JSON value, to standard output, and exits with status 0. With any other
// status the call has failed; if standard output then holds {"error": "words"},
// the model gets this text. Standard error is for people: its last part is
// logged and never sent to the model.
//
// The program's environment is Config.Env, and AEEMESH_IDEMPOTENCY_KEY with the
// idempotency key of the call. The key is the same when a call is repeated
// after a crash of the worker; see [tool.KeyFrom]. When the program has ended,
// the call's context is done, or the program's output is too large, its whole
// process group is killed, including children that hold standard output open.
// On systems without process groups only the program itself is killed.
//
// # Concurrency and limits
//
// Concurrent calls run in separate processes; the caller must bound their
// number. A call returns only after its process has ended. Use tool.Guard for
// schemas and a time limit.
package program
