package traffic

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

func TestStepsAreToldInWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ intent, payload, want string }{
		{intents.RunStepStarted, `{"task":"1","alias":"lint","to":"agent.lint","child":"2","try":1}`, "lint (agent.lint)"},
		{intents.RunStepStarted, `{"task":"1","alias":"agent.lint","to":"agent.lint","try":2}`, "agent.lint try 2"},
		{intents.RunStepFinished, `{"task":"1","to":"agent.lint","duration_ms":12.34}`, "agent.lint 12.3ms"},
		{intents.RunStepFailed, `{"task":"1","alias":"lint","duration_ms":2,"error":{"code":"E_BUSY","message":"m"},"then":"skip"}`, "E_BUSY lint 2.0ms then skip"},
		{intents.RunVoted, `{"task":"1","strategy":"majority_vote","votes":[{"count":3},{"count":2}],"winner":"lint"}`, "majority_vote 3:2 → lint"},
		{intents.RunVoted, `{"task":"1","strategy":"majority_vote","votes":[{"count":1},{"count":1}],"tied":true}`, "majority_vote 1:1 tied"},
		{intents.RunVoted, `{"task":"1","strategy":"best_of_n","scores":[{"alias":"a","score":9.5},{"alias":"b","score":1}],"winner":"a"}`, "best_of_n a=9.5 b=1 → a"},
		{intents.RunRouted, `{"task":"1","alias":"lint","by":"condition"}`, "lint by condition"},
		{intents.RunWaiting, `{"task":"1","to":"human.ada","until":"2026-01-01T00:00:00.000Z"}`, "human.ada until 2026-01-01T00:00:00.000Z"},
		{intents.RunHandedOff, `{"task":"1","to":"agent.b","detail":"sentiment"}`, "agent.b (sentiment)"},
		{intents.RunMerged, `[]`, ""},
	} {
		e := envelope.New(envelope.TypeEvent, "agent.team", "bus.mesh.run", c.intent, []byte(c.payload))
		if got := statusOf(e); got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.intent, c.payload, got, c.want)
		}
	}
}
