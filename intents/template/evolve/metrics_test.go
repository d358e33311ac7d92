package evolve

import (
	"slices"
	"testing"
	"time"

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

// The adoption of a key is the share of the clients that have used it, of those that have received
// it (SDSI 6.2.3). A value of a wrong type is no use.
func TestAdoptionIsOfTheClientsThatGotTheKey(t *testing.T) {
	t.Parallel()
	p := newPool(t, Config{})
	many(p, 6, wish(1, "a window seat"), start.Add(-6*time.Minute))
	propose(t, p, start)
	adoption := func() float64 { return p.Keys(start)[0].Metrics.AdoptionRate }
	if got := adoption(); got != -1 {
		t.Errorf("it was not received: %v", got)
	}
	for _, c := range []string{"agent.a", "agent.b", "agent.c", "agent.a"} {
		p.Received(Client(c), []string{"window_seat"})
	}
	if got := adoption(); got != 0 {
		t.Errorf("three have received it: %v", got)
	}
	use := func(client string, u Use, refused bool) {
		p.Observe(Observation{Client: Client(client), Keys: []Use{u}, Refused: refused}, start)
	}
	use("agent.a", Use{Key: "window_seat"}, false)
	use("agent.a", Use{Key: "window_seat"}, false)
	use("agent.b", Use{Key: "window_seat", WrongType: true}, true)
	if got := adoption(); got != 1.0/3 {
		t.Errorf("one of three has used it: %v", got)
	}
	use("agent.c", Use{Key: "window_seat"}, false)
	if got := adoption(); got != 2.0/3 {
		t.Errorf("two of three have used it: %v", got)
	}
}
