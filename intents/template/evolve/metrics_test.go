package evolve

import (
	"slices"
	"testing"

	"github.com/aeemesh/aeemesh/intents/template"
)

// A judgement about a client's own key does not count for another client's key of the same name.
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
