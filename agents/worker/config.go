package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// Config says what a worker hosts, and where. Only Agents is required.
type Config struct {
	// Agents are the agents to host, each under an entity of its own.
	Agents []Agent
	// Tools are Go functions ([tool.Func]) that the documents' tools of protocol
	// function may name, beside those of Options.Tools. Default none.
	Tools []tool.Tool
	// Options hold for all agents: concurrency, budget, the keys of checkpoints.
	// The worker sets As, Handler, Program, Directory and Counters, and the
	// adapters set Open, Offer, Redactor and Budget. Default of Telemetry's
	// Tracer and Meter: Node's providers; of StateKeys: the keys of Node.Durable. Default of
	// Logger: that of the Config.
	Options agents.Options
	// Adapters are the operator's configuration: models, servers, secrets,
	// endpoints, budgets. The caller closes them. Default: adapters that allow
	// documents nothing, with the models whose keys Env has, and Options' Open
	// and Budget.
	Adapters *adapters.Set
	// Env looks up an environment variable where there are no Adapters; pass
	// os.LookupEnv. Default: none is set.
	Env func(name string) (string, bool)

	// NATS is the server that Run connects to. Defaults of Name and Logger:
	// those of this worker.
	NATS natsconn.Config
	// Domain is the JetStream domain. Default: the server's own.
	Domain string
	// Node configures the node that serves the agents: prefix, signatures,
	// quotas, timeouts, drain. The worker sets Seen, Counters, Journal and
	// Refutations, and the adapters set Tree. Default of Entity: the first
	// agent. Durable is a template: the worker fills in the stores and the default
	// lease. Without a template the worker makes its consumers; with one it makes
	// them only if Create is set in it, else an operator does ("aeemesh apply").
	Node mesh.Config
	// Signer returns the key that signs for an entity, or nil for none. Default:
	// Node.Signer for all.
	Signer func(entity string) (*sign.Signer, error)
	// Health returns this program's view of an agent's health. The agent reports the worse of this
	// and its own. A worker with an unhealthy agent is not ready. It must return at once. Default:
	// nothing.
	Health func(entity string) mesh.Health

	// Durable says whether durable tasks are taken. Auto takes them as soon as
	// JetStream has the streams, On fails without them. Default Auto.
	Durable Use
	// Fenced says that the NATS user has the permissions of "auth perms" alone,
	// so that the server is asked for nothing else. Default false.
	Fenced bool
	// Journal says whether envelopes are remembered in JetStream, beside the
	// memory of this process. On fails without the streams. Default Auto.
	Journal Use
	// Replay says whether all workers of the mesh share one memory of the ids of
	// envelopes. Auto shares those that came signed, if the bucket exists; On
	// shares all, and fails without it; Off leaves each process to its own. It
	// has no effect if Node.ReplayWindow is below 0. Default Auto.
	Replay Use

	// Templates is a file of a schema template, or a folder of them (*.sdsi.json). If the
	// folder has one that is named like an agent's entity, the agent's templates are in
	// there; otherwise they are the templates of a worker's only agent. New reads them.
	// Default: agents have the template that their document's io.input_schema makes.
	Templates string
	// UnknownKeys says what happens to keys of a payload that its template does not have.
	// Default: they go into "other".
	UnknownKeys template.UnknownPolicy

	// Learn lets agents learn from what clients put into the key "other" of their templates:
	// keys come of what recurs (SDSI 6.2). How is in the Adapters' section learning. Default
	// false.
	Learn bool

	// Register puts the documents into the mesh's registry, so that teams find
	// these agents. Default false.
	Register bool
	// Machine is the name of this machine in the metadata of the agents, which
	// all who may list agents see. NoMachine publishes neither that nor the
	// process id. Default: the host's name.
	Machine string
	// Wait is how long the server may take to answer one request. Default 5
	// seconds.
	Wait time.Duration
	// ReadFile reads at most limit bytes of a document. Default: of the file of
	// that name.
	ReadFile func(name string, limit int64) ([]byte, error)

	// Logger receives what happens, and what Hooks do not handle. Default:
	// discarded.
	Logger *slog.Logger
	// Hooks receive what an operator should see. Default: it is logged.
	Hooks Hooks
}

// NoMachine is the [Config].Machine that keeps the machine and the process id
// out of the agents' metadata.
const NoMachine = "none"

const (
	defaultWait = 5 * time.Second
	// autoWait bounds requests that Auto makes: without permission to ask,
	// there is no answer.
	autoWait = 2 * time.Second
)

// Agent is one agent to host. It has a document, or As and one of Handler and
// Program.
type Agent struct {
	File     string         // of its AAIF document (JSON, YAML or CBOR)
	Document *aaif.Document // the same, parsed; File is then the name in messages, and its folder that of relative references

	As string // the entity. Default: "agent." and the document's name

	Handler mesh.Handler     // does the work instead of a model; see [mesh.Typed]
	Program *program.Program // does the work instead of a model
}

// Use says whether a worker uses a part of JetStream.
type Use int

const (
	Auto Use = iota // as soon as it is there
	On              // always; without it the worker fails
	Off             // never
)

// patience is how long the first requests to a store may take altogether.
func (u Use) patience(wait time.Duration) time.Duration {
	if u == Auto {
		return min(wait, autoWait)
	}
	return wait
}

// check reports all values that cannot be.
func (c *Config) check() error {
	var bad []error
	if len(c.Agents) == 0 {
		bad = append(bad, faulty("Agents", "there are none"))
	}
	if c.Wait < 0 {
		bad = append(bad, faulty("Wait", "%v: it cannot be negative", c.Wait))
	}
	for field, use := range map[string]Use{"Durable": c.Durable, "Journal": c.Journal, "Replay": c.Replay} {
		if use < Auto || use > Off {
			bad = append(bad, faulty(field, "%d: it is Auto, On or Off", use))
		}
	}
	if c.Replay == On && c.Node.ReplayWindow < 0 {
		bad = append(bad, faulty("Replay", "On needs a ReplayWindow"))
	}
	return errors.Join(bad...)
}

// A ConfigError is a fault of one field of a [Config], or of what the mesh has
// for it.
type ConfigError struct {
	Field string // such as Durable, Journal, Replay, Register, Agents, Node, IntentsDir
	Err   error
}

func (e *ConfigError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

func faulty(field, format string, args ...any) error {
	return &ConfigError{field, fmt.Errorf(format, args...)}
}
