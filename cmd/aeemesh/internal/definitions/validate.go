package definitions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/orchestrate/topology"
	"github.com/aeemesh/aeemesh/agents/tool/rest"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/state"
)

// verdict is the result of "validate" for one document.
type verdict struct {
	File     string         `json:"file"`
	Valid    bool           `json:"valid"`
	Kind     aaif.Kind      `json:"kind,omitempty"`
	Level    aaif.Level     `json:"level,omitempty"`
	Next     string         `json:"next_level,omitempty"`
	Missing  []aaif.Problem `json:"next_level_missing,omitempty"`
	Problems []aaif.Problem `json:"problems"`
	// Hosted says of a valid agent whether a worker here hosts it. Refused says
	// why not, and Ignored which fields are not honoured.
	Hosted  *bool          `json:"hosted,omitempty"`
	Refused []aaif.Problem `json:"refused,omitempty"`
	Ignored []aaif.Problem `json:"not_honoured,omitempty"`
}

// ValidateCommand checks documents, and the members of a team together.
func ValidateCommand(a *session.App) *cobra.Command {
	var levels, strict, inMesh bool
	c := session.Connects(&cobra.Command{
		Use:   "validate FILE...",
		Short: "Check AAIF documents",
		Long: `Checks AAIF documents, in JSON, YAML or CBOR: agents, agent states, platform
manifests, conformance reports. It reports everything that is wrong with the
form of each, and where. Of those whose form is right it reports conditions that
do not compile; teams that cannot work; warnings for the author; the conformance
level that an agent reaches; the fields that this program does not honour, and
whether a worker refuses the agent for them, as at compliance.safety_level
strict and regulated. "-" reads standard input.

The exit status is 1 if a document is invalid; with --strict also if there are
warnings, or if a worker here refuses the agent.

Several documents are also checked against one another: the agents that each
names are looked for among the others. It finds agents that call one another
without end, and outputs that the next step does not accept. Platform manifests
among them say which condition languages and patterns their workers know.

With --mesh it also asks the running mesh, by the usual flags of a connection,
and warns of agents that a document names, by entity, agent_id, name or skill,
and that are not known or served there.`,
		Example: `  aeemesh validate reviewer.yaml
  aeemesh validate team.yaml writer.yaml critic.yaml
  aeemesh validate team.yaml --mesh --nats nats://mesh:4222
  aeemesh validate agents/*.json --json | jq 'select(.valid | not)'
  cat agent.json | aeemesh validate -`,
		Args: outcome.Arguments("FILE..."),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			verdicts, docs, err := judgeDocuments(a, args)
			if err != nil {
				return err
			}
			if inMesh {
				if err := judgeInMesh(a, ctx, cmd, args, verdicts, docs); err != nil {
					return err
				}
			}
			bad := 0
			for _, v := range verdicts {
				if !v.Valid || strict && len(v.Problems)+len(v.Refused) > 0 {
					bad++
				}
				if a.Term.JSON {
					if err := a.Term.Object(v); err != nil {
						return err
					}
					continue
				}
				printVerdict(a, v, levels)
			}
			if bad > 0 {
				if len(args) > 1 {
					a.Term.Say("%d of %d documents are refused", bad, len(args))
				}
				return outcome.ErrQuiet
			}
			return nil
		}),
	})
	c.Flags().BoolVar(&inMesh, "mesh", false, "ask the running mesh, too, which of the named agents it has")
	c.Flags().BoolVar(&levels, "levels", false, "print what the next conformance level requires")
	c.Flags().BoolVar(&strict, "strict", false, "fail on warnings too, and on agents that a worker here refuses")
	return c
}

// judgeDocuments checks documents, each by itself and all against one another. It
// returns an error for input that cannot be read.
func judgeDocuments(a *session.App, names []string) ([]verdict, []*aaif.Document, error) {
	read := make([]source, len(names))
	for i, name := range names {
		data, err := a.ReadDocument(name, state.DefaultMaxBytes+1)
		if err != nil {
			return nil, nil, err
		}
		read[i] = source{name, data}
	}
	return judgeSources(read)
}

// source is an unparsed document: from a file, standard input or a URL.
type source struct {
	name string
	data []byte
}

// judgeSources checks sources, and returns the valid documents at the same
// indexes.
func judgeSources(read []source) ([]verdict, []*aaif.Document, error) {
	verdicts, docs := make([]verdict, len(read)), make([]*aaif.Document, len(read))
	var sources []topology.Source
	var of []int // the index of each source's verdict
	for i, s := range read {
		v, doc, err := judgeOne(s)
		if err != nil {
			return nil, nil, err
		}
		verdicts[i], docs[i] = v, doc
		if doc == nil {
			continue
		}
		source := topology.Source{Name: v.File, Doc: doc}
		if path, err := filepath.Abs(s.name); err == nil && s.name != "-" && !isURL(s.name) {
			source.Path = path
		}
		sources, of = append(sources, source), append(of, i)
	}
	for i, problems := range topology.Together(sources) {
		verdicts[of[i]].add(problems)
	}
	return verdicts, docs, nil
}

// add adds problems. If one of them is about a condition in words, the linter's
// general warning about it is removed.
func (v *verdict) add(problems []aaif.Problem) {
	v.Problems = slices.DeleteFunc(v.Problems, func(p aaif.Problem) bool {
		return p.Rule == aaif.RuleStringCondition && slices.ContainsFunc(problems, func(more aaif.Problem) bool { return more.Pointer == p.Pointer })
	})
	v.Problems = append(v.Problems, problems...)
	sorted.By(v.Problems, func(x, y aaif.Problem) int { return cmp.Compare(x.Severity, y.Severity) })
	for _, p := range problems {
		v.Valid = v.Valid && p.Severity != aaif.SeverityError
	}
}

// judgeOne checks a source by itself, and returns its document if it is valid.
func judgeOne(s source) (verdict, *aaif.Document, error) {
	shown := s.name
	if s.name == "-" {
		shown = "stdin"
	}
	v := verdict{File: shown, Problems: []aaif.Problem{}}
	doc, err := parseDocument(shown, s.data)
	var refused *aaif.Error
	switch {
	case errors.As(err, &refused):
		v.Problems = refused.Problems
		return v, nil, nil
	case err != nil:
		return v, nil, err
	}
	v.Valid, v.Kind = true, doc.Kind()
	v.Problems = append(v.Problems, doc.Lint()...)
	if doc.Kind() == aaif.KindState {
		v.add(doc.Locate(checksumOf(doc)))
	}
	if d := doc.Definition(); d != nil {
		if bad := condition.Check(doc); len(bad) > 0 {
			v.Valid = false
			v.Problems = append(bad, v.Problems...)
		}
		v.Problems = append(v.Problems, doc.Locate(slices.Concat(modelless(d), unplayable(d), uncallable(d), unfillable(d)))...)
		reached, next := d.Level()
		v.Level, v.Next, v.Missing = reached, string(next.Level), next.Missing
		if err := v.held(doc); err != nil {
			return v, nil, err
		}
	}
	return v, doc, nil
}

// parseDocument parses a document. The limits of agent states are wider than those of
// documents that authors write; whether a document is a state is known when it is read.
func parseDocument(name string, data []byte) (*aaif.Document, error) {
	doc, err := aaif.Parse(data, aaif.Options{Name: name})
	if !beyondLimits(err) {
		return doc, err
	}
	wide, wideErr := aaif.Parse(data, aaif.Options{Name: name, Kind: aaif.KindState, MaxBytes: state.DefaultMaxBytes, MaxDepth: state.MaxDepth})
	var refused *aaif.Error
	if beyondLimits(wideErr) || errors.As(wideErr, &refused) && refused.Problems[0].Rule == aaif.RuleKind {
		return nil, err
	}
	return wide, wideErr
}

func beyondLimits(err error) bool {
	var refused *aaif.Error
	return errors.As(err, &refused) && (refused.Problems[0].Rule == aaif.RuleTooLarge || refused.Problems[0].Rule == aaif.RuleTooDeep)
}

// checksumOf verifies the checksum of an agent state (AAIF, Agent State
// Document: a platform MUST verify it before it restores the run).
func checksumOf(doc *aaif.Document) []aaif.Problem {
	text, err := doc.MarshalJSON()
	if err != nil {
		return nil // a valid document can be encoded
	}
	p := aaif.Problem{Pointer: "/provenance/checksum", Rule: ruleChecksum, Severity: aaif.SeverityWarning}
	want, err := state.CheckChecksum(text)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, state.ErrNoChecksum):
		p.Message = err.Error() + ": no platform may restore a run from it"
	case errors.Is(err, state.ErrChecksum):
		p.Severity, p.Message = aaif.SeverityError, err.Error()+": the document was changed after it was made, and no platform may restore a run from it"
	default:
		p.Severity, p.Message = aaif.SeverityError, err.Error()+": no platform may restore a run from it"
	}
	if want != "" {
		p.Hint = "that of the document as it stands is " + want
	}
	return []aaif.Problem{p}
}

// ruleChecksum is the rule of problems with a state's checksum.
const ruleChecksum aaif.Rule = "checksum"

// modelless reports that nothing in the document does the work, which is then a program's. A team
// works, and other checks report a model that is not named whole.
func modelless(d *aaif.Definition) []aaif.Problem {
	m, o := d.Agent.Model, d.Agent.Orchestration
	if m != nil && (orchestrate.HasModel(d) || m.Preferred != "") || o != nil && len(o.Subagents)+len(o.Pipeline) > 0 {
		return nil
	}
	return []aaif.Problem{{Pointer: "/agent", Rule: aaif.RuleIncomplete, Severity: aaif.SeverityWarning,
		Message: "there is no model: a worker needs a program for this agent", Hint: "give model, or start it with worker --exec"}}
}

// unplayable reports a custom model that a worker has only if its operator has configured it.
func unplayable(d *aaif.Definition) []aaif.Problem {
	m := d.Agent.Model
	switch {
	case m == nil || m.Provider != aaif.ProviderCustom:
		return nil
	case m.ProviderID != builtin.ProviderID && m.BaseURL == "":
		p := aaif.Problem{Pointer: "/agent/model/provider_id", Rule: aaif.RuleIncomplete, Severity: aaif.SeverityWarning,
			Message: fmt.Sprintf("only a worker whose operator has models.providers.%s knows where this provider is", m.ProviderID), Hint: "give base_url"}
		if aaif.Nearest(m.ProviderID, []string{builtin.ProviderID}) != "" {
			p.Hint = fmt.Sprintf("did you mean %q, the offline model? Else give base_url", builtin.ProviderID)
		}
		return []aaif.Problem{p}
	}
	return nil
}

// unfillable reports why tools of protocol http can never be offered, whatever
// an operator permits.
func unfillable(d *aaif.Definition) (out []aaif.Problem) {
	for i := range d.Agent.Tools {
		t := &d.Agent.Tools[i]
		if t.EffectiveProtocol() != aaif.ProtocolHTTP || t.Endpoint == "" || t.ParametersSchema == nil { // other checks report these
			continue
		}
		if err := rest.Check(t); err != nil {
			out = append(out, aaif.Problem{Pointer: fmt.Sprintf("/agent/tools/%d/endpoint", i), Rule: aaif.RuleIncomplete, Severity: aaif.SeverityWarning, Message: "a worker does not offer this tool: " + err.Error()})
		}
	}
	return out
}

func printVerdict(a *session.App, v verdict, levels bool) {
	outcome := "ok"
	switch {
	case !v.Valid:
		outcome = "fail"
	case len(v.Problems)+len(v.Refused)+len(v.Ignored) > 0:
		outcome = "warn"
	}
	about := string(v.Kind)
	if v.Level != "" {
		about += ", level " + string(v.Level)
	}
	if !v.Valid {
		about = fmt.Sprintf("%d problems", len(v.Problems))
		if len(v.Problems) == 1 {
			about = "1 problem"
		}
	}
	if len(v.Refused) > 0 {
		about += ": a worker here refuses this agent"
	}
	a.Term.Line("%s %s: %s", a.Term.Mark(outcome), v.File, about)
	show := func(ps []aaif.Problem) {
		for _, p := range ps {
			a.Term.Line("     %s", a.Term.Problem(p))
		}
	}
	if len(v.Refused) > 0 {
		a.Term.Line("     a worker here refuses this agent:")
		show(v.Refused)
	}
	show(slices.DeleteFunc(slices.Clone(v.Problems), func(p aaif.Problem) bool { return slices.Contains(v.Refused, p) })) // each once
	if len(v.Ignored) > 0 {
		a.Term.Line("     not honoured by this program:")
		show(v.Ignored)
	}
	if levels && v.Next != "" {
		a.Term.Line("     for level %s:", v.Next)
		show(v.Missing)
	}
}

// held adds the verdict of a worker here about an agent that is valid by
// itself. Problems that were reported already are not repeated.
func (v *verdict) held(doc *aaif.Document) error {
	if !v.Valid {
		return nil
	}
	set, err := adapters.New(adapters.Config{}, adapters.Options{})
	if err != nil {
		return err
	}
	judged := agents.Judge(doc, agents.Options{Offer: set.Offer()})
	hosted := len(judged.Refusals) == 0
	v.Hosted, v.Refused = &hosted, doc.Locate(judged.Refusals)
	for _, p := range judged.Notices {
		switch p.Rule {
		case aaif.RuleNotHonoured, aaif.RuleCapability, aaif.RuleConditionLanguage, agents.RuleDelegated, agents.RuleEncrypt:
			v.Ignored = append(v.Ignored, p)
		}
	}
	v.Ignored = doc.Locate(v.Ignored)
	return set.Close()
}
