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
// All output passes through terminal.go, which separates data (stdout) from
// messages for people (stderr), and help.go, which formats --help. Errors and
// their hints are in errors.go. Flags get their values in flags.go: from the
// command line, else from the environment; only this package reads the
// environment. From them connect.go and context.go make a NATS connection,
// signing.go the keys, and otel.go the exporters of traces and metrics; node.go
// makes a mesh.Node of all three. daemon.go is what "worker" runs: several
// agents on one node, from start to drained. Every other file is one command.
//
// # Conventions
//
// Exit 0 is success, 1 failure, 2 wrong usage. With --json every command that
// prints data prints one JSON object, or one a line. Colour and progress appear
// on a terminal only, and NO_COLOR is honoured.
package main
