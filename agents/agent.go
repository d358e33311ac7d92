package agents

import (
	"context"
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
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
)

// Options are what the operator, not the document, decides about an agent. The
// zero value runs the model that the document names, without tools.
type Options struct {
	// As is the agent's entity id. Default: "agent." and the document's name in
	// lower snake case.
	As string

	// Handler does the agent's work instead of a model; so does Program, and
	// so does Model, a model instead of the one that the document names. At
	// most one of the three.
	Handler mesh.Handler
	Program *program.Program
	Model   model.Model

	// Tools are the functions that the document's tools of protocol function
	// may name. Default none.
	Tools *tool.Registry
	// Open makes a source of an entry of the document's tools[] whose protocol
	// is another than function. It does no I/O; what it returns lists the tools
	// when they are needed, and is closed when Run ends. An error says why the
	// entry cannot be used here: the tool is then not offered, and at safety
	// levels strict and regulated the agent is refused. Default: such tools are
	// not offered.
	Open func(entry *aaif.Tool) (tool.Source, error)
	// Counters keep the rate limits of tools, and what all runs of a corr have
	// spent, for all workers of the mesh. Default: each process keeps them for
	// itself, and a notice says so.
	Counters Counters
	// Budget bounds what runs spend on models. Default: nothing does.
	Budget Budget
	// RequireTools refuses an agent of which a tool is not offered, whatever its
	// protocol, when it is made or when Run begins. Default: the agent is hosted, and
	// its health is degraded for as long. A function that is not registered refuses it
	// in any case.
	RequireTools bool
	// ParallelTools is how many tools that a model calls at once really run at
	// once. Default 4.
	ParallelTools int

	// LostCalls says, by the name of the tool or [AnyTool], what becomes of a
	// tool call of a durable task that had begun when its worker was lost.
	// Default: [LostRepeat] for tools that say that they are safe to repeat,
	// [LostAsk] for the others.
	LostCalls map[string]LostCall
	// ContextTokens is how many tokens the model's context window has, whichever
	// route is taken. A conversation that is longer is sent without its oldest
	// turns; see the package comment. Default: what Models knows of each route;
	// where that is nothing, only the model can say that one is too long.
	ContextTokens int

	// StateKeys encrypt the checkpoints of durable tasks, whatever the node does.
	// A document with compliance.pii_handling encrypt needs them, or a node that
	// encrypts. Default: as the node does.
	StateKeys *state.Keyring
	// Memory gets the memories of runs that are restored. Default: they stay in
	// the run's document, and nobody reads them.
	Memory Memory

	// Models makes the model that a document names, with the routes that it
	// declares, and says what the operator should know of them. It reports its
	// calls itself, see [Reported]; an error keeps the agent from being hosted. It
	// is not asked where Model, Handler or Program is set. Package adapters has
	// one for all providers of the specification. Default: only the offline model
	// (provider custom, provider_id builtin) is there.
	Models func(def *aaif.Definition, opts Options) (model.Model, []aaif.Problem, error)
	// Secret looks up an environment variable, or whatever stands for it, for
	// Models. Default: nothing is set. This package reads no environment itself.
	Secret func(name string) (string, bool)
	// KeyName is the name under which Models looks up the API key of the
	// document's first route, and of others of the same provider, instead of the
	// provider's own. Naming it sends the key to whatever base_url the document
	// has; see the package comment.
	KeyName string
	// Redactor takes the secrets that it knows out of what tools return and say,
	// before a model or a checkpoint sees it, and out of logs and errors. Default:
	// nothing is taken out.
	Redactor *secret.Redactor
	// HTTPClient reaches the endpoints of Models. Default: one of the adapter's, and
	// for a base_url of the document one that reaches public addresses and what the
	// operator's policy allows.
	HTTPClient *http.Client

	// Concurrency is how many tasks may run at once in this process. A document
	// that declares runtime.concurrency can be lowered by it, never raised; of one
	// that declares none, each worker then does so many. Default: the document's,
	// or 1, of all workers together where the node can count them.
	Concurrency int
	// Queue is [mesh.Agent].Queue.
	Queue int

	// WorkQueues are the work queues that this process serves, of those that
	// documents name in runtime.queue. An agent that names another one is served
	// live here, and its durable tasks are left to workers that serve its queue.
	// Default: all.
	WorkQueues []string

	// IntentsDir is a folder of schemas of further intents, laid out as
	// <intent>.{task,result,error}.schema.json, and of the errors of [RunIntent],
	// whose other schemas are the document's. New reads it. Default none.
	IntentsDir string
	// RefuseUnknown refuses tasks of an intent that the agent has not
	// published. Default: they are served, and held to the document's io
	// schemas.
	RefuseUnknown bool

	// Metadata is added to what NATS micro shows of the agent.
	Metadata map[string]string
	// Logger gets what the operator should know of each task. Default discards.
	Logger *slog.Logger
	// Offer is what the operator has put in place for agents beside what this
	// package has by itself: protocols behind Open, vaults, condition languages.
	// It is held against required_capabilities. Default: nothing.
	Offer aaif.Offer
	// Deprecated lets agents be hosted whose status is deprecated. Default: they
	// are refused.
	Deprecated bool
	// AcceptUnhonoured names places of documents, as JSON pointers
	// (/agent/compliance/audit_log), of which the operator accepts that this runtime
	// does not do what a runtime MUST: an agent that would be refused for that alone
	// is hosted, and the mesh is told. [aaif.FieldPointer] makes a pointer of a field's
	// path. A condition in words of a pipeline's step
	// (/agent/orchestration/subagents/1/when) that is named here holds. Default none.
	AcceptUnhonoured []string

	// Directory finds the subagents that a document names. Default: a subagent
	// is the entity that its ref is.
	Directory orchestrate.Directory

	off       func(*aaif.Tool) string // which capability a tool lacks
	permits   map[string]string       // what would let a tool be had, by its place; see Refusal
	team      *orchestrate.Team       // that the model leads; nil: none
	traceable bool                    // spans go somewhere

	// Telemetry is where the agent reports what it does. Default: nowhere.
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
	// Program, if there is one, lives as long as Run.
	Program *program.Program
	// Notices are what the document declares and this runtime does not do, and
	// what the operator should know besides. An operator must be shown them.
	Notices []aaif.Problem
	// Negotiation is how the document's required_capabilities fared.
	Negotiation aaif.Negotiation
	// Accepted are the places of Options.AcceptUnhonoured that made a difference:
	// what a runtime MUST do there, and this one does not. Run tells the mesh, and so
	// does the agent's metadata (accepted_unhonoured).
	Accepted []string

	verdict   Verdict
	permits   map[string]string // see Refusal
	encrypt   bool              // the document wants its state encrypted
	negotiate func(durable bool) aaif.Negotiation
	accepted  bool
	// undeclared: MeshConcurrency is the default of a document that names none
	undeclared bool
	tools      *toolset // of a model; nil where something else does the work
	log        *slog.Logger
}

// New makes an agent of a definition, or reports all that keeps it from being
// hosted. It does no I/O but to read Options.IntentsDir.
func New(doc *aaif.Document, opts Options) (*Agent, error) {
	if doc == nil || doc.Kind() != aaif.KindAgent {
		return nil, errors.New("agent: an agent definition is needed")
	}
	def := doc.Definition()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
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
	if a.Description == "" {
		a.Description = def.Agent.Goal
	}
	a.Metadata, a.NoStream = metadata(def, opts), !streams(&def.Agent)
	a.Queue, a.Seal = opts.Queue, opts.StateKeys
	report, err := a.report(def, &opts)
	note(err)
	a.log = opts.Logger
	note(a.limits(def, opts))
	a.verdict, doc = judge(doc, opts)
	def = doc.Definition()
	a.negotiate = func(durable bool) aaif.Negotiation { return def.Negotiate(Offers(opts, durable)) }
	a.Negotiation = a.verdict.Negotiation
	a.encrypt = encrypts(def) && !a.verdict.accepts(piiHandling)

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
// [mesh.Node.Serve]. A Program runs as long, and is stopped after the drain.
func (a *Agent) Run(ctx context.Context, node *mesh.Node) error {
	known := len(a.Notices)
	if err := a.Accept(node); err != nil {
		return err
	}
	for _, p := range a.Notices[known:] { // nobody was shown them
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

// handler sets who does the work.
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
		a.Handler, a.Formats = sure{opts.Handler}, formats(&def.Agent, false)
	case opts.Program != nil:
		a.Handler, a.Health, a.Formats = sure{opts.Program}, opts.Program.Health, formats(&def.Agent, false)
	default:
		a.Formats = formats(&def.Agent, true)
		plan, err := orchestrate.Compile(def, opts.Model != nil || orchestrate.HasModel(def))
		if err != nil {
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
		a.Handler, a.tools, a.Health = l, l.tools, l.tools.health
	}
	return nil
}

// teamHandler sets a team to do the work.
func (a *Agent) teamHandler(def *aaif.Definition, plan *orchestrate.Plan, c *contract, opts Options) error {
	t, notices, err := newTeam(a.Entity, def, plan, c, opts)
	a.verdict.add(notices...)
	if err != nil {
		return err
	}
	a.Handler = t
	if plan.Pattern == orchestrate.Swarm {
		a.Formats = formats(&def.Agent, false) // its members are not told of the format
	}
	if t.loop != nil {
		a.tools, a.Health = t.loop.tools, t.loop.tools.health
	}
	return nil
}

// DefaultMaxRetries is how often a durable task is tried again that failed with
// an error that may be gone the next time, unless the document's
// runtime.max_retries says otherwise. It is the schema's default.
const DefaultMaxRetries = 2

// limits sets concurrency, timeout and retries (AAIF, Runtime Configuration).
func (a *Agent) limits(def *aaif.Definition, opts Options) error {
	if opts.Concurrency < 0 {
		return fmt.Errorf("concurrency %d: must be at least 1", opts.Concurrency)
	}
	a.Concurrency = max(1, opts.Concurrency)
	a.Retry.Max = DefaultMaxRetries
	a.Async = def.Agent.IO != nil && def.Agent.IO.Mode == aaif.ModeAsync // says the same as async_execution
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
		a.Leave = true
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
	return as, subject.ValidateEntity(as)
}

// skillList joins skills by commas; one within a skill becomes a space.
func skillList(skills []string) string {
	out := make([]string, len(skills))
	for i, s := range skills {
		out[i] = strings.ReplaceAll(s, ",", " ")
	}
	return strings.Join(out, ",")
}

// metadata is what NATS micro shows of the agent.
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
			m["work_queue"] = r.Queue // "queue" is how many tasks may wait
		}
	}
	maps.Copy(m, opts.Metadata)
	return m
}
