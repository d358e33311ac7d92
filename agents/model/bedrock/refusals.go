package bedrock

import (
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// concessions are the parameters and features that a model may refuse, each with a pattern of its
// refusals.
var concessions = []struct {
	name string
	says *pattern.Pattern
}{
	{"top_p", pattern.Of(`(?i)\btop_?p\b`)},
	{"temperature", pattern.Of(`(?i)\btemperature\b`)},
	{"stop", pattern.Of(`(?i)\bstop_?sequences\b`)},
	{streaming, pattern.Of(`(?i)stream`)},
	{system, pattern.Of(`(?i)\bsystem\b`)},
	{native, pattern.Of(`(?i)output_?config|output.?format|text_?format|structured.?output|json.?schema|\bschema`)},
}

var saysTools = pattern.Of(`(?i)tool_?config|tool_?spec|input_?schema`)

// retryWithoutRefused reports whether to send a refused request again without a parameter or feature that this
// package added, and remembers what to leave out.
func (a *ask) retryWithoutRefused(r *report) bool {
	if r.code != invalid || len(a.turn.blocks) > 0 || model.TooLong(r.message) {
		return false
	}
	feature := a.refusedFeature(r.message)
	if feature == "" || a.refused[feature] != 0 {
		return false
	}
	a.refused[feature] = 1
	a.refusals.Keep(a.req.Model, feature, 1)
	return true
}

// refusedFeature returns the parameter or feature that a refusal is about, if this package sent it; ""
// otherwise.
func (a *ask) refusedFeature(message string) string {
	p := a.req.Params
	hasSystem := a.schema() == nil && a.req.Format.Type != "" && a.req.Format.Type != model.FormatText
	for _, m := range a.req.Messages {
		hasSystem = hasSystem || m.Role == model.RoleSystem
	}
	sent := map[string]bool{
		"top_p":       p.TopP != nil && !a.extends("top_p"),
		"temperature": p.Temperature != nil && !a.extends("temperature"),
		"stop":        len(p.Stop) > 0 && !a.extends("stop"),
		streaming:     a.turn.onDelta != nil,
		system:        hasSystem,
		native:        a.schema() != nil && !saysTools.RE().MatchString(message),
	}
	for _, c := range concessions {
		switch {
		case !sent[c.name] || !c.says.RE().MatchString(message):
		case c.name == "top_p" && strings.Contains(strings.ToLower(message), "temperature"): // only one of them
			return both
		case c.name == native:
			return a.nativeSchema()
		default:
			return c.name
		}
	}
	return ""
}
