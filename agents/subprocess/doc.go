// Package subprocess has what all programs have in common that a worker starts:
// function tools, programs that do an agent's work, MCP servers, vaults.
//
//	cmd := exec.Command("/usr/local/bin/lint", "--json")
//	cmd.Env = subprocess.Env([]string{"LINT_HOME", "CI=true"}, lookup)
//	group, err := subprocess.Start(cmd)
//	group.Exited()          // the program has ended; its number is still its own
//	group.Kill()            // and what it has left behind
//	err = group.Wait()
//
// # Environment
//
// A program gets the variables of [BaseEnv] and those that the operator lists.
// The worker's environment holds API keys, tokens and keys of the mesh, which
// are no business of most programs.
//
// # Process groups
//
// A program leads a process group of its own: an interrupt from the terminal
// reaches the worker alone, which drains first, and the program ends together
// with its children. A group is signalled by its leader's process id, which the
// system may give to another process once the leader has been waited for. A
// [Group] sends no signal after that.
//
// Programs run with the rights of the worker. There is no sandbox.
package subprocess
