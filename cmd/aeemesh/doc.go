// Command aeemesh turns any NATS server into a mesh of AI agents: it starts a
// server if needed, hosts agents, sends them tasks, shows the traffic, and
// manages keys, documents and permissions.
//
//	aeemesh up                                  # a NATS server with JetStream
//	aeemesh worker reviewer.yaml                # an agent on subject agent.reviewer
//	aeemesh send agent.reviewer '{"path":"."}'  # a signed task, and its result
//	aeemesh watch                               # the mesh's traffic
//
// # From the bottom up
//
// Most commands have a package of their own below internal, which CONTRIBUTING.md lists from the
// bottom up: term prints, outcome has the errors and their hints, session makes a connection and a
// mesh.Node of flags and environment, and a package for each group of commands uses these. In this
// package, run.go assembles the commands and help.go formats --help. It also has the commands that
// run for long: worker.go hosts agents, up.go runs a server, handoff.go receives runs. Only this
// package reads the environment.
//
// # Conventions
//
// Exit 0 is success, 1 failure, 2 wrong usage. With --json every command that
// prints data prints one JSON object, or one a line. Colour and progress appear
// on a terminal only, and NO_COLOR is honoured.
package main
