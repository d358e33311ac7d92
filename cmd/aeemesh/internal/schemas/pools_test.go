package schemas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// After an opt-out each pool has another revision, also one that has nothing of the client:
// otherwise its workers would learn from the client until they read it again.
func TestAnOptOutChangesEachPool(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{Only: []string{jetstream.BucketSDSI}}); err != nil {
		t.Fatal(err)
	}
	pools := jetstream.NewPools(js, subject.Map{})
	const entity = "agent.ferries"
	for scenario, client := range map[string]string{"ferry": "agent.ada", "car": "agent.bob", "room": ""} {
		p, err := evolve.New(evolve.Config{}, "test")
		if err != nil {
			t.Fatal(err)
		}
		if client != "" {
			p.Observe(evolve.Observation{Client: evolve.Client(client), Fragments: []evolve.Fragment{{Text: "a kayak", Vector: []float32{1}}}}, time.Now())
		}
		raw, err := p.Encode(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pools.Swap(t.Context(), entity, scenario, raw, 0); err != nil {
			t.Fatal(err)
		}
	}
	revisions := func() (all []uint64) {
		for _, scenario := range []string{"ferry", "car", "room"} {
			_, revision, err := pools.Get(t.Context(), entity, scenario)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, revision)
		}
		return all
	}
	before := revisions()
	for i, c := range []struct {
		client   string
		optedOut bool
		gone     []string
		stored   []bool
	}{
		{"agent.ada", false, []string{"ferry"}, []bool{true, false, false}},
		{"agent.ada", false, nil, []bool{false, false, false}},
		{"agent.ada", true, nil, []bool{true, true, true}},
		{"agent.bob", true, []string{"car"}, []bool{true, true, true}},
	} {
		found, err := forgetIn(t.Context(), pools, entity, c.client, c.optedOut)
		if err != nil {
			t.Fatal(err)
		}
		var gone []string
		for _, s := range found {
			gone = append(gone, s.scenario)
		}
		now := revisions()
		var stored []bool
		for i := range now {
			stored = append(stored, now[i] != before[i])
		}
		if before = now; !slices.Equal(gone, c.gone) || !slices.Equal(stored, c.stored) {
			t.Errorf("%d: gone %v, want %v; stored again %v, want %v", i, gone, c.gone, stored, c.stored)
		}
	}
	// One pool that cannot be read keeps no other from being changed, and is no success.
	if _, err := pools.Swap(t.Context(), entity, "boat", []byte(`{"version":9}`), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := forgetIn(t.Context(), pools, entity, "agent.cyd", true); err == nil || !strings.Contains(err.Error(), "scenario boat") {
		t.Errorf("a pool that cannot be read: %v", err)
	}
	if now := revisions(); now[0] == before[0] || now[1] == before[1] || now[2] == before[2] {
		t.Errorf("revisions %d, before %d", now, before)
	}
}

// A replica that lags behind does not have a pool that a worker has just stored.
func TestAnOptOutChangesAPoolThatAReplicaLacks(t *testing.T) {
	t.Parallel()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{Only: []string{jetstream.BucketSDSI}}); err != nil {
		t.Fatal(err)
	}
	pools := jetstream.NewPools(js, subject.Map{})
	p, err := evolve.New(evolve.Config{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := p.Encode(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	before, err := pools.Swap(t.Context(), "agent.ferries", "ferry", raw, 0)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Lag(t, js.Conn(), "KV_aee_sdsi", func(get int) bool { return get < 3 })
	if _, err := forgetIn(t.Context(), pools, "agent.ferries", "agent.ada", true); err != nil {
		t.Fatal(err)
	}
	if _, now, err := pools.Get(t.Context(), "agent.ferries", "ferry"); err != nil || now <= before {
		t.Errorf("the pool is at revision %d, as before: %v", now, err)
	}
}

// Tables that are cut say how much more there is, and what no row of them shows is noted all the same.
func TestStatsSayHowMuchTheyLeaveOut(t *testing.T) {
	t.Parallel()
	pool, err := evolve.New(evolve.Config{}, "test")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 3 {
		vector := make([]float32, 3)
		vector[i] = 1
		pool.Observe(evolve.Observation{Client: evolve.Client(fmt.Sprint("agent.", i)), Fragments: []evolve.Fragment{{Text: "a kayak", Vector: vector}}}, now)
	}
	s := &stock{scenario: "ferry", Pool: pool}
	for limit, want := range map[int]string{1: "2 more wishes", 2: "1 more wish", 3: ""} {
		var out bytes.Buffer
		printStats(term.New(&out, &out, func(string) string { return "" }), s, now, limit)
		if got := out.String(); strings.Contains(got, "more") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("--limit %d: want %q in\n%s", limit, want, got)
		}
	}
}

// What changePools returns where nothing was changed does not depend on the order of the pools.
func TestADecisionThatIsKnownIsNoError(t *testing.T) {
	t.Parallel()
	for want, all := range map[error][]error{
		evolve.ErrUnchanged:  {evolve.ErrUnchanged, errors.New("the key is withdrawn"), evolve.ErrUnknownKey},
		evolve.ErrUnknownKey: {evolve.ErrUnknownKey, evolve.ErrUnknownKey, evolve.ErrUnknownKey},
		errNothing:           {evolve.ErrUnknownKey, errNothing, evolve.ErrUnknownKey},
	} {
		for turn := range all {
			var stocks []*stock
			fails := map[*stock]error{}
			for i := range all {
				s := &stock{id: fmt.Sprint(i)}
				stocks, fails[s] = append(stocks, s), all[(turn+i)%len(all)]
			}
			_, err := changePools(context.Background(), nil, "agent.ferries", stocks, func(s *stock, _ time.Time) error { return fails[s] })
			if !errors.Is(err, want) {
				t.Errorf("turn %d of %v: %v", turn, all, err)
			}
		}
	}
}
