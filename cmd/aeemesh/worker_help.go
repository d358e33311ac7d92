package main

import (
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/spf13/pflag"
)

// workerMore is the part of a worker's help that --help-all prints.
const workerMore = `A program of --exec is started once, reads one task envelope a line on standard
input, and writes one JSON object a line, {"type": "stream"|"result"|"error",
"reply_to": "<task id>", "payload": {…}}.

A server that is away is waited for; with --timeout the worker fails when that
is over. So are JetStream and its streams, for durable tasks (--durable).

The first SIGTERM, SIGHUP or Ctrl-C drains: what has begun is finished, the rest
is handed back. A second SIGTERM or Ctrl-C ends at once. SIGHUP reloads nothing:
keys are read again by themselves, other settings take a new worker. The exit
status is 1 if work was lost.`

// workerCommon are the flags that "worker --help" shows.
var workerCommon = []commonFlag{
	{"as", "serve as this `entity` instead of the name's"},
	{"exec", "let this `command` do the work"},
	{"tool", "`NAME=COMMAND` behind a function tool; repeatable"},
	{"mcp", "`NAME=COMMAND` (or URL) of an MCP server"},
	{"allow", "`HOST` that documents' tools may reach; repeatable"},
	{"config", "`FILE` (YAML) of flags, and what agents may have"},
	{"concurrency", "tasks at once (default the document's, else 1)"},
	{"durable", "durable tasks: on, off or auto"},
	{"drain", "time to finish what has begun"},
	{"register", "register the documents, so that teams find them"},
	{"health-listen", "`address` of /healthz, /readyz and /metrics"},
	{"sign", "`kid` of the key to sign with"},
	{"signatures", "off, required or verify-if-present (default)"},
	{"nats", "server `URLs`, comma-separated"},
	{"context", "NATS `context` to use"},
	{"creds", "NATS credentials `file`"},
	{"log-level", "debug, info, warn or error"},
	{"json", "print data as JSON"},
}

// groupWorkerFlags sorts a worker's own flags into the sections of --help-all.
func groupWorkerFlags(flags *pflag.FlagSet) {
	session.InGroup(flags, "Agents", "as", "exec", "concurrency", "queue", "drain", "max-timeout", "intents", "refuse-unknown", "templates", "unknown-keys", "learn", "context-tokens", "api-key-env",
		"allow-deprecated", "accept-unhonoured", "register")
	session.InGroup(flags, "Tools, and what agents may have", "config", "tool", "require-tools", "mcp", "allow", "allow-private", "allow-file", "allow-env", "program-env")
	session.InGroup(flags, "Senders", "known", "rate", "burst", "unknown-rate", "unknown-burst", "urgent-rate", "cap", "unknown-cap")
	session.InGroup(flags, "Durable tasks", "durable", "work-queue", "lost-call", "lease", "max-durable-timeout", "no-create", "keep-tasks", "fenced", "operator", "state-key", "accept-clear-state")
	session.InGroup(flags, "Other platforms", "platform", "handoff-to", "handoff-ca", "handoff-cert", "handoff-key", "handoff-bearer")
	session.InGroup(flags, "Watching it", "task-events", "journal", "heartbeat", "telemetry-content", "health-listen", "machine")
}
