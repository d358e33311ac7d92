package main

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/program"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	toolprogram "github.com/aeemesh/aeemesh/agents/tool/program"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/health"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/operator"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/telemetry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
)

// flagChild is a hidden flag of workers that another process of this program starts.
const flagChild = "child"

// workerFlags are those of "worker".
type workerFlags struct {
	as, command, intents, keyName, taskEvents, journal string
	concurrency, queue, contextTokens                  int
	drain, maxTimeout, heartbeat                       time.Duration
	tools, known, lostCalls, workQueues, accept        []string
	refuseUnknown, content, deprecated, register       bool
	requireTools, learn, child                         bool
	quotas                                             mesh.Quotas
	cap, unknownCap, templates, unknownKeys            string
	lane                                               laneFlags
	vitals                                             vitals
	machine                                            string
	operator                                           operator.Flags
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
with --exec. SIGTERM or Ctrl-C drains: the worker finishes what has begun and
refuses or releases the rest; a second one ends at once.`,
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
	flags.BoolVar(&f.requireTools, "require-tools", false, "refuse an agent that lacks a tool; otherwise its health is degraded (a function tool without a program or function is refused in any case)")
	flags.StringArrayVar(&f.lostCalls, "lost-call", nil, "`NAME=WHAT` to do with a lost call of the tool NAME (* for the others), one that was under way when the worker of a durable task died: repeat, timeout, or ask a person; repeatable (default: repeat tools that are safe to repeat, ask about the rest)")
	flags.IntVar(&f.contextTokens, "context-tokens", 0, "size of the model's context window; older turns that do not fit are left out (default what the catalogue knows of each)")
	flags.IntVar(&f.concurrency, "concurrency", 0, "tasks at once in this worker (default the document's, else 1 in the whole mesh; what a document declares can be lowered, not raised)")
	flags.IntVar(&f.queue, "queue", mesh.DefaultQueue, "tasks that may wait; beyond it senders get E_BUSY")
	flags.DurationVar(&f.drain, "drain", mesh.DefaultDrain, "how long to finish what has begun when stopped")
	flags.DurationVar(&f.maxTimeout, "max-timeout", mesh.DefaultMaxTimeout, "the longest that a task may take, whatever it asks for")
	flags.StringVar(&f.intents, "intents", "", "`directory` of further intents' schemas, <intent>.{task,result,error}.schema.json")
	flags.StringVar(&f.templates, "templates", "", "`PATH` of schema templates to publish: a file, a folder of *.sdsi.json, or a folder with one for each entity")
	flags.StringVar(&f.unknownKeys, "unknown-keys", "other", "what happens to keys that a template does not have: other (they go into its key \"other\") or refuse")
	flags.BoolVar(&f.learn, "learn", false, "let keys come of what clients put into the key \"other\" of the agents' schema templates; the configuration's section learning says how")
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
	f.operator.Add(flags)
	flags.StringArrayVar(&f.workQueues, "work-queue", nil, "`NAME` of a work queue (runtime.queue) whose durable tasks are done here; those of other queues are left to their workers; repeatable (default all)")
	flags.BoolVar(&f.deprecated, "allow-deprecated", false, "host agents whose status is deprecated")
	flags.StringArrayVar(&f.accept, "accept-unhonoured", nil, "`FIELD` of documents (compliance.audit_log) that you accept as not honoured, where the agent would be refused for it; of a pipeline's step with a condition in words (orchestration.subagents.1.when) that it holds; reported to the log and the mesh; repeatable")
	flags.BoolVar(&f.content, "telemetry-content", false, "put prompts, answers, and arguments and results of tools into spans")
	flags.BoolVar(&f.register, "register", false, "register the documents in the mesh's registry, so that teams find these agents (as \"agents import\" does)")
	f.lane.add(a.App, flags)
	f.vitals.add(flags)
	flags.StringVar(&f.machine, "machine", "", "`name` of this machine in listings of agents; none hides it and the process id (default its host name)")
	a.AddSignFlags(flags, session.SignAll|session.SignReplay)
	flags.BoolVar(&f.child, flagChild, false, "end as on SIGTERM when standard input is closed, as it is when the parent dies")
	_ = flags.MarkHidden(flagChild) // it is for the demo, and defined above
	groupWorkerFlags(flags)
	session.BindEnv(flags, "config", "AEEMESH_CONFIG")
	return briefHelp(a.App, c, workerCommon)
}

func (a *app) worker(ctx context.Context, cmd *cobra.Command, f *workerFlags, args []string) error {
	if len(args) == 0 {
		args = a.Documents
	}
	if len(args) == 0 && len(a.misread) > 0 {
		args = unnamed
	}
	if err := a.checkWorker(cmd, f, args); err != nil || len(a.misread) > 0 {
		return a.placed(cmd, err)
	}
	if f.child {
		ctx = session.UntilClosed(ctx, a.Stdin)
	}
	a.BeginLog(cmd)
	set, err := f.operator.Adapters(a.App, cmd)
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
	tel, err := telemetry.Start(ctx, a.App, f.vitals.readers()...)
	if err != nil {
		return err
	}
	defer tel.Stop()
	cfg, err := a.workerConfig(cmd, f, set, tel, args)
	if err != nil {
		return err
	}
	var own []*session.OwnKey
	cfg.Signer = func(entity string) (*sign.Signer, error) {
		s, err := a.WorkerSigner(entity)
		if s != nil {
			s = s.Clone()
			own = append(own, &session.OwnKey{Entity: entity, Signer: s})
		}
		return s, err
	}
	var keeper atomic.Pointer[session.KeyKeeper]
	cfg.Health = func(entity string) mesh.Health { return keeper.Load().Health(entity) }
	w, err := worker.New(cfg)
	if err == nil {
		err = checkTools(cmd, f.tools, w.Documents())
	}
	if err != nil {
		err = workerError(cmd, err)
		a.tellRefusal(ctx, cmd, tel, err)
		return err
	}
	keys, err := a.Keys()
	if err == nil {
		err = cfg.Node.Verifier.Ring.Replace(sign.Local, keys.Trusted)
	}
	if err != nil {
		return err
	}
	s, err := a.OpenWorker(ctx, cmd, w.Entities()[0], cfg.Node.Verifier, a.workerStatus())
	if err != nil && ctx.Err() != nil {
		a.Term.Tell(term.Event{Level: slog.LevelInfo, Msg: "stopped"}, "stopped before it began")
		return nil
	}
	if err != nil {
		return err
	}
	defer s.Close()
	f.vitals.look(func() (checks []health.Check) {
		for _, c := range w.Health() {
			checks = append(checks, health.Check(c))
		}
		return append(checks, keyChecks(keeper.Load())...)
	})
	reloading, stop := context.WithCancel(ctx)
	defer stop()
	for _, key := range own {
		key.Conn = s.Conn
	}
	keeper.Store(a.NewKeyKeeper(cfg.Node.Verifier.Ring, own...))
	keeper.Load().Refresh(reloading)
	go keeper.Load().Keep(reloading)
	if err := w.Serve(ctx, s.Conn); err != nil {
		return workerError(cmd, err)
	}
	a.Term.Tell(term.Event{Level: slog.LevelInfo, Msg: "stopped"}, "stopped; nothing was lost")
	return nil
}

// tellRefusal tells the mesh of an agent that was refused before there was a
// connection, where that MUST be audit-logged.
func (a *app) tellRefusal(ctx context.Context, cmd *cobra.Command, tel *telemetry.Exporters, err error) {
	var refused *agents.Refusal
	if !errors.As(err, &refused) || !refused.MustAudit() {
		return
	}
	s, err := a.Open(ctx, cmd, session.Options{Signed: true, Tel: tel.OfNode()})
	if err == nil {
		err = s.Confirm(func() error { return refused.Tell(s.Node) })
		s.Close()
	}
	if err != nil {
		a.Log.Error("refusal not reported to the mesh", "audit", true, "entity", refused.Entity, "err", err)
	}
}

// workerStatus prints each trouble of a worker's connection once, except for
// permissions whose absence the worker itself reports.
func (a *app) workerStatus() func(natsconn.Status) {
	tell, once := session.ConnectionStatus(a.Term, true), &tellOnce{}
	return func(s natsconn.Status) {
		if s.Err != nil && errors.Is(s.Err, nats.ErrPermissionViolation) {
			text := s.Err.Error()
			if strings.Contains(text, `"$JS.`) || strings.Contains(text, "Subscription") || strings.Contains(text, `"$KV.`+jetstream.BucketLanes) {
				return
			}
		}
		if s.State == "error" && s.URL == "" && s.Err != nil && !once.first(s.Err.Error()) {
			return
		}
		tell(s)
	}
}

// tellOnce lets each text through once, so that a message that recurs with
// every heartbeat does not fill a terminal.
type tellOnce struct {
	mu   sync.Mutex
	told map[string]bool
}

const maxTold = 256

func (t *tellOnce) first(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told == nil || len(t.told) > maxTold {
		t.told = map[string]bool{}
	}
	if t.told[text] {
		return false
	}
	t.told[text] = true
	return true
}

// program makes the program of --exec. Its standard error is redacted, because it may contain
// values that the program was given.
func (a *app) program(cmd *cobra.Command, line string, set *adapters.Set) (*program.Program, error) {
	command, err := splitCommand(line)
	if err == nil {
		err = findProgram(command)
	}
	if err != nil {
		return nil, outcome.Usagef(cmd, "--exec: %w", err)
	}
	p, err := program.New(program.Config{
		Command: command, Env: set.ProgramEnv(), Stderr: a.Term.ProgramOutput(), Redactor: set.Redactor(), Logger: a.redacted(set),
	})
	if err != nil {
		return nil, outcome.Usagef(cmd, "--exec: %w", err)
	}
	return p, nil
}

// redacted returns the log, which removes the secrets that the set knows.
func (a *app) redacted(set *adapters.Set) *slog.Logger {
	return slog.New(secret.LogHandler(a.Log.Handler(), set.Redactor()))
}

// programTools are the function tools that --tool names.
func (a *app) programTools(cmd *cobra.Command, specs []string, set *adapters.Set) (*tool.Registry, error) {
	reg := &tool.Registry{}
	for _, spec := range specs {
		name, command, err := toolCommand(cmd, spec)
		if err != nil {
			return nil, err
		}
		if err := findProgram(command); err != nil {
			return nil, outcome.Usagef(cmd, "--tool %s: %w", name, err)
		}
		t, err := toolprogram.New(toolprogram.Config{Definition: tool.Definition{Name: name, Description: "Runs " + filepath.Base(command[0]) + "."},
			Command: command, Env: set.ProgramEnv(), Log: a.redacted(set), Redactor: set.Redactor()})
		if err == nil {
			err = reg.Add(t)
		}
		if err != nil {
			return nil, outcome.Usagef(cmd, "--tool %s: %w", name, err)
		}
	}
	return reg, nil
}

// toolCommand reads a value of --tool.
func toolCommand(cmd *cobra.Command, spec string) (name string, command []string, err error) {
	name, line, ok := strings.Cut(spec, "=")
	if !ok {
		return "", nil, outcome.Usagef(cmd, "--tool %q: it is NAME=COMMAND", spec)
	}
	if err := (tool.Definition{Name: name}).Validate(); err != nil {
		return "", nil, outcome.Usagef(cmd, "--tool %q: %w", spec, err)
	}
	if command, err = splitCommand(line); err != nil {
		return "", nil, outcome.Usagef(cmd, "--tool %s: %w", name, err)
	}
	return name, command, nil
}

// splitCommand splits an operator's command.
func splitCommand(line string) ([]string, error) {
	command, err := agents.SplitCommand(line)
	if err == nil && len(command) == 0 {
		err = errors.New("a command is needed")
	}
	return command, err
}

// findProgram finds the program of a command, so that a name that is wrong is told
// at once.
func findProgram(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	command[0], err = filepath.Abs(path)
	return err
}
