package agents

import (
	"errors"
	"fmt"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

// resolveModel returns the model that does an agent's work: Options.Model, the
// offline model, or the one that Options.Models makes of the document's model
// block (AAIF, LLM Provider Routing). Its calls are reported.
func resolveModel(def *aaif.Definition, opts Options) (model.Model, []aaif.Problem, error) {
	if opts.Model != nil {
		if opts.Budget.InDollars() {
			return nil, nil, errors.New("there is a budget in dollars, and the price of Options.Model is not known: bound its tokens, or use Options.Models with a catalogue")
		}
		return Asking(model.Price{}, nil, Reported(modelProvider(def), opts.Model)), nil, nil
	}
	m := def.Agent.Model
	if opts.Models != nil {
		return opts.Models(def, opts)
	}
	offline := "the offline model, model: {provider: custom, provider_id: builtin, preferred: echo}"
	switch {
	case !orchestrate.HasModel(def):
		return nil, nil, fmt.Errorf("/agent/model: the document names no model provider: give the worker a program (--exec), or use %s", offline)
	case m.Provider != aaif.ProviderCustom || m.ProviderID != builtin.ProviderID:
		return nil, nil, fmt.Errorf("/agent/model/provider: %s cannot be reached: the agent has no models (Options.Models) but %s", modelProvider(def), offline)
	}
	if err := CheckBuiltin(m.Preferred, m.Params); err != nil {
		return nil, nil, err
	}
	var notices []aaif.Problem
	if len(m.Fallbacks) > 0 {
		notices = append(notices, aaif.Problem{Pointer: "/agent/model/fallbacks", Rule: aaif.RuleNotHonoured, Severity: aaif.SeverityWarning,
			Message: "there are no other models here than the offline model"})
	}
	return Asking(model.Price{Known: true}, nil, Reported(modelProvider(def), builtin.New())), notices, nil
}

// CheckBuiltin returns what keeps the offline model from running a document: an
// unknown name, or an invalid script in params.extended.
func CheckBuiltin(name string, p *aaif.Params) error {
	switch name {
	case builtin.Echo, builtin.Filler:
	case builtin.Script:
		if p == nil {
			return errors.New("/agent/model/params/extended/script: the script is missing")
		}
		if err := builtin.Check(p.Extended); err != nil {
			return fmt.Errorf("/agent/model/params/extended: %w", err)
		}
	default:
		return fmt.Errorf("/agent/model/preferred: the offline model is %q, %q or %q, not %q", builtin.Echo, builtin.Script, builtin.Filler, name)
	}
	return nil
}
