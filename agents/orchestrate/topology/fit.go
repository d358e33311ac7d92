package topology

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

// form is the part of a JSON Schema that is compared: the members of an object.
type form struct {
	Required   []string                   `json:"required"`
	Properties map[string]json.RawMessage `json:"properties"`
	Additional json.RawMessage            `json:"additionalProperties"`
}

// formOf reads a schema; ok is false if it contains nothing that can be
// compared.
func formOf(schema []byte) (f form, ok bool) {
	return f, len(schema) > 0 && json.Unmarshal(schema, &f) == nil
}

// typeOf returns the only type of a property's schema; "" if it allows several
// or names none.
func typeOf(schema json.RawMessage) string {
	var s struct {
		Type any `json:"type"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return ""
	}
	name, _ := s.Type.(string)
	return name
}

// misfit describes what the schema takes requires and the schema gives does not guarantee; "" if
// they fit. forGood reports that no value of the one ever fits the other.
func misfit(gives, takes []byte) (difference string, forGood bool) {
	out, ok := formOf(gives)
	in, alsoOK := formOf(takes)
	if !ok || !alsoOK || out.Properties == nil {
		return "", false
	}
	closed := string(out.Additional) == "false"
	for _, name := range in.Required {
		have, there := out.Properties[name]
		if !there {
			return fmt.Sprintf("%s is required", quote(name)), closed
		}
		a, b := typeOf(have), typeOf(in.Properties[name])
		if a != "" && b != "" && a != b && !(a == "integer" && b == "number") {
			return fmt.Sprintf("%s has to be of type %s, not %s", quote(name), b, a), slices.Contains(out.Required, name) && a != "number"
		}
	}
	return "", false
}

// fit compares the schemas of a team with those of its members, wherever an output becomes an input
// without a mapping.
func (g *group) fit(i int, t *team) {
	own := t.def.Agent.IO
	if own == nil {
		own = &aaif.IO{}
	}
	io := func(m *member) *aaif.IO {
		if m != nil {
			if k := g.one(i, m.ref); k >= 0 && g.teams[k].def.Agent.IO != nil {
				return g.teams[k].def.Agent.IO
			}
		}
		return &aaif.IO{}
	}
	report := func(pointer, difference string, forGood bool, format string, args ...any) {
		if difference == "" {
			return
		}
		severity := aaif.SeverityWarning
		if forGood {
			severity = aaif.SeverityError
		}
		t.add(severity, pointer, RuleContract, "map it in x-aeemesh, orchestration.steps.<alias>.input, or change one of the schemas", "%s: %s", fmt.Sprintf(format, args...), difference)
	}
	switch t.pattern {
	case pipeline:
		gives, giver := own.InputSchema, "the task"
		for j, name := range t.o.Pipeline {
			m := t.lookup(name)
			if m == nil {
				return
			}
			x := t.extras.Steps[m.alias]
			if x.Input == nil {
				difference, forGood := misfit(gives, io(m).InputSchema)
				report(fmt.Sprintf("%s/pipeline/%d", at, j), difference, forGood && m.when == always, "%s does not take what %s gives", quote(m.alias), giver)
			}
			if gives, giver = io(m).OutputSchema, quote(m.alias); m.when != always || x.OnError == orchestrate.OnErrorSkip {
				gives = nil // its output may be its own input, if it is skipped
			}
		}
		difference, forGood := misfit(gives, own.OutputSchema)
		report("/agent/io/output_schema", difference, forGood, "the last step, %s, does not give it", giver)
	case swarm, inTurn, router:
		for j := range t.members[:t.listed] {
			m := &t.members[j]
			if k := g.one(i, m.ref); k >= 0 && m.is(working) && t.extras.VoteOn != "" && t.votes() && plainText(&g.teams[k].def.Agent) && !strings.HasPrefix(t.extras.VoteOn+"/", "/text/") {
				t.add(aaif.SeverityWarning, m.pointer, RuleContract, "set its model's response_format to json", "%s has no vote: it answers in plain text, where there is nothing at %s", quote(m.alias), t.extras.VoteOn)
			}
			if !m.is(working) || t.extras.Steps[m.alias].Input != nil {
				continue
			}
			difference, forGood := misfit(own.InputSchema, io(m).InputSchema)
			report(m.pointer, difference, forGood && m.when == always && t.pattern != router, "%s does not take what the team is given", quote(m.alias))
		}
	}
}

// plainText reports whether an agent's results are {"text": …} and nothing
// else.
func plainText(a *aaif.Agent) bool {
	if a.Model == nil || a.Orchestration != nil || a.IO != nil && (a.IO.OutputSchema != nil || a.IO.Format == aaif.IOJSON || a.IO.Format == aaif.IOStructured) {
		return false
	}
	f := a.Model.ResponseFormat
	return f != aaif.ResponseJSON && f != aaif.ResponseJSONSchema
}

// votes reports whether the team decides by majority.
func (t *team) votes() bool { return t.agreesBy(aaif.ConsensusMajorityVote) }

// scores reports whether the team's members are scored.
func (t *team) scores() bool { return t.agreesBy(aaif.ConsensusBestOfN) }

// agreesBy reports whether the team is a swarm with a strategy.
func (t *team) agreesBy(s aaif.ConsensusStrategy) bool {
	return (t.pattern == swarm || t.pattern == inTurn) && t.o.Consensus != nil && t.o.Consensus.Strategy == s
}
