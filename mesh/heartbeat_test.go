package mesh_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// Heartbeats are on the bus for all who watch it, and leave its history after a
// minute; the events that people look for later stay. Fault 5 of the operator's tour:
// 500 workers left two hours of the seven days.
func TestHeartbeatsDoNotFillTheHistory(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	live := r.listen("bus.>")
	w := r.serve(r.node(mesh.Config{Heartbeat: 10 * time.Millisecond}), mesh.Agent{Handler: echo})
	for beats := 0; beats < 3; {
		if parse(t, within(t, "a heartbeat", live).Data).Intent == intents.AgentHeartbeat {
			beats++
		}
	}
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	stream, err := r.js(r.nc).Stream(ctxFor(t), jetstream.StreamBus)
	if err != nil {
		t.Fatal(err)
	}
	ttl := map[string]map[string]int{} // by intent: how many with which time to live
	eventually(t, "all is stored", func() bool {
		info, err := stream.Info(ctxFor(t))
		if err != nil {
			t.Fatal(err)
		}
		clear(ttl)
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			msg, err := stream.GetMsg(ctxFor(t), seq)
			if err != nil {
				t.Fatal(err)
			}
			intent := parse(t, msg.Data).Intent
			if ttl[intent] == nil {
				ttl[intent] = map[string]int{}
			}
			ttl[intent][msg.Header.Get(natsjs.MsgTTLHeader)]++
		}
		return ttl[intents.AgentLeft] != nil
	})
	if beats := ttl[intents.AgentHeartbeat]; beats["60s"] < 3 || len(beats) != 1 {
		t.Errorf("heartbeats by time to live: %v", beats)
	}
	for _, intent := range []string{intents.AgentJoined, intents.AgentLeft} {
		if ttl[intent][""] != 1 || len(ttl[intent]) != 1 {
			t.Errorf("%s by time to live: %v", intent, ttl[intent])
		}
	}

	// The stream acknowledges nothing, and keeps to the header all the same.
	for _, header := range []nats.Header{nil, {natsjs.MsgTTLHeader: {"1s"}}} {
		if err := r.nc.PublishMsg(&nats.Msg{Subject: "bus.probe", Header: header, Data: []byte(header.Get(natsjs.MsgTTLHeader) + "probe")}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the passing one is gone, and the other there", func() bool {
		msg, err := stream.GetLastMsgForSubject(ctxFor(t), "bus.probe")
		return err == nil && !strings.HasPrefix(string(msg.Data), "1s")
	})
}
