package adapters

import (
	"maps"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/model"
)

// checkBounds refuses bounds of sections budget and tree that are 0 or less: in the sections' Go
// types 0 means that there is no bound. An amount of dollars that rounds to 0 counts as 0.
func (ps *problems) checkBounds(text jsontext.Value) {
	var given struct {
		Budget map[string]jsontext.Value `json:"budget"`
		Tree   map[string]jsontext.Value `json:"tree"`
	}
	if err := jsonv2.Unmarshal(text, &given); err != nil {
		return // Read has reported the values that do not fit
	}
	check := func(section string, members map[string]jsontext.Value, absent string) {
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if n, err := model.ParseUSD(string(members[name])); err == nil && n <= 0 {
				at := jsontext.Pointer("/" + section).AppendToken(name)
				ps.add(at, string(at)+": a bound must be greater than 0 (leave it out for "+absent+")", nil)
			}
		}
	}
	check("budget", given.Budget, "no bound")
	check("tree", given.Tree, "the default")
}
