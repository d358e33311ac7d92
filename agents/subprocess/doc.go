// Package subprocess starts and stops the programs of a worker: function tools,
// programs that do an agent's work, MCP servers, vaults.
//
//	cmd := exec.Command("/usr/local/bin/lint", "--json")
//	cmd.Env = subprocess.Env([]string{"LINT_HOME", "CI=true"}, lookup)
//	group, err := subprocess.Start(cmd)
//	group.Exited()          // the program has ended; its process id is not reused yet
//	group.Kill()            // processes that it has left behind
//	err = group.Wait()
//
// # Environment
//
// A program gets the variables of [BaseEnv] and those that the operator lists.
// The worker's environment holds API keys, tokens and keys of the mesh, which
// most programs must not see.
//
// # Process groups
//
// A program leads its own process group. An interrupt from the terminal reaches
// only the worker, which drains first, and the program is ended together with
// its children. A group is signalled by its leader's process id, which the
// system may reuse once the leader has been waited for. A [Group] sends no
// signal after that.
//
// Programs run with the rights of the worker. There is no sandbox.
package subprocess
