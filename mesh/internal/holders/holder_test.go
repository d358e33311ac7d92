package holders

import (
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"

	"github.com/nats-io/nats.go"
)

// What a reply subject says of a holder makes nothing but a ping subject of one instance.
func TestHoldersThatAreMalformedAreNone(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]Holder{
		"agent.x abc 20 SRV":                    {"$SRV.PING.agent-x.abc", 20 * time.Millisecond, "SRV"},
		"agent.x abc 0 ":                        {"$SRV.PING.agent-x.abc", 0, ""},
		"agent.x abc 999999999 S":               {"$SRV.PING.agent-x.abc", probe.MaxBack, "S"},
		"-":                                     {},
		"":                                      {},
		"agent.x":                               {},
		"agent.x abc 0 S more":                  {},
		"agent.x  0 S":                          {},
		"agent.x * 0 S":                         {},
		"agent.x > 0 S":                         {},
		"agent.x a.b 0 S":                       {},
		"agent.> abc 0 S":                       {},
		" abc 0 S":                              {},
		"agent.x abc -1 S":                      {},
		"agent.x abc 99999999999999999999999 S": {},
	} {
		got, is := Of(&nats.Msg{Header: nats.Header{wire.HeaderHolder: {value}}})
		if !is || got != want {
			t.Errorf("%q: %+v, %v", value, got, is)
		}
	}
	for _, msg := range []*nats.Msg{{}, {Header: nats.Header{"Status": {"503"}}}, {Header: nats.Header{wire.HeaderHolder: {"agent.x abc 0 S"}}, Data: []byte("{}")}} {
		if _, is := Of(msg); is {
			t.Errorf("%v %q is a holder", msg.Header, msg.Data)
		}
	}
}
