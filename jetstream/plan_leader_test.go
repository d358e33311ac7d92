package jetstream_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A server that answers for a stream without a leader does not know what is stored, and says
// that nothing is. So no limit is lowered then.
func TestNoLimitIsLoweredWithoutALeader(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := start(t)
	opts := jetstream.Options{Only: []string{jetstream.StreamDead}}
	apply(t, js, opts)
	stream, err := js.Stream(ctx, jetstream.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	opts.Limits = map[string]jetstream.Limits{jetstream.StreamDead: {MaxBytes: 2 << 20, MaxAge: time.Hour}}
	for leader, want := range map[string]jetstream.Action{"n1": jetstream.ActionUpdate, "": jetstream.ActionNone} {
		info := *stream.CachedInfo()
		info.State, info.Cluster = natsjs.StreamState{}, &natsjs.ClusterInfo{Name: "c", Leader: leader}
		answer, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		other := connect(t, natstest.Run(t, natsd.Config{}))
		if _, err := other.Conn().Subscribe("$JS.API.STREAM.INFO."+jetstream.StreamDead, func(m *nats.Msg) { _ = m.Respond(answer) }); err != nil {
			t.Fatal(err)
		}
		plan, err := jetstream.Plan(ctx, other, opts)
		if err != nil || len(plan) != 1 || plan[0].Action != want {
			t.Fatalf("leader %q: %v, %v", leader, plan, err)
		}
		if kept := plan[0].NotDone(); leader == "" && (len(kept) != 2 || !strings.Contains(kept[0].Kept, "no leader")) {
			t.Errorf("without a leader: %v", plan[0])
		}
	}
}
