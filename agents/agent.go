package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// Options are the decisions of the operator, as opposed to the document, about
// an agent. The zero value runs the model that the document names, without
// tools.
type Options struct {
	// As is the agent's entity id. Default: "agent." and the document's name in
	// lower snake case.
	As string

	// Handler does the agent's work instead of a model. Program does so, too,
	// and Model replaces the model that the document names. At most one of the
	// three may be set.
	Handler mesh.Handler
	Program *program.Program
	Model   model.Model
	// Steers is [mesh.Agent].Steers, for a Handler.
	Steers bool

	// Tools are the functions that the document's tools of protocol function
	// may name. Default none.
	Tools *tool.Registry
	// Open makes a source for an entry of the document's tools[] whose protocol
	// is not function. It does no I/O: the returned source lists the tools when
	// they are needed, and is closed when Run ends. An error says why the entry
	// cannot be used here; the tool is then not offered, and at safety levels
	// strict and regulated the agent is refused. Default: such tools are not
	// offered.
	Open func(entry *aaif.Tool) (tool.Source, error)
	// Counters hold the rate limits of tools and the spending of all runs of a
	// corr, shared by all workers of the mesh. Default: each process counts for
	// itself, and a notice says so.
	Counters Counters
	// Budget limits what runs spend on models. Default: no limit.
	Budget Budget
	// RequireTools refuses the agent if any of its tools is not offered,
	// whatever the tool's protocol; the check is made by New and at the start
	// of Run. Default: the agent is hosted, and its health is degraded while a
	// tool is missing. A function that is not registered always refuses the
	// agent.
	RequireTools bool
	// ParallelTools is how many of the tool calls of one turn run at the same
	// time. Default 4.
	ParallelTools int

	// LostCalls decides, by the name of the tool or [AnyTool], about a tool
	// call of a durable task that had begun when its worker was lost. Default:
	// [LostRepeat] for tools that declare themselves safe to repeat, [LostAsk]
	// for the others.
	LostCalls map[string]LostCall
	// ContextTokens is the size of the model's context window in tokens,
	// whichever route is taken. A longer conversation is sent without its
	// oldest turns; see the package comment. Default: the size that Models
	// knows for each route; if it knows none, the conversation is sent whole
	// and the provider refuses one that is too long.
	ContextTokens int

	// StateKeys encrypt the checkpoints of durable tasks, whether or not the
	// node encrypts. A document with compliance.pii_handling encrypt needs
	// them, or a node that encrypts. Default: the node's setting.
	StateKeys *state.Keyring
	// Memory receives the memories of restored runs. Default: they stay in the
	// run's document, and nothing reads them.
	Memory Memory

	// Models makes the model that a document names, with the routes that it
	// declares, and returns notices for the operator. It reports its own calls,
	// see [Reported]; an error keeps the agent from being hosted. It is not
	// called if Model, Handler or Program is set. Package adapters implements
	// it for all providers of the specification. Default: only the offline
	// model (provider custom, provider_id builtin) is available.
	Models func(def *aaif.Definition, opts Options) (model.Model, []aaif.Problem, error)
	// Secret looks up an environment variable, or its replacement from a vault,
	// for Models. Default: no variable is set. This package does not read the
	// environment itself.
	Secret func(name string) (string, bool)
	// KeyName is the name under which Models looks up the API key of the
	// document's first route, and of other routes of the same provider, instead
	// of the provider's own variable. Setting it sends the key to the
	// document's base_url, whatever that is; see the package comment.
	KeyName string
	// Redactor removes the secrets that it knows from results and errors of
	// tools, before a model or a checkpoint sees them, and from logs. Default:
	// nothing is removed.
	Redactor *secret.Redactor
	// HTTPClient reaches the endpoints of Models. Default: the adapter's
	// client; for a base_url of the document, a client that reaches public
	// addresses and those that the operator's policy allows.
	HTTPClient *http.Client

	// Concurrency is how many tasks may run at once in this process. It can
	// lower a document's runtime.concurrency, but not raise it; if the document
	// declares none, each worker runs up to Concurrency tasks. Default: the
	// document's value, or 1, counted over all workers if the node can count
	// them.
	Concurrency int
	// Queue is [mesh.Agent].Queue.
	Queue int

	// WorkQueues are the work queues that this process serves, out of those
	// that documents name in runtime.queue. If an agent names a queue that is
	// not listed, this process serves the agent live only and leaves its
	// durable tasks to workers that serve the queue. Default: all.
	WorkQueues []string

	// IntentsDir is a folder of schemas of further intents, laid out as
	// <intent>.{task,result,error}.schema.json, and of the errors of [RunIntent],
	// whose other schemas are the document's. New reads it. Default none.
	IntentsDir string
	// RefuseUnknown refuses tasks of an intent that the agent has not
	// published. Default: they are served, and held to the document's io
	// schemas.
	RefuseUnknown bool

	// Metadata is added to the agent's metadata in NATS micro.
	Metadata map[string]string
	// Logger receives one or more records for each task. Default: discarded.
	Logger *slog.Logger
	// Offer lists the capabilities that the operator has added to those of this
	// package: protocols behind Open, vaults, condition languages.
	// required_capabilities are checked against both. Default: nothing.
	Offer aaif.Offer
	// Deprecated permits agents whose status is deprecated. Default: they are
	// refused.
	Deprecated bool
	// AcceptUnhonoured names fields of documents, as JSON pointers
	// (/agent/compliance/audit_log), that a runtime MUST honour, this one does
	// not, and the operator accepts as unhonoured: an agent that would be
	// refused for such a field alone is hosted, and an alert is published.
	// [aaif.FieldPointer] makes a pointer from a field's path. A condition in
	// words of a pipeline's step (/agent/orchestration/subagents/1/when) that
	// is named here counts as true. Default none.
	AcceptUnhonoured []string

	// Directory finds the subagents that a document names. Default: a
	// subagent's ref is its entity id.
	Directory orchestrate.Directory
	// Shape is that of [orchestrate.Options].
	Shape func(ctx context.Context, entity string, made json.RawMessage) (intent string, shaped json.RawMessage, ok bool)

	off       func(*aaif.Tool) string // the required capability that a tool needs and this runtime lacks; see switchedOff
	permits   map[string]string       // by place: the worker flag that would permit a refused tool; see Refusal
	team      *orchestrate.Team       // the team that the model leads; nil: none
	traceable bool                    // a tracer records spans

	// Telemetry is where the agent sends its spans, metrics and logs. Default:
	// nowhere.
	Telemetry Telemetry
}

// Agent is one agent, ready to be served. Callers may change the embedded
// [mesh.Agent] before Run, to set a Signer for instance. An agent without a
// document can be put together by hand:
//
//	p, err := program.New(program.Config{Command: command})
//	a := agents.Agent{Agent: mesh.Agent{Entity: "agent.x", Handler: p, Health: p.Health}, Program: p}
type Agent struct {
	mesh.Agent
	// Program, if not nil, runs for as long as Run.
	Program *program.Program
	// Notices say which parts of the document this runtime does not honour, and
	// what else the operator should know. An operator must be shown them.
	Notices []aaif.Problem
	// Negotiation is the result of negotiating the document's
	// required_capabilities.
	Negotiation aaif.Negotiation
	// Accepted are the places of Options.AcceptUnhonoured that were needed to
	// host this agent: fields that a runtime MUST honour and this one does not.
	// Run publishes them as an alert, and the agent's metadata has them
	// (accepted_unhonoured).
	Accepted []string

	verdict   Verdict
	permits   map[string]string // see Refusal
	negotiate func(durable bool) aaif.Negotiation
	accepted  bool
	// undeclared: the document declares no concurrency, and MeshConcurrency is
	// the default
	undeclared bool
	tools      *toolset // the model's tools; nil for a program or handler
	named      []string // tools and members of a team, by the document
	log        *slog.Logger
}

// New makes an agent from a definition, or returns all the reasons why it
// cannot be hosted. Its only I/O is reading Options.IntentsDir.
func New(doc *aaif.Document, opts Options) (*Agent, error) {
	if doc == nil || doc.Kind() != aaif.KindAgent {
		return nil, errors.New("agent: an agent definition is needed")
	}
	def := doc.Definition()
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.Logger = slog.New(secret.LogHandler(opts.Logger.Handler(), opts.Redactor))
	var bad []error
	note := func(err error) {
		if err != nil {
			bad = append(bad, err)
		}
	}
	a := &Agent{Program: opts.Program}
	var err error
	a.Entity, err = entityOf(def, opts.As)
	note(err)
	a.Version, a.Description, a.AgentID = def.Agent.Version, def.Agent.Description, def.AgentID
	a.Description = cmp.Or(a.Description, def.Agent.Goal)
	a.Metadata, a.NoStream = metadata(def, opts), !streams(&def.Agent)
	a.Queue, a.Seal = opts.Queue, opts.StateKeys
	report, err := a.report(def, &opts)
	note(err)
	if a.TraceHeader != "" {
		if err := mesh.CheckTraceHeader(a.TraceHeader); err != nil {
			note(fmt.Errorf("/agent/telemetry/trace_context_header: %w", err))
		}
	}
	a.log = opts.Logger
	note(a.limits(def, opts))
	a.verdict, doc = judge(doc, opts)
	def = doc.Definition()
	a.named = namedCapabilities(def)
	a.negotiate = func(durable bool) aaif.Negotiation { return def.Negotiate(Offers(opts, durable)) }
	a.Negotiation = a.verdict.Negotiation
	a.MustSeal = encrypts(def) && !a.verdict.accepts(piiHandling)

	c, err := newContract(a.Entity, def, opts)
	note(err)
	if c != nil {
		a.Intents, a.DefaultIntent, a.RefuseUnknown = c.registry, c.enforced, opts.RefuseUnknown
	}
	opts.off = func(t *aaif.Tool) string { return switchedOff(a.Negotiation, t) }
	a.permits = map[string]string{}
	opts.permits = a.permits
	note(a.handler(def, c, opts))
	a.Notices, a.Accepted = append(a.Notices, a.verdict.Notices...), a.verdict.Accepted
	if len(a.Accepted) > 0 {
		a.Metadata[MetaAccepted] = strings.Join(a.Accepted, ",")
	}
	note(a.refused())
	if report != nil && a.Handler != nil {
		a.Handler = reported{a.Handler, report}
	}
	if err := errors.Join(bad...); err != nil {
		if a.tools != nil {
			err = errors.Join(err, a.tools.close())
		}
		return nil, fmt.Errorf("agent %s: %w", def.Agent.Name, err)
	}
	return a, nil
}

// Run serves the agent on a node until ctx ends, then drains and returns; see
// [mesh.Node.Serve]. A Program runs until the drain is done, and is then
// stopped.
func (a *Agent) Run(ctx context.Context, node *mesh.Node) error {
	known := len(a.Notices)
	if err := a.Accept(node); err != nil {
		return err
	}
	for _, p := range a.Notices[known:] { // those that Accept has added, which the caller has not shown
		a.log.Warn("not as the document says", "entity", a.Entity, "pointer", p.Pointer, "why", p.Message)
	}
	if err := a.tellAccepted(node); err != nil {
		return err
	}
	if a.tools != nil {
		defer func() {
			if err := a.tools.close(); err != nil {
				a.log.Warn("a tool was not closed", "entity", a.Entity, "err", err)
			}
		}()
		if err := a.tools.warm(ctx); err != nil {
			err = tellRefusal(node, a.refusal(err))
			return fmt.Errorf("agent %s: %w", a.Entity, err)
		}
	}
	if a.Program == nil {
		return node.Serve(ctx, a.Agent)
	}
	if err := a.Program.Check(); err != nil {
		return err
	}
	a.Program.Serves(max(mesh.DefaultConcurrency, a.Concurrency))
	serving, giveUp := context.WithCancel(ctx)
	defer giveUp()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer giveUp()
		ended <- a.Program.Run(running)
	}()
	err := node.Serve(serving, a.Agent)
	stop()
	return errors.Join(err, <-ended)
}

// handler sets the handler that does the agent's work: the operator's, a
// program, or a model.
func (a *Agent) handler(def *aaif.Definition, c *contract, opts Options) error {
	given := 0
	for _, is := range []bool{opts.Handler != nil, opts.Program != nil, opts.Model != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return errors.New("only one of a handler, a program and a model can do the work")
	case opts.Handler != nil:
		a.Handler, a.Formats, a.Steers = Sure(opts.Handler, opts.Redactor), formats(&def.Agent, false), opts.Steers
		a.OnDelegate = delegationSpan
	case opts.Program != nil:
		a.Handler, a.Health, a.Formats = Sure(opts.Program, opts.Redactor), opts.Program.Health, formats(&def.Agent, false)
		a.OnDelegate = delegationSpan
	default:
		a.Formats = formats(&def.Agent, true)
		plan, err := orchestrate.Compile(def, opts.Model != nil || orchestrate.HasModel(def))
		if err != nil {
			if a.verdict.teamless { // the verdict has the reason, with its place
				return nil
			}
			return err
		}
		if plan != nil {
			return a.teamHandler(def, plan, c, opts)
		}
		l, notices, err := newLoop(a.Entity, def, c, opts)
		a.verdict.add(notices...)
		if err != nil {
			return err
		}
		a.Handler, a.tools, a.Health, a.Steers = l, l.tools, l.tools.health, true
	}
	return nil
}

// teamHandler sets a team as the handler that does the agent's work.
func (a *Agent) teamHandler(def *aaif.Definition, plan *orchestrate.Plan, c *contract, opts Options) error {
	t, notices, err := newTeam(a.Entity, def, plan, c, opts)
	a.verdict.add(notices...)
	if err != nil {
		return err
	}
	a.Handler, a.Steers = t, plan.OwnTurns()
	if plan.Pattern == orchestrate.Swarm {
		a.Formats = formats(&def.Agent, false) // the required format is not passed on to members
	}
	if t.loop != nil {
		a.tools, a.Health = t.loop.tools, t.loop.tools.health
	}
	return nil
}

// DefaultMaxRetries is how often a durable task is retried after a transient
// error, unless the document's runtime.max_retries says otherwise. It is the
// schema's default, and that of agents without a document.
const DefaultMaxRetries = 2

// limits sets concurrency, timeout and retries (AAIF, Runtime Configuration).
func (a *Agent) limits(def *aaif.Definition, opts Options) error {
	if opts.Concurrency < 0 {
		return fmt.Errorf("concurrency %d: must be at least 1", opts.Concurrency)
	}
	a.Concurrency = max(1, opts.Concurrency)
	a.Retry.Max = DefaultMaxRetries
	a.Async = def.Agent.IO != nil && def.Agent.IO.Mode == aaif.ModeAsync // equivalent to async_execution
	if opts.Concurrency == 0 {                                           // the schema's default of runtime.concurrency, which a Consumer MUST NOT exceed either
		a.MeshConcurrency, a.undeclared = 1, true
	}
	r := def.Agent.Runtime
	if r == nil {
		return nil
	}
	if r.MaxRetries.IsSet() {
		a.Retry.Max = int(min(r.MaxRetries.Int64(), 1<<20))
	}
	a.Retry.Backoff = mesh.Backoff(r.RetryBackoff)
	a.Async = a.Async || r.AsyncExecution != nil && *r.AsyncExecution
	if r.Queue != "" && len(opts.WorkQueues) > 0 && !slices.Contains(opts.WorkQueues, r.Queue) {
		a.SubmitOnly = true
		a.Notices = append(a.Notices, aaif.Problem{
			Pointer: "/agent/runtime/queue", Rule: RuleLane, Severity: aaif.SeverityWarning,
			Message: fmt.Sprintf("durable tasks are left to workers of the work queue %q", r.Queue),
		})
	}
	if r.Concurrency.IsSet() {
		declared := int(min(r.Concurrency.Int64(), 1<<20))
		a.MeshConcurrency, a.undeclared = declared, false
		if opts.Concurrency > declared {
			a.Notices = append(a.Notices, aaif.Problem{
				Pointer: "/agent/runtime/concurrency", Rule: RuleLimit, Severity: aaif.SeverityNote,
				Message: fmt.Sprintf("the operator's concurrency of %d is lowered to the document's %d", opts.Concurrency, declared),
			})
		}
		if opts.Concurrency == 0 || opts.Concurrency > declared {
			a.Concurrency = declared
		}
	}
	if r.TimeoutSeconds.IsSet() {
		a.Timeout = max(time.Millisecond, r.TimeoutSeconds.Seconds())
	}
	return nil
}

func entityOf(def *aaif.Definition, as string) (string, error) {
	if as == "" {
		return aaif.EntityName(def.Agent.Name)
	}
	return as, subject.ValidateServed(as)
}

// skillList joins skills by commas; a comma within a skill becomes a space.
func skillList(skills []string) string {
	out := make([]string, len(skills))
	for i, s := range skills {
		out[i] = strings.ReplaceAll(s, ",", " ")
	}
	return strings.Join(out, ",")
}

// metadata is the agent's metadata in NATS micro.
func metadata(def *aaif.Definition, opts Options) map[string]string {
	m := map[string]string{"aaif_version": def.Version, "runs": "model"}
	if def.Version == "" {
		m["aaif_version"] = aaif.Version
	}
	switch {
	case opts.Program != nil:
		m["runs"] = "program"
	case opts.Handler != nil:
		m["runs"] = "handler"
	}
	if len(def.Tags) > 0 {
		m["tags"] = strings.Join(def.Tags, ",")
	}
	if len(def.Agent.Skills) > 0 {
		m["skills"] = skillList(def.Agent.Skills)
	}
	if def.Status != "" {
		m["status"] = string(def.Status)
	}
	if r := def.Agent.Runtime; r != nil {
		if r.Environment != "" {
			m["environment"] = string(r.Environment)
		}
		if r.Queue != "" {
			m["work_queue"] = r.Queue // the name "queue" is taken: it is the number of tasks that may wait
		}
	}
	maps.Copy(m, opts.Metadata)
	return m
}
