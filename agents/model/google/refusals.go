package google

import (
	"errors"
	"slices"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

const maxRefusals = 4 // things that one call leaves out after refusals, one after the other

// refusal is a set of features that a model refuses.
type refusal int64

const (
	penalties     refusal = 1 << iota // presence_penalty and frequency_penalty
	jsonWithTools                     // JSON beside tools: Gemini before 3
	jsonSchema                        // this schema
	signatures                        // signatures of thoughts that another endpoint made
)

var words = []struct {
	what  refusal
	says  *pattern.Pattern
	needs func(*model.Request) bool
}{
	{penalties, pattern.Of(`(?i)penalty is not enabled|penalt(y|ies).*not supported|unsupported.*penalt`),
		func(r *model.Request) bool {
			return r.Params.PresencePenalty != nil || r.Params.FrequencyPenalty != nil
		}},
	{jsonWithTools, pattern.Of(`(?i)function call.*(mime|json).*unsupported|tool use.*(mime|json).*unsupported|(mime|json).*(function call|tools?).*(unsupported|not supported)`),
		func(r *model.Request) bool { return asksJSON(r) && len(r.Tools) > 0 }},
	{jsonSchema, pattern.Of(`(?i)response_?(json_?)?schema`),
		func(r *model.Request) bool { return r.Format.Type == model.FormatJSONSchema }},
	{signatures, pattern.Of(`(?i)thought.?signature`),
		func(r *model.Request) bool {
			return slices.ContainsFunc(r.Messages, func(m model.Message) bool { return len(m.Provider) > 0 })
		}},
}

func asksJSON(r *model.Request) bool {
	return r.Format.Type == model.FormatJSON || r.Format.Type == model.FormatJSONSchema
}

// refused returns what the API refuses of a request beyond without; 0 if the
// error has another reason, or if the author has set the refused parameter.
func refused(err error, req *model.Request, without refusal) refusal {
	var r *report
	if !errors.As(err, &r) || r.status != 400 {
		return 0
	}
	for _, w := range words {
		if without&w.what == 0 && w.needs(req) && w.says.RE().MatchString(r.Message) {
			return w.what
		}
	}
	return 0
}

// features is the name under which [model.Refusals] stores all of them, as one note.
const features = "features"

// known returns what the request's model has refused before.
func (m *Model) known(req *model.Request) refusal {
	known := refusal(m.refusals.Of(req.Model)[features])
	if len(req.Tools) == 0 {
		known &^= jsonWithTools
	}
	return known
}

// keep remembers refusals that apply to every request of the model; a schema or
// a signature belongs to one request.
func (m *Model) keep(req *model.Request, newly refusal) {
	if newly &= penalties | jsonWithTools; newly != 0 {
		known := refusal(m.refusals.Of(req.Model)[features])
		m.refusals.Keep(req.Model, features, int64(known|newly))
	}
}
