package jetstream_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

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

// An account may limit the consumers of a stream. The server refuses a stream that asks for more.
func TestTheAccountLimitsConsumers(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte(`
		jetstream { max_file_store: 10G }
		accounts {
			few { jetstream { max_file: 5G, max_consumers: 20 }, users: [{ user: f, password: f }] }
			more { jetstream { max_file: 5G, max_consumers: 2000000 }, users: [{ user: m, password: m }] }
		}`), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{ConfigFile: conf, Port: natsd.RandomPort, JetStream: true, StoreDir: t.TempDir()})
	for user, want := range map[string]int{"f": 20, "m": 1_000_000} {
		js, err := natsjs.New(natstest.Conn(t, srv, nats.UserInfo(user, user)))
		if err != nil {
			t.Fatal(err)
		}
		opts := jetstream.Options{Entities: []string{"agent.a"}}
		apply(t, js, opts)
		for _, name := range []string{jetstream.StreamWork, jetstream.StreamSchedule} {
			if got := configs(t, js)[name].MaxConsumers; got != want {
				t.Errorf("%s: %s allows %d consumers", user, name, got)
			}
		}
		plan, err := jetstream.Plan(testContext(t), js, opts)
		for _, c := range plan {
			if c.Action != jetstream.ActionNone {
				t.Errorf("%s: %s", user, c)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// An account with tiers has limits for each number of replicas. Those of the number that is asked
// for count, not those of the stream as it is.
func TestTheAccountLimitsConsumersByReplicas(t *testing.T) {
	t.Parallel()
	js := connect(t, natstest.Run(t, natsd.Config{})) // it answers nothing but what follows
	for subject, answer := range map[string]string{
		"$JS.API.STREAM.INFO.AEE_WORK": `{"config":{"name":"AEE_WORK","subjects":["aee.work.low.>"],"retention":"workqueue","max_consumers":10,"num_replicas":1,"storage":"file"}}`,
		"$JS.API.INFO":                 `{"tiers":{"R1":{"limits":{"max_consumers":20}},"R3":{"limits":{"max_consumers":30}}}}`,
	} {
		if _, err := js.Conn().Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(answer)) }); err != nil {
			t.Fatal(err)
		}
	}
	for replicas, want := range map[int]string{0: "20", 3: "30"} {
		plan, err := jetstream.Plan(testContext(t), js, jetstream.Options{Only: []string{jetstream.StreamWork}, Replicas: replicas})
		if err != nil || len(plan) != 1 {
			t.Fatal(plan, err)
		}
		at := slices.IndexFunc(plan[0].Differences, func(d jetstream.Difference) bool { return d.Field == "max_consumers" })
		if at < 0 || plan[0].Differences[at].Want != want {
			t.Errorf("%d replicas: %s", replicas, plan[0])
		}
	}
}
