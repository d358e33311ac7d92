package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/orchestrate/directory"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/agents/tool"
	toolprogram "github.com/aeemesh/aeemesh/agents/tool/program"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/health"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// workerFlags are those of "worker".
type workerFlags struct {
	as, command, intents, keyName, taskEvents, journal string
	concurrency, queue, contextTokens                  int
	drain, maxTimeout, heartbeat                       time.Duration
	tools, known, lostCalls, workQueues, accept        []string
	refuseUnknown, content, deprecated, register       bool
	requireTools                                       bool
	quotas                                             mesh.Quotas
	cap, unknownCap                                    string
	lane                                               laneFlags
	vitals                                             vitals
	machine                                            string
	operator                                           operatorFlags
	counters                                           meshCounters
	teams                                              teams
	tree                                               mesh.TreeLimits
}

func (a *app) workerCommand() *cobra.Command { return a.workerWith(&workerFlags{}) }

// workerWith is the command with its flags in f.
func (a *app) workerWith(f *workerFlags) *cobra.Command {
	c := session.Connects(&cobra.Command{
		Use:   "worker FILE...",
		Short: "Host agents",
		Long: `Hosts the agents of AAIF documents (JSON, YAML or CBOR), each on the subject
that is its entity id: agent. and its name, unless --as says otherwise. Several
workers of one agent share its tasks.

An agent's work is done by the model that its document names, or by any program
with --exec. SIGTERM or Ctrl-C drains: what has begun is finished, the rest is
handed back; a second one ends at once.`,
		Example: `  aeemesh worker examples/echo/agent.yaml
  aeemesh worker reviewer.yaml --tool lint='./lint --json' --concurrency 4
  aeemesh worker echo.yaml --exec 'python3 echo.py'
  aeemesh worker --as agent.echo --exec ./echo           # no document at all
  aeemesh worker reviewer.yaml --sign reviewer-1 --signatures required

  # then, with the nats CLI:
  nats micro ls
  nats req aee.ask.agent.echo hello`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{annotMore: workerMore, annotSettings: "yes"},
		RunE:        a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error { return a.worker(ctx, cmd, f, args) }),
	})
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.as, "as", "", "serve as this `entity` instead of the name's (one document only)")
	flags.StringVar(&f.command, "exec", "", "let this `command` do the work (one document, or none with --as)")
	flags.StringArrayVar(&f.tools, "tool", nil, "`NAME=COMMAND` behind the function tool NAME; repeatable")
	flags.BoolVar(&f.requireTools, "require-tools", false, "refuse an agent of which a tool is not there; without, its health is degraded as long (a function tool without a program or function refuses it in any case)")
	flags.StringArrayVar(&f.lostCalls, "lost-call", nil, "`NAME=WHAT` becomes of a call of the tool NAME (* for the others) that was under way when a durable task's worker was lost: repeat, timeout, or ask a person; repeatable (default: repeat what says that it is safe, ask about the rest)")
	flags.IntVar(&f.contextTokens, "context-tokens", 0, "size of the model's context window; older turns that do not fit are left out (default what the catalogue knows of each)")
	flags.IntVar(&f.concurrency, "concurrency", 0, "tasks at once in this worker (default the document's, else 1 in the whole mesh; what a document declares can be lowered, not raised)")
	flags.IntVar(&f.queue, "queue", mesh.DefaultQueue, "tasks that may wait; beyond it senders get E_BUSY")
	flags.DurationVar(&f.drain, "drain", mesh.DefaultDrain, "how long to finish what has begun when stopped")
	flags.DurationVar(&f.maxTimeout, "max-timeout", mesh.DefaultMaxTimeout, "the longest that a task may take, whatever it asks for")
	flags.StringVar(&f.intents, "intents", "", "`directory` of further intents' schemas, <intent>.{task,result,error}.schema.json")
	flags.BoolVar(&f.refuseUnknown, "refuse-unknown", false, "refuse tasks of intents without a schema (E_INTENT_UNKNOWN)")
	flags.StringVar(&f.keyName, "api-key-env", "", "`NAME` of the variable that holds the model's API key")
	flags.StringVar(&f.taskEvents, "task-events", "all", "which events of tasks and steps go to bus.mesh.task and bus.mesh.run: all or failures")
	flags.StringVar(&f.journal, "journal", "auto", "where envelopes are remembered: memory, jetstream, or auto (JetStream where it has the stream)")
	flags.DurationVar(&f.heartbeat, "heartbeat", mesh.DefaultHeartbeat, "time between heartbeats on bus.mesh.agent; 0 for none")
	flags.StringArrayVar(&f.known, "known", nil, "`SENDER` that counts as known although it does not sign; repeatable")
	flags.Float64Var(&f.quotas.Rate, "rate", 0, "tasks a second of one known sender (default no limit)")
	flags.IntVar(&f.quotas.Burst, "burst", 100, "and how many of them at once")
	flags.Float64Var(&f.quotas.UnknownRate, "unknown-rate", 1000, "tasks a second of one unknown sender; 0 for no limit")
	flags.IntVar(&f.quotas.UnknownBurst, "unknown-burst", 2000, "and how many of them at once")
	flags.Float64Var(&f.quotas.UrgentRate, "urgent-rate", 100, "tasks a second of one sender that keep priority high or urgent; 0 for no limit")
	flags.StringVar(&f.cap, "cap", string(envelope.PriorityUrgent), "highest `priority` of known senders")
	flags.StringVar(&f.unknownCap, "unknown-cap", string(envelope.PriorityHigh), "highest `priority` of unknown senders")
	f.operator.add(flags)
	flags.StringArrayVar(&f.workQueues, "work-queue", nil, "`NAME` of a work queue (runtime.queue) whose durable tasks are done here; those of other queues are left to their workers; repeatable (default all)")
	flags.BoolVar(&f.deprecated, "allow-deprecated", false, "host agents whose status is deprecated")
	flags.StringArrayVar(&f.accept, "accept-unhonoured", nil, "`FIELD` of documents (compliance.audit_log) of which you accept that this runtime does not do what it says, where the agent would be refused for that; of a pipeline's step with a condition in words (orchestration.subagents.1.when) that it holds; told to the log and the mesh; repeatable")
	flags.BoolVar(&f.content, "telemetry-content", false, "put prompts, answers, and arguments and results of tools into spans")
	flags.BoolVar(&f.register, "register", false, "register the documents in the mesh's registry, so that teams find these agents (as \"agents import\" does)")
	f.lane.add(a.App, flags)
	f.vitals.add(a.App, flags)
	flags.StringVar(&f.machine, "machine", "", "`name` of this machine in what everybody sees who may list agents; none tells neither that nor the process id (default its host name)")
	a.AddSignFlags(flags, session.SignAll|session.SignReplay)
	groupWorkerFlags(flags)
	session.BindEnv(flags, "config", "AEEMESH_CONFIG")
	return briefHelp(a.App, c, workerCommon)
}

func (a *app) worker(ctx context.Context, cmd *cobra.Command, f *workerFlags, args []string) error {
	if len(args) == 0 {
		args = a.Documents
	}
	if err := a.checkWorker(cmd, f, args); err != nil {
		return err
	}
	a.BeginLog(cmd)
	set, err := a.adapters(cmd, &f.operator)
	if err != nil {
		return err
	}
	defer func() {
		if err := set.Close(); err != nil {
			a.Log.Warn("not closed", "err", err)
		}
	}()
	if err := f.vitals.begin(a.App); err != nil {
		return err
	}
	defer f.vitals.end()
	tel, err := a.startTelemetry(ctx, f.vitals.readers()...)
	if err != nil {
		return err
	}
	defer a.stopTelemetry(tel)
	f.teams = newTeams(directory.Config{Policy: set.Policy(), RegisteredSkills: set.RegisteredSkills(), Logger: a.Log})
	f.tree = set.Tree()
	served, err := a.readAgents(cmd, f, set, tel, args)
	if err != nil {
		a.tellRefusal(ctx, cmd, tel, err)
		return err
	}
	d := newDaemon(nil, served)
	s, err := a.Open(ctx, cmd, session.Options{Long: true, Signed: true, Entity: served[0].Entity, Status: a.workerStatus(d), Tel: a.ofNode(tel),
		Config: func(s *session.Session, cfg *mesh.Config) error { return a.workerConfig(ctx, cmd, s, f, cfg) }})
	if err != nil {
		return err
	}
	defer s.Close()
	d.node = s.Node
	entities := make([]string, len(served))
	for i, agent := range served {
		entities[i] = agent.Entity
	}
	f.vitals.look(func() []health.Check { return append([]health.Check{connected(s.Conn)}, serving(s.Node, entities)...) })
	waiting := atomic.Int32{} // agents that are not served yet
	waiting.Store(int32(len(served)))
	for _, agent := range served {
		f.identify(agent)
		if agent.Signer, err = a.Signer(agent.Entity); err != nil {
			return err
		}
		accepted := agent.Accept(s.Node)
		a.Term.Notices(agent.Entity, agent.Notices)
		if accepted != nil {
			return accepted
		}
		announce, err := a.announceAgent(s, agent)
		if err != nil {
			return err
		}
		agent.Ready = func() {
			announce()
			if waiting.Add(-1) == 0 {
				f.vitals.serves(strings.Join(entities, ", "))
			}
		}
	}
	end, err := connectTeams(a.App, ctx, s, &f.teams, f.register, served)
	if err != nil {
		return err
	}
	defer end()
	keys, stop := context.WithCancel(ctx)
	defer stop()
	var own []string
	for _, agent := range served {
		if agent.Signer != nil {
			own = append(own, agent.Signer.KID())
		}
	}
	go a.KeepKeys(keys, s.Verifier.Ring, own)
	draining := context.AfterFunc(ctx, func() {
		f.vitals.ends(f.drain)
		a.Term.Tell(term.Event{Level: slog.LevelInfo, Msg: "draining", Attrs: []any{"at_most", f.drain}},
			"draining: what has begun is finished, for at most %v; a second signal ends at once", f.drain)
	})
	defer draining()
	if err := d.run(ctx); err != nil {
		return err
	}
	a.Term.Tell(term.Event{Level: slog.LevelInfo, Msg: "stopped"}, "stopped; nothing was lost")
	return nil
}

// tellRefusal tells the mesh of an agent that was refused before there was a
// connection, where that MUST be audit-logged.
func (a *app) tellRefusal(ctx context.Context, cmd *cobra.Command, tel *telemetry, err error) {
	var refused *agents.Refusal
	if !errors.As(err, &refused) || !refused.MustAudit() {
		return
	}
	s, err := a.Open(ctx, cmd, session.Options{Signed: true, Tel: a.ofNode(tel)})
	if err == nil {
		err = errors.Join(refused.Tell(s.Node), s.Confirm())
		s.Close()
	}
	if err != nil {
		a.Log.Error("refusal not told to the mesh", "audit", true, "entity", refused.Entity, "err", err)
	}
}

// workerStatus tells the daemon and then a person, each trouble once.
func (a *app) workerStatus(d *daemon) func(natsconn.Status) {
	tell, once := session.ConnectionStatus(a.Term, true), &tellOnce{}
	return func(s natsconn.Status) {
		if !d.status(s) {
			return
		}
		if s.State == "error" && s.URL == "" && s.Err != nil && !once.first(s.Err.Error()) {
			return
		}
		tell(s)
	}
}

func (a *app) workerConfig(ctx context.Context, cmd *cobra.Command, s *session.Session, f *workerFlags, cfg *mesh.Config) error {
	a.ReplayConfig(cfg)
	cfg.Tree = f.tree
	cfg.Drain, cfg.MaxTimeout, cfg.Heartbeat = f.drain, f.maxTimeout, f.heartbeat
	if f.heartbeat == 0 {
		cfg.Heartbeat = -1
	}
	if f.taskEvents == "failures" {
		cfg.TaskEvents = mesh.EventsFailures
	}
	cfg.Quotas = f.quotas
	cfg.Quotas.Known, cfg.Quotas.Cap, cfg.Quotas.UnknownCap = f.known, envelope.Priority(f.cap), envelope.Priority(f.unknownCap)
	for _, limit := range []*float64{&cfg.Quotas.UnknownRate, &cfg.Quotas.UrgentRate} {
		if *limit == 0 {
			*limit = -1
		}
	}
	m, err := a.Subjects()
	if err != nil {
		return err
	}
	js, err := a.JetStream(s.Conn)
	if err != nil {
		return err
	}
	if err := a.useSeen(ctx, js, m, cfg); err != nil {
		return err
	}
	if err := a.lane(ctx, cmd, js, m, &f.lane, &f.counters, cfg); err != nil {
		return err
	}
	return a.useStores(ctx, js, m, f.journal, cfg)
}

// readAgents makes agents of the documents.
func (a *app) readAgents(cmd *cobra.Command, f *workerFlags, set *adapters.Set, tel *telemetry, files []string) ([]*agents.Agent, error) {
	opts := agents.Options{As: f.as, Concurrency: f.concurrency, Queue: f.queue, IntentsDir: f.intents, RefuseUnknown: f.refuseUnknown,
		KeyName: f.keyName, Logger: a.Log, Deprecated: f.deprecated, WorkQueues: f.workQueues}
	opts.Telemetry = a.agentTelemetry(cmd, tel, set.Telemetry(), f.content)
	set.Use(&opts)
	opts.Counters = &f.counters
	if f.queue == 0 {
		opts.Queue = -1
	}
	opts.ContextTokens, opts.RequireTools = f.contextTokens, f.requireTools
	var err error
	if opts.AcceptUnhonoured, err = acceptances(cmd, f.accept); err != nil {
		return nil, err
	}
	ring, err := a.Keyring(cmd)
	if err != nil {
		return nil, err
	}
	opts.StateKeys = ring
	opts.LostCalls = make(map[string]agents.LostCall)
	for _, spec := range f.lostCalls {
		name, what, ok := strings.Cut(spec, "=")
		if !ok {
			return nil, outcome.Usagef(cmd, "--lost-call %q: it is NAME=%s, NAME=%s or NAME=%s", spec, agents.LostRepeat, agents.LostTimeOut, agents.LostAsk)
		}
		opts.LostCalls[name] = agents.LostCall(what)
	}
	if opts.Tools, err = a.programTools(cmd, f.tools, set.ProgramEnv()); err != nil {
		return nil, err
	}
	if f.command != "" {
		if opts.Program, err = a.program(cmd, f.command, set.ProgramEnv()); err != nil {
			return nil, err
		}
	}
	if len(files) == 0 {
		agent, err := undocumented(f, opts)
		if err != nil {
			return nil, err
		}
		return []*agents.Agent{agent}, nil
	}
	var out []*agents.Agent
	var docs []*aaif.Document
	from := map[string]string{}
	for _, name := range files {
		data, err := a.ReadFile(name, aaif.DefaultMaxBytes+1)
		if err != nil {
			return nil, err
		}
		doc, err := parseDefinition(name, data)
		if err != nil {
			if bytes.Contains(data, []byte(aaif.SafetyRegulated)) { // as far as one can tell
				a.Log.Error("document refused", "audit", true, "file", name, "err", err)
			}
			return nil, err
		}
		docs = append(docs, doc)
		view := f.teams.view(name, f.as, doc)
		opts.Directory = view
		agent, err := agents.New(doc, opts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if other, taken := from[agent.Entity]; taken {
			return nil, outcome.Usagef(cmd, "%s and %s are both %s", other, name, agent.Entity)
		}
		from[agent.Entity] = name
		f.teams.add(agent.Entity, name, doc, view, f.command == "")
		out = append(out, agent)
	}
	a.warnUnusedAcceptances(opts.AcceptUnhonoured, out)
	return out, checkTools(cmd, f.tools, docs)
}

// undocumented is the agent of a program alone. Its intents are those of the
// operator's folder; plain text gets through where others are refused.
func undocumented(f *workerFlags, opts agents.Options) (*agents.Agent, error) {
	known := intents.NewRegistry()
	if f.intents != "" {
		if _, err := known.LoadDir(f.intents); err != nil {
			return nil, fmt.Errorf("--intents: %w", err)
		}
	}
	if f.refuseUnknown && !known.Has(intents.AgentAsk) {
		if err := known.Register(intents.FromIO(intents.AgentAsk, nil, nil)); err != nil {
			return nil, err
		}
	}
	return &agents.Agent{Program: opts.Program, Agent: mesh.Agent{Entity: f.as, Handler: opts.Program, Health: opts.Program.Health,
		Concurrency: max(f.concurrency, mesh.DefaultConcurrency), Queue: opts.Queue, Intents: known, RefuseUnknown: f.refuseUnknown}}, nil
}

// program is what --exec runs.
func (a *app) program(cmd *cobra.Command, line string, env []string) (*program.Program, error) {
	command, err := splitCommand(line)
	if err != nil {
		return nil, outcome.Usagef(cmd, "--exec: %w", err)
	}
	p, err := program.New(program.Config{Command: command, Env: env, Stderr: a.Term.ProgramOutput(), Logger: a.Log})
	if err != nil {
		return nil, outcome.Usagef(cmd, "--exec: %w", err)
	}
	return p, nil
}

// programTools are the function tools that --tool names.
func (a *app) programTools(cmd *cobra.Command, specs, env []string) (*tool.Registry, error) {
	reg := &tool.Registry{}
	for _, spec := range specs {
		name, line, ok := strings.Cut(spec, "=")
		if !ok {
			return nil, outcome.Usagef(cmd, "--tool %q: it is NAME=COMMAND", spec)
		}
		command, err := splitCommand(line)
		if err != nil {
			return nil, outcome.Usagef(cmd, "--tool %s: %w", name, err)
		}
		t, err := toolprogram.New(toolprogram.Config{Definition: tool.Definition{Name: name, Description: "Runs " + filepath.Base(command[0]) + "."},
			Command: command, Env: env, Log: a.Log})
		if err == nil {
			err = reg.Add(t)
		}
		if err != nil {
			return nil, outcome.Usagef(cmd, "--tool %s: %w", name, err)
		}
	}
	return reg, nil
}

// splitCommand splits an operator's command and finds its program, so that a
// name that is wrong is told at once.
func splitCommand(line string) ([]string, error) {
	command, err := agents.SplitCommand(line)
	if err != nil {
		return nil, err
	}
	if len(command) == 0 {
		return nil, errors.New("a command is needed")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, err
	}
	if command[0], err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return command, nil
}
