package directory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
)

// RuleSubagent is the rule of the problems that [View.Check] reports.
const RuleSubagent = "subagent"

// maxNotices bounds the references that are reported one by one.
const maxNotices = 16

// Check reports the references of a definition that cannot be resolved: an error for each that can
// never be resolved, a warning for each for which no agent answers now. It stops when ctx ends, and
// then reports which references were not checked.
func (v *View) Check(ctx context.Context, def *aaif.Definition) []aaif.Problem {
	return v.checkThose(ctx, references(def))
}

// Present is Check for the references that need only the mesh. It does not read files and URLs,
// which need the operator's permission.
func (v *View) Present(ctx context.Context, def *aaif.Definition) []aaif.Problem {
	return v.checkThose(ctx, slices.DeleteFunc(references(def), func(r reference) bool {
		scheme, _, ok := schemeOf(r.ref)
		return !ok && orchestrate.IsPath(r.ref) || ok && (scheme == "file" || scheme == "https" || scheme == "http")
	}))
}

func (v *View) checkThose(ctx context.Context, all []reference) []aaif.Problem {
	var out []aaif.Problem
	silent := 0
	for _, r := range all {
		if ctx.Err() != nil {
			return append(out, warn("/agent/orchestration", "not all subagents could be looked for in time", ""))
		}
		problem, found := v.check(ctx, r)
		switch {
		case !found:
		case problem.Severity == aaif.SeverityError || len(out) < maxNotices:
			out = append(out, problem)
		default:
			silent++
		}
	}
	if silent > 0 {
		out = append(out, warn("/agent/orchestration", fmt.Sprintf("no worker answers for %d more references now", silent), ""))
	}
	return out
}

func warn(pointer, message, hint string) aaif.Problem {
	return aaif.Problem{Pointer: pointer, Rule: RuleSubagent, Severity: aaif.SeverityWarning, Message: message, Hint: hint}
}

// Never reports the references of a definition that can never be resolved with this configuration:
// the errors of [View.Check], without asking the mesh for running workers.
func (v *View) Never(ctx context.Context, def *aaif.Definition) []aaif.Problem {
	var out []aaif.Problem
	for _, r := range references(def) {
		if scheme, _, ok := schemeOf(r.ref); ctx.Err() != nil || ok && scheme == "skill" || !ok && !orchestrate.IsPath(r.ref) && subject.EntityType(r.ref) != subject.TypeBus {
			continue
		}
		if p, found := v.problem(ctx, r); found && p.Severity == aaif.SeverityError {
			out = append(out, p)
		}
	}
	return out
}

// check returns the problem of one reference, if it has one.
func (v *View) check(ctx context.Context, r reference) (aaif.Problem, bool) {
	m, err := v.Find(ctx, r.ref)
	switch {
	case err != nil:
		return problemOf(r, err), true
	case m.Entity == v.asker.Entity, subject.EntityType(m.Entity) == subject.TypeHuman, v.dir.answers(ctx, m.Entity):
		return aaif.Problem{}, false
	}
	name := m.Entity
	if name != r.ref {
		name = fmt.Sprintf("%s, who is %q", name, clip.Text(r.ref, 120))
	}
	hint := "live tasks for it fail until a worker serves it; durable ones wait"
	if r.receives {
		hint = "tasks that are delegated to it fail until a worker serves it; durable ones wait where it had a durable lane before"
	}
	return warn(r.pointer, "no worker answers now for "+name, hint), true
}

// problem returns why a reference does not resolve to a member.
func (v *View) problem(ctx context.Context, r reference) (aaif.Problem, bool) {
	if _, err := v.Find(ctx, r.ref); err != nil {
		return problemOf(r, err), true
	}
	return aaif.Problem{}, false
}

// problemOf converts an error of [View.Find] to a problem of the document.
func problemOf(r reference, err error) aaif.Problem {
	p := warn(r.pointer, err.Error(), "")
	if why := (*Problem)(nil); errors.As(err, &why) {
		p.Message, p.Hint = (&Problem{Ref: why.Ref, Why: why.Why, Cause: why.Cause}).Error(), why.Hint
	}
	if errors.Is(err, orchestrate.ErrUnknown) {
		p.Severity = aaif.SeverityError
	}
	return p
}

// answers reports whether a worker serves the entity now.
func (d *Directory) answers(ctx context.Context, entity string) bool {
	if !d.knows(ctx) {
		return true // the mesh cannot be asked, so no problem is reported
	}
	d.mu.Lock()
	w := d.roster.workers[entity]
	d.mu.Unlock()
	return w != nil || d.ask(ctx, entity) != ""
}

// References returns the references in a definition's subagents, steps,
// referee, handoff rules, synthesizer and escalations, as they are written
// there and without duplicates. Aliases are left out.
func References(def *aaif.Definition) []string {
	var out []string
	for _, r := range references(def) {
		if !slices.Contains(out, r.ref) {
			out = append(out, r.ref)
		}
	}
	return out
}

// reference is a place in a definition that refers to an agent, service or
// person.
type reference struct {
	pointer, ref string
	receives     bool // tasks are delegated to it, not sent as calls
}

// references returns all references of a definition, without aliases.
func references(def *aaif.Definition) []reference {
	o := def.Agent.Orchestration
	if o == nil {
		return nil
	}
	const at = "/agent/orchestration"
	var out []reference
	known := map[string]bool{}
	for i, s := range o.Subagents {
		known[s.Alias] = s.Alias != ""
		if !slices.ContainsFunc(out, func(r reference) bool { return r.ref == s.Ref }) {
			out = append(out, reference{pointer: fmt.Sprintf("%s/subagents/%d/ref", at, i), ref: s.Ref})
		}
		known[s.Ref] = true
	}
	add := func(pointer, name string) {
		if name != "" && !known[name] {
			known[name] = true
			out = append(out, reference{pointer: pointer, ref: name})
		}
	}
	for i, name := range o.Pipeline {
		add(fmt.Sprintf("%s/pipeline/%d", at, i), name)
	}
	if o.Consensus != nil {
		add(at+"/consensus/referee_agent", o.Consensus.RefereeAgent)
	}
	called := len(out)
	for i, h := range o.Handoff {
		add(fmt.Sprintf("%s/handoff/%d/target_agent", at, i), h.TargetAgent)
	}
	for i := range out[called:] {
		out[called+i].receives = true
	}
	extras, err := orchestrate.ExtrasOf(def)
	if err != nil {
		return out // the extension's own reader reports the error
	}
	const ours = "/" + orchestrate.Extension + "/orchestration"
	add(ours+"/synthesizer", extras.Synthesizer)
	for _, alias := range slices.Sorted(maps.Keys(extras.Steps)) {
		add(string(jsontext.Pointer(ours+"/steps").AppendToken(alias))+"/escalate_to", extras.Steps[alias].EscalateTo)
	}
	return out
}
