// Command aeemesh turns any NATS server into a mesh of AI agents: it starts a
// server for those who have none, hosts agents, sends them tasks, watches the
// traffic, and helps with keys, documents and permissions.
//
//	aeemesh up                                  # a NATS server with JetStream
//	aeemesh worker reviewer.yaml                # an agent on subject agent.reviewer
//	aeemesh send agent.reviewer '{"path":"."}'  # a signed task, and its result
//	aeemesh watch                               # what goes on
//
// # From the bottom up
//
// Everything that goes to the terminal passes terminal.go, which knows what is
// data (stdout) and what are words for people (stderr), and help.go, which
// lays out --help. Errors and their hints are in errors.go. Flags get their
// values in flags.go: from the command line, else from the environment; only
// this package reads the environment. connect.go and context.go make a NATS
// connection of them, signing.go the keys, otel.go the exporters of traces and
// metrics, node.go a mesh.Node of all three. daemon.go is what "worker" runs:
// several agents on one node, from start to drained. Every other file is one
// command.
//
// # Conventions
//
// Exit 0 is success, 1 failure, 2 wrong usage. With --json every command that
// prints data prints one JSON object, or one a line. Colour and progress
// appear on a terminal only, and NO_COLOR is honoured.
package main
