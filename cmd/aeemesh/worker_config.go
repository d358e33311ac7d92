package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/definitions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/telemetry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// uses are the values of --durable, --journal and --replay-scope.
var uses = map[string]worker.Use{
	"auto": worker.Auto, "on": worker.On, "jetstream": worker.On, "mesh": worker.On, "off": worker.Off, "memory": worker.Off, "process": worker.Off,
}

// workerConfig returns what the flags of a worker say.
func (a *app) workerConfig(cmd *cobra.Command, f *workerFlags, set *adapters.Set, tel *telemetry.Exporters, files []string) (worker.Config, error) {
	cfg := worker.Config{Adapters: set, Domain: a.Conn.Domain, Durable: uses[f.lane.durable], Fenced: f.lane.fenced, Journal: uses[f.journal],
		Replay: uses[a.Sign.ReplayScope], Register: f.register, Machine: f.machine, Templates: f.templates, Learn: f.learn, Wait: a.Conn.Wait(), ReadFile: a.ReadDocument, Logger: a.Log, Hooks: a.workerHooks(f)}
	var err error
	if f.unknownKeys == "refuse" {
		cfg.UnknownKeys = template.UnknownRefused
	}
	if cfg.Options, err = a.agentOptions(cmd, f, set, tel); err != nil {
		return cfg, err
	}
	only := worker.Agent{As: f.as}
	if f.command != "" {
		if only.Program, err = a.program(cmd, f.command, set); err != nil {
			return cfg, err
		}
	}
	if cfg.Node, err = a.nodeConfig(f); err != nil {
		return cfg, err
	}
	cfg.Node.TracerProvider, cfg.Node.MeterProvider = tel.Tracer, tel.Meter
	remotes, err := remotesOf(a.App, cmd, &f.lane.remotes)
	if err != nil {
		return cfg, err
	}
	cfg.Node.Durable = &mesh.Durable{Codec: state.Codec{Seal: cfg.Options.StateKeys, AcceptClear: a.AcceptClear}, Lease: f.lane.lease, Create: !f.lane.noCreate, KeepTasks: f.lane.keepTasks,
		MaxTimeout: f.lane.timeout, Operators: f.lane.operators, Platform: a.Platform, Remotes: remotes}
	if len(files) <= 1 {
		only.File = strings.Join(files, "")
		cfg.Agents = []worker.Agent{only}
		return cfg, nil
	}
	for _, name := range files {
		cfg.Agents = append(cfg.Agents, worker.Agent{File: name})
	}
	return cfg, nil
}

// agentTelemetry returns where agents send telemetry, and how much of it.
func (a *app) agentTelemetry(cmd *cobra.Command, allowed adapters.Telemetry, tel *telemetry.Exporters, content bool) agents.Telemetry {
	out := agents.Telemetry{Tracer: tel.Tracer, Meter: tel.Meter, Content: content || allowed.Content}
	out.Endpoint = func(endpoint string) (trace.TracerProvider, metric.MeterProvider, error) {
		u, err := allowed.Collector(endpoint)
		if err != nil {
			return nil, nil, err
		}
		return tel.Collector(u)
	}
	if !a.IsSet(cmd, "log-level") { // the operator's setting takes precedence over a document's
		out.Logger = func(level slog.Level) *slog.Logger {
			log, err := a.LoggerAt(level)
			if err != nil {
				return a.Log // the format was checked before
			}
			return log
		}
	}
	return out
}

// agentOptions returns what the flags say about all agents.
func (a *app) agentOptions(cmd *cobra.Command, f *workerFlags, set *adapters.Set, tel *telemetry.Exporters) (agents.Options, error) {
	opts := agents.Options{Concurrency: f.concurrency, Queue: f.queue, IntentsDir: f.intents, RefuseUnknown: f.refuseUnknown, KeyName: f.keyName,
		Deprecated: f.deprecated, WorkQueues: f.workQueues, ContextTokens: f.contextTokens, RequireTools: f.requireTools,
		LostCalls: map[string]agents.LostCall{}, Telemetry: a.agentTelemetry(cmd, set.Telemetry(), tel, f.content)}
	if f.queue == 0 {
		opts.Queue = -1
	}
	var err error
	if opts.AcceptUnhonoured, err = acceptances(cmd, f.accept); err != nil {
		return opts, err
	}
	if opts.StateKeys, err = a.Keyring(cmd); err != nil {
		return opts, err
	}
	for _, spec := range f.lostCalls {
		name, what, err := lostCall(cmd, spec)
		if err != nil {
			return opts, err
		}
		opts.LostCalls[name] = what
	}
	opts.Tools, err = a.programTools(cmd, f.tools, set)
	return opts, err
}

// lostCall reads a value of --lost-call.
func lostCall(cmd *cobra.Command, spec string) (name string, what agents.LostCall, err error) {
	name, text, _ := strings.Cut(spec, "=")
	switch what = agents.LostCall(text); {
	case name == "":
	case what == agents.LostRepeat, what == agents.LostTimeOut, what == agents.LostAsk:
		return name, what, nil
	}
	return "", "", outcome.Usagef(cmd, "--lost-call %q: it is NAME=%s, NAME=%s or NAME=%s", spec, agents.LostRepeat, agents.LostTimeOut, agents.LostAsk)
}

// nodeConfig returns what the flags say about the node. The ring of its verifier
// is empty.
func (a *app) nodeConfig(f *workerFlags) (mesh.Config, error) {
	mode, err := sign.ParseMode(a.Sign.Mode)
	if err != nil {
		return mesh.Config{}, outcome.Usagef(nil, "--signatures: %w", err)
	}
	cfg := mesh.Config{Prefix: a.Conn.Prefix, Version: version(), Drain: f.drain, MaxTimeout: f.maxTimeout, Heartbeat: f.heartbeat, Quotas: f.quotas,
		Verifier: sign.Verifier{Ring: &sign.Ring{}, Mode: mode}}
	a.ReplayConfig(&cfg)
	if f.heartbeat == 0 {
		cfg.Heartbeat = -1
	}
	if f.taskEvents == "failures" {
		cfg.TaskEvents = mesh.EventsFailures
	}
	cfg.Quotas.Known, cfg.Quotas.Cap, cfg.Quotas.UnknownCap = f.known, envelope.Priority(f.cap), envelope.Priority(f.unknownCap)
	cfg.Quotas.UnknownBurst = max(1, f.quotas.UnknownBurst) // 0 would be the default
	for _, limit := range []*float64{&cfg.Quotas.UnknownRate, &cfg.Quotas.UrgentRate} {
		if *limit == 0 {
			*limit = -1
		}
	}
	return cfg, nil
}

// workerHooks print what an operator should see.
func (a *app) workerHooks(f *workerFlags) worker.Hooks {
	return worker.Hooks{
		Notices: a.Term.Notices,
		Unneeded: func(pointer string) {
			a.Term.Warn("--accept-unhonoured %s makes no difference: what stands there is honoured, or nothing stands there", aaif.FieldPath(pointer))
		},
		References: func(entity string, answered, of int, missing []aaif.Problem) {
			if len(missing) == 0 {
				a.Term.Note("%s: %d of %d references are answered", entity, of, of)
			} else if answered > 0 {
				a.Term.Warn("%s: %d of %d references are answered", entity, answered, of)
			}
			a.Term.Notices(entity, missing)
		},
		NoLane: func(entity string, err error) {
			level := slog.LevelWarn
			if errors.Is(err, jetstream.ErrNoLane) && !f.lane.fenced && !noInbox(err) {
				level = slog.LevelInfo // the operator intends it
			}
			a.Log.Log(nil, level, "live tasks only, until the durable lane is available (--durable off means that, --durable on insists on both)",
				"err", err, "hint", laneHelp(err, entity))
		},
		Serving: a.announce,
		Ready:   func(entities []string) { f.vitals.serves(strings.Join(entities, ", ")) },
		Draining: func() {
			f.vitals.ends(f.drain)
			a.Term.Tell(term.Event{Level: slog.LevelInfo, Msg: "draining", Attrs: []any{"at_most", f.drain}},
				"draining: what has begun is finished, for at most %v; a second signal ends at once", f.drain)
		},
	}
}

// announce prints which agent is served.
func (a *app) announce(s worker.Serving) {
	a.Term.Logs.Store(term.LogServing)
	if !a.Term.JSON || a.Term.Records != nil {
		durably := ""
		if s.WorkSubject != "" {
			durably = ", durable tasks on " + s.WorkSubject
		}
		a.Term.Tell(term.Event{Level: slog.LevelInfo, Style: term.StyleGood, Msg: "serving", Attrs: []any{"entity", s.Entity, "instance", s.Instance, "subject", s.Subject,
			"ask_subject", s.AskSubject, "work_subject", s.WorkSubject, "agent_version", s.Version, "concurrency", s.Concurrency}},
			"serving %s on %s and %s%s, %d at once, as instance %s", s.Entity, s.Subject, s.AskSubject, durably, s.Concurrency, s.Instance)
	}
	if !a.Term.JSON {
		return
	}
	// A terminal that was closed must not end a worker.
	if err := a.Term.Object(map[string]any{"entity": s.Entity, "instance": s.Instance, "subject": s.Subject, "ask_subject": s.AskSubject, "work_subject": s.WorkSubject,
		"agent_id": s.AgentID, "version": s.Version, "concurrency": s.Concurrency, "server": s.Server}); err != nil {
		a.Log.Warn("not told", "entity", s.Entity, "err", err)
	}
}

// workerError puts an error of package worker into the words of the flags.
func workerError(cmd *cobra.Command, err error) error {
	var unread *worker.DocumentError
	var denied *worker.DeniedError
	var bad *worker.ConfigError
	switch {
	case errors.As(err, &unread):
		return outcome.Hinted(err, "%s", definitions.Hint(unread.File, unread.Err))
	case errors.As(err, &denied):
		return outcome.Hinted(err, "\"aeemesh auth perms %s\" prints what it needs.", denied.Entity)
	case !errors.As(err, &bad):
		return err
	}
	var window *worker.WindowError
	switch bad.Field {
	case "Agents", "Node":
		return &outcome.UsageError{Err: bad.Err, Cmd: cmd}
	case "Durable":
		return outcome.Hinted(fmt.Errorf("--durable on: %w", bad.Err), "\"aeemesh apply\" makes the streams and buckets.")
	case "IntentsDir":
		return fmt.Errorf("--intents: %w", bad.Err)
	case "Templates":
		hint := "\"aeemesh schema check PATH\" checks them without a server."
		if errors.Is(bad.Err, sdsi.ErrTaken) {
			hint = "\"aeemesh schema history ENTITY\" lists the versions that are stored."
		}
		return outcome.Hinted(fmt.Errorf("--templates: %w", bad.Err), "%s", hint)
	case "Learn":
		return fmt.Errorf("--learn: %w", bad.Err)
	case "Register":
		return definitions.RegistryError(fmt.Errorf("--register: %w", bad.Err))
	case "Journal":
		err = fmt.Errorf("--journal jetstream: %w", bad.Err)
		if errors.Is(err, worker.ErrNoStreams) {
			err = outcome.Hinted(err, "\"aeemesh apply\" makes them.")
		}
	case "Replay":
		switch {
		case errors.As(err, &window):
			return outcome.Hinted(fmt.Errorf("ids have to be remembered for %v (--replay-window, or twice the --skew), and the mesh's bucket keeps them for %v: older envelopes could come again", window.Want, window.Kept),
				"\"aeemesh apply --limit %s=max_age:%v\" keeps them for longer; --replay-scope process does without the bucket.", jetstream.BucketSeen, window.Want)
		case errors.Is(err, jetstream.ErrNotFound):
			return outcome.Hinted(fmt.Errorf("--replay-scope mesh: %w", bad.Err), "\"aeemesh apply\" makes the bucket.")
		}
		return outcome.Hinted(fmt.Errorf("--replay-scope mesh: %w", bad.Err), "\"aeemesh auth perms ENTITY --replay-scope mesh\" prints the permissions that it needs.")
	}
	return err
}
