package jetstream_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// In a cluster an account without tiers pays for each replica. The server names what its streams
// reserve without their replicas.
func TestTheReplicasOfOtherStreamsTakeRoom(t *testing.T) {
	t.Parallel()
	js := connect(t, natstest.Run(t, natsd.Config{})) // it answers nothing but what follows
	respond := func(subject, answer string) {
		if _, err := js.Conn().Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(answer)) }); err != nil {
			t.Fatal(err)
		}
	}
	const mib = "000000"
	respond("$JS.API.STREAM.INFO.AEE_BUS", `{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`)
	respond("$JS.API.STREAM.LIST", `{"total":2,"streams":[{"config":{"name":"A","max_bytes":100`+mib+`,"num_replicas":3,"storage":"file"}},{"config":{"name":"B","max_bytes":100`+mib+`,"num_replicas":1,"storage":"file"}}]}`)
	respond("$JS.API.INFO", `{"limits":{"max_storage":500`+mib+`,"max_memory":-1,"max_streams":-1},"streams":2,"reserved_storage":200`+mib+`}`)
	_, err := jetstream.Apply(testContext(t), js, jetstream.Options{Only: []string{jetstream.StreamBus}, Replicas: 3, Limits: map[string]jetstream.Limits{jetstream.StreamBus: {MaxBytes: 50 << 20}}})
	if want := "the account has room for 95 MiB more of storage, and 150 MiB are needed: nothing was done"; !errors.Is(err, jetstream.ErrNoRoom) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
