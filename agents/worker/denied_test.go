package worker

import (
	"errors"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
)

// Of the subscriptions of a connection, exactly those that an agent needs end the worker.
func TestTheDenialsThatEndAWorker(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]bool{
		"acme.agent.x": true, "acme.aee.ask.agent.x": true, "acme.aee.ctl.agent.x": true,
		"$SRV.PING": true, "$SRV.INFO": true, "$SRV.STATS": true, "$SRV.INFO.agent-x": true, "$SRV.PING.agent-x.Q1W2E3": true,
		"agent.x": false, "shop.acme.agent.x": false, "acme.aee.work.low.agent.x": false, "acme.aee.reply.agent.x": false, "_INBOX.1.agent.x": false,
		"$SRV": false, "$SRV.": false, "$SRV.>": false, "$SRV.PING.orders": false, "$SRV.PING.orders.Q1": false, "$SRV.PING.agent-x.Q1.more": false, "$SRV.START.agent-x": false,
	} {
		w := &Worker{refused: make(chan error, 1), agents: []*hosted{{Agent: &agents.Agent{Agent: mesh.Agent{Entity: "agent.x"}}}}}
		w.cfg.Node.Prefix = "acme"
		w.denied(denial.Denial{Op: denial.Subscribe, Subject: to, Err: errors.New("denied")})
		if got := len(w.refused) == 1; got != want {
			t.Errorf("%s ends the worker: %v, want %v", to, got, want)
		}
	}
}
