package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// DefaultParallelTools is how many tools run at once for one task.
const DefaultParallelTools = 4

const (
	maxCalls = 64  // tools that a model may call in one turn
	maxTools = 256 // tools that a model is offered

	// listPatience is how long a run waits for a source to list its tools.
	listPatience = 15 * time.Second
)

// toolset holds the tools of a document. The tools that are available may
// change from run to run; see offer.
type toolset struct {
	entries  []*toolEntry
	parallel int
	policy   map[string]LostCall
	optional bool // a run begins even if a tool is temporarily not available
	strict   bool // the agent is refused if a tool can never be available
	required bool // the agent is refused if any tool is missing
	log      *slog.Logger
	secrets  *secret.Redactor
	schemas  *schema.Pool // the schemas in the document
	absent   []absence    // tools that this runtime cannot offer at all
}

// toolEntry is one entry of a document's tools. A source may list several tools
// for it.
type toolEntry struct {
	*aaif.Tool
	pointer string
	source  tool.Source
	limiter tool.Limiter // nil: none
	secrets *secret.Redactor
	team    bool // it stands for the members of a team

	mu         sync.Mutex
	listed     []listedTool      // the last list
	known      bool              // its source has listed its tools, or has none
	schemas    *schema.Pool      // the schemas of the last list; for a function, of the document
	left       map[string]string // why listed tools were left out the last time, by name
	lastReason string            // the last logged reason why the tool is not available
	lacks      string            // why no tool of the entry is offered, as published on the mesh; "": one is
}

// listedTool is a tool of a source, bare and guarded. guarded is nil if its
// schemas do not compile.
type listedTool struct {
	tool    tool.Tool
	guarded *tool.Guarded
}

// newToolset resolves the document's tools: functions by the operator's
// registry, others by Options.Open. A tool that cannot be used here is left
// out, and a notice says so.
func newToolset(entity string, def *aaif.Definition, opts Options) (*toolset, []aaif.Problem, error) {
	s := &toolset{parallel: opts.ParallelTools, policy: opts.LostCalls, required: opts.RequireTools, log: opts.Logger, secrets: opts.Redactor, schemas: new(schema.Pool)}
	if s.parallel <= 0 {
		s.parallel = DefaultParallelTools
	}
	if c := def.Agent.Compliance; c != nil && c.SafetyLevel != "" {
		s.optional, s.strict = c.SafetyLevel == aaif.SafetyMinimal, c.SafetyLevel.LeavesNothingOut()
	}
	registry := opts.Tools
	if registry == nil {
		registry = new(tool.Registry)
	}
	counters := opts.Counters
	if counters == nil {
		counters = new(localCounters)
	}
	var notices []aaif.Problem
	var bad []error
	names := make(map[string]bool)
	for i := range def.Agent.Tools {
		e := &toolEntry{Tool: &def.Agent.Tools[i], pointer: fmt.Sprintf("/agent/tools/%d", i), secrets: opts.Redactor, schemas: s.schemas}
		if names[e.Name] {
			bad = append(bad, fmt.Errorf("%s: there are two tools named %s", e.pointer, e.Name))
		}
		names[e.Name] = true
		if limiter := newRate(counters, entity, e.Tool, opts.Logger); limiter != nil {
			e.limiter = limiter
			if opts.Counters == nil {
				notices = append(notices, aaif.Problem{Pointer: e.pointer + "/rate_limit", Rule: RuleLimit, Severity: aaif.SeverityWarning,
					Message: "the limit is kept by each worker for itself: there are no counters for the whole mesh"})
			}
		}
		if lacks := opts.off(e.Tool); lacks != "" {
			notices = append(notices, aaif.Problem{Pointer: e.pointer, Rule: RuleTool, Severity: aaif.SeverityWarning,
				Message: fmt.Sprintf("tool %s is switched off: it depends on %s, which this runtime lacks", e.Name, lacks)})
			s.absent = append(s.absent, absence{e.Name, "it depends on " + lacks + ", which this worker lacks"})
			continue
		}
		if e.EffectiveProtocol() == aaif.ProtocolFunction {
			if err := e.function(registry, opts.team); err != nil {
				bad = append(bad, fmt.Errorf("%s: %w", e.pointer, err))
			}
			s.entries = append(s.entries, e)
			continue
		}
		if opts.Open == nil { // a notice says that the protocol is not supported
			s.absent = append(s.absent, absence{e.Name, fmt.Sprintf("this worker has no tools of protocol %s", e.EffectiveProtocol())})
			continue
		}
		source, err := opts.Open(e.Tool)
		if err != nil {
			notices = append(notices, aaif.Problem{Pointer: e.pointer, Rule: RuleTool, Severity: aaif.SeverityError,
				Message: fmt.Sprintf("tool %s is not offered to the model: %v", e.Name, err)})
			if flag := outbound.Permit(err); flag != "" && opts.permits != nil {
				opts.permits[e.pointer] = flag
			}
			s.absent = append(s.absent, absence{e.Name, "its operator has not allowed it, or has not set it up"})
			continue
		}
		e.source = source
		s.entries = append(s.entries, e)
	}
	if opts.team != nil {
		s.entries = append(s.entries, teamEntry(opts.team, opts.Redactor))
	}
	if len(bad) == 0 {
		bad = append(bad, s.checkLost(opts.LostCalls, registry), s.demand())
	}
	return s, notices, errors.Join(bad...)
}

// function resolves an entry in the registry of functions, and then among the
// members of the team.
func (e *toolEntry) function(registry *tool.Registry, team *orchestrate.Team) error {
	function, err := registry.Lookup(e.Name)
	if own, ok := teamFunction(team, e.Tool); err != nil && ok {
		function, err, e.team = own, nil, true
	}
	if err != nil {
		there := "none is registered"
		if names := registry.Names(); len(names) > 0 {
			there = "registered are " + strings.Join(names, ", ")
		}
		return fmt.Errorf("no function is named %s: %s: worker --tool %s=COMMAND gives it a program", e.Name, there, e.Name)
	}
	guarded, err := e.guard(function, tool.Definition{Name: e.Name, Description: e.Description, Parameters: e.ParametersSchema, Output: e.OutputSchema})
	if err != nil {
		return err
	}
	e.listed = []listedTool{{function, guarded}}
	return nil
}

// guard wraps a tool in the limits of this runtime and of the document. A
// definition without a name stands for the tool's own.
func (e *toolEntry) guard(t tool.Tool, d tool.Definition) (*tool.Guarded, error) {
	t = redact(t, e.secrets)
	if e.limiter != nil {
		t = tool.Limited(t, e.limiter)
	}
	return tool.Guard(t, tool.Options{
		Definition: d,
		Timeout:    e.timeout(),
		CacheTTL:   e.CacheTTLSeconds.Seconds(), // outside the rate limit: a cached result uses up none of it
		Compile:    tool.Within(e.schemas),
	})
}

// timeout bounds a call; 0 means the guard's default. A member of a team has no
// timeout but the task's deadline.
func (e *toolEntry) timeout() time.Duration {
	if d := e.TimeoutSeconds.Seconds(); d > 0 || !e.team {
		return d
	}
	return -1
}

// list returns the entry's current tools. A tool whose schemas do not compile
// is left out and logged.
func (e *toolEntry) list(ctx context.Context, log *slog.Logger) ([]listedTool, error) {
	if e.source == nil {
		return e.listed, nil
	}
	tools, err := e.source.Tools(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = e.known || err == nil || !mayPass(err)
	if err != nil {
		return nil, err
	}
	listed := len(tools)
	tools = tools[:min(listed, maxTools)] // the rest is not offered to a model
	if slices.EqualFunc(e.listed, tools, func(l listedTool, t tool.Tool) bool { return same(l.tool, t) }) {
		return e.listed, nil
	}
	e.schemas = e.schemas.Next()
	now := make([]listedTool, 0, len(tools))
	var why error // the first reason for leaving a tool out
	if listed > maxTools {
		why = fmt.Errorf("a model is told of %d at most", maxTools)
	}
	offered := 0
	for i, t := range tools {
		one := listedTool{tool: t}
		if i < len(e.listed) && same(e.listed[i].tool, t) && e.listed[i].guarded != nil && e.affords(t.Definition()) {
			one = e.listed[i]
		} else if one.guarded, err = e.guard(t, tool.Definition{}); err != nil {
			why = cmp.Or(why, err)
		}
		if one.guarded != nil {
			offered++
		}
		now = append(now, one)
	}
	if why != nil {
		log.Warn("tools are left out", "entry", e.Name, "listed", listed, "offered", offered, "err", why)
	}
	e.listed = now
	return now, nil
}

// affords compiles the schemas of an unchanged tool in the new pool, and
// reports whether they fit into its bounds.
func (e *toolEntry) affords(d tool.Definition) bool {
	for _, raw := range []json.RawMessage{d.Parameters, d.Output} {
		if len(raw) == 0 {
			continue
		}
		if _, err := e.schemas.Compile(raw); err != nil {
			return false
		}
	}
	return true
}

// same reports whether two tools are equal. Tools that are not comparable count
// as different.
func same(a, b tool.Tool) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// offered is the set of tools that a model may call in one run.
type offered struct {
	defs    []model.ToolDef
	tools   map[string]*tool.Guarded
	entries map[string]*toolEntry // by the names of the tools
	policy  map[string]LostCall
}

// offer asks all sources for their tools. If a source is temporarily
// unavailable, its last list is used, and calls of those tools may fail. If
// there is no last list, the run fails so that it can be retried: an agent
// without a tool that it relies on gives wrong answers. At safety level minimal
// the run begins without the tool. A tool that can never be available is left
// out and logged once; [toolset.warm] has already refused the agent if it needs
// the tool.
func (s *toolset) offer(ctx context.Context) (*offered, error) {
	lists, failed := s.ask(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for i, e := range s.entries {
		switch err := failed[i]; {
		case err == nil, len(lists[i]) > 0:
		case !mayPass(err):
			e.tell(s.log, "a tool is not available, and is not offered to the model", err)
		case s.optional:
			s.log.Warn("a run goes on without a tool that is not available", "tool", e.Name, "err", err)
		default:
			return nil, envelope.Errorf(envelope.CodeUnavailable, "the agent's tool %s is not available now: %w", e.Name, err)
		}
	}
	return s.compose(lists, failed), nil
}

// ask has all sources list their tools at the same time. A source that fails
// temporarily returns its last list beside the error.
func (s *toolset) ask(ctx context.Context) (lists [][]listedTool, failed []error) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	lists, failed = make([][]listedTool, len(s.entries)), make([]error, len(s.entries))
	var wg sync.WaitGroup
	for i, e := range s.entries {
		if e.source == nil {
			lists[i] = e.listed
			continue
		}
		wg.Go(func() {
			if lists[i], failed[i] = e.list(ctx, s.log); failed[i] != nil && mayPass(failed[i]) {
				lists[i] = e.last()
			}
		})
	}
	wg.Wait()
	return lists, failed
}

// compose returns the tools that a model is offered, and records for each entry
// why it offers none.
func (s *toolset) compose(lists [][]listedTool, failed []error) *offered {
	o := &offered{tools: make(map[string]*tool.Guarded), entries: make(map[string]*toolEntry), policy: s.policy}
	owners := s.owners(lists)
	for i, e := range s.entries {
		e.lacking(s.add(o, e, lists[i], owners), lists[i], failed[i])
	}
	return o
}

// owners returns the entries that the names of the document, and of the members
// of a team, belong to: a server that lists many tools must not be called
// instead of the tool that the document declares by that name, not even while
// that tool is not available. An entry whose tools have other names owns none.
func (s *toolset) owners(lists [][]listedTool) map[string]*toolEntry {
	owners := make(map[string]*toolEntry)
	for _, a := range s.absent {
		owners[a.tool] = nil
	}
	for i, e := range s.entries {
		if len(lists[i]) == 0 || slices.ContainsFunc(lists[i], func(t listedTool) bool { return t.tool.Definition().Name == e.Name }) {
			owners[e.Name] = e
		}
	}
	for i, e := range s.entries {
		for _, t := range lists[i] {
			if name := t.tool.Definition().Name; e.team && owners[name] == nil {
				owners[name] = e
			}
		}
	}
	return owners
}

// add offers an entry's tools and returns their number. If two tools have the same name, the tool
// of the name's owner is offered, or else the first. A tool that is left out is logged once.
func (s *toolset) add(o *offered, e *toolEntry, listed []listedTool, owners map[string]*toolEntry) (added int) {
	left := map[string]string{}
	for _, t := range listed {
		if t.guarded == nil {
			continue
		}
		d := t.guarded.Definition()
		owner, owned := owners[d.Name]
		switch {
		case o.tools[d.Name] != nil, owned && owner != e:
			left[d.Name] = "another one has its name"
			continue
		case len(o.defs) >= maxTools:
			left[d.Name] = fmt.Sprintf("there are more than %d", maxTools)
			continue
		}
		o.tools[d.Name], o.entries[d.Name] = t.guarded, e
		o.defs = append(o.defs, model.ToolDef{Name: d.Name, Description: d.Description, Parameters: d.Parameters})
		added++
	}
	e.leaveOut(left, s.log)
	return added
}

// leaveOut records why listed tools are left out, by name, and logs those that were offered
// before.
func (e *toolEntry) leaveOut(left map[string]string, log *slog.Logger) {
	e.mu.Lock()
	was := e.left
	e.left = left
	e.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if _, known := was[name]; !known {
			log.Warn("a tool is left out: "+left[name], "entry", e.Name, "tool", name)
		}
	}
}

// missing is the error that a model gets for calling a tool that does not
// exist.
func (o *offered) missing(name string) *tool.Error {
	names := make([]string, len(o.defs))
	for i, d := range o.defs {
		names[i] = d.Name
	}
	return &tool.Error{Kind: tool.ErrNotFound, Tool: name, Message: "there is no such tool; there are: " + strings.Join(names, ", ")}
}

// mayPass reports whether an error of listing may be temporary.
func mayPass(err error) bool {
	return errors.Is(err, tool.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// last returns the entry's last list.
func (e *toolEntry) last() []listedTool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listed
}

// tell logs why the entry is not available, once for each reason.
func (e *toolEntry) tell(log *slog.Logger, what string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lastReason != err.Error() {
		e.lastReason = err.Error()
		log.Warn(what, "tool", e.Name, "err", err)
	}
}

// warm has all sources list their tools before the first task. At safety levels strict and
// regulated it returns an error for each tool that can never be available as the document declares
// it; with Options.RequireTools, for each tool that is missing. The error is redacted, because it
// quotes servers.
func (s *toolset) warm(ctx context.Context) error {
	lists, failed := s.ask(ctx)
	var bad []error
	for i, e := range s.entries {
		switch err := failed[i]; {
		case err == nil || errors.Is(err, context.Canceled):
		case mayPass(err):
			e.tell(s.log, "a tool is not available yet", err)
		case s.strict:
			bad = append(bad, fmt.Errorf("%s: tool %s: %w", e.pointer, e.Name, err))
		default:
			e.tell(s.log, "a tool is not available, and is not offered to the model", err)
		}
	}
	s.compose(lists, failed)
	if ctx.Err() == nil {
		bad = append(bad, s.demand())
	}
	return s.secrets.Error(errors.Join(bad...))
}

// close closes all sources.
func (s *toolset) close() error {
	var bad []error
	for _, e := range s.entries {
		if e.source != nil {
			bad = append(bad, e.source.Close())
		}
	}
	return errors.Join(bad...)
}
