package evolve

import (
	"slices"
	"testing"

	"github.com/aeemesh/aeemesh/intents/template"
)

// What a client means by a key of its own says nothing of another client's key of that name.
func TestAJudgementIsOfTheClientsOwnKey(t *testing.T) {
	t.Parallel()
	p := newPool(t, Config{Personal: true})
	me, other := Client("agent.me"), Client("agent.other")
	for _, owner := range []string{me, other, ""} {
		p.doc.Lives = append(p.doc.Lives, &life{Key: template.Key{Name: "legroom"}, Owner: owner, State: Experimental})
	}
	p.Judge("legroom", me, false, start)
	var judged []int
	for _, k := range p.Keys(start) {
		judged = append(judged, k.Metrics.Judged)
	}
	if !slices.Equal(judged, []int{1, 0, 1}) {
		t.Errorf("judged: %v", judged)
	}
}
