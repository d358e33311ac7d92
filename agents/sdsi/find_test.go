package sdsi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/intents/template"
)

// A scenario with any name is found, even if the list in the agent's metadata is truncated.
func TestFindAScenario(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	var all []*template.Template
	for i := range 40 {
		tpl := tram(t, fmt.Sprint("tram_v", i))
		tpl.Scenario = fmt.Sprint("tram ", i, strings.Repeat("x", 110))
		all = append(all, tpl)
	}
	all[0].Scenario, all[1].Scenario, all[2].Scenario = "rent, or buy", "buy", "zoo"
	r.serve(r.desk(sdsi.DeskConfig{}, all...), sells, nil)
	c := sdsi.NewClient(r.client)
	for scenario, want := range map[string]int{"rent, or buy": 1, "buy": 1, "zoo": 1, "rent": 0, " or buy": 0, "bus": 0, "": 40} {
		var offers []sdsi.Offer
		var err error
		for wait := 200 * time.Millisecond; wait < time.Minute; wait *= 4 { // a busy machine answers late
			ctx, cancel := context.WithTimeout(t.Context(), wait+10*time.Second)
			offers, err = c.Find(ctx, "", scenario, wait)
			cancel()
			if len(offers) == want {
				break
			}
		}
		if len(offers) != want || (want == 0) != errors.Is(err, sdsi.ErrNotOffered) {
			text, _ := json.Marshal(offers)
			t.Errorf("%q: %s, %v", scenario, text, err)
		}
	}
}
