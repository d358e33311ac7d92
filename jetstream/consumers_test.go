package jetstream_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestConsumersOfAnEntity(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	m := prefix(t, "acme")
	opts := jetstream.Options{Map: m, Entities: []string{"agent.x", "agent.x.y"}}
	durable := opts
	durable.Only = []string{jetstream.StreamWork, jetstream.StreamSchedule}
	if got, err := jetstream.Plan(ctx, js, durable); err != nil || len(got) != 13 || got[2].String() != "create AEE_SCHEDULE_acme/keep" {
		t.Errorf("plan without streams: %q, %v", words(got), err)
	}
	apply(t, js, jetstream.Options{Map: m})
	want := []string{
		"create AEE_SCHEDULE_acme/keep",
		"create AEE_WORK_acme/urgent-agent=2Ex", "create AEE_WORK_acme/high-agent=2Ex", "create AEE_WORK_acme/normal-agent=2Ex", "create AEE_WORK_acme/low-agent=2Ex", "create AEE_SCHEDULE_acme/due-agent=2Ex",
		"create AEE_WORK_acme/urgent-agent=2Ex=2Ey", "create AEE_WORK_acme/high-agent=2Ex=2Ey", "create AEE_WORK_acme/normal-agent=2Ex=2Ey", "create AEE_WORK_acme/low-agent=2Ex=2Ey", "create AEE_SCHEDULE_acme/due-agent=2Ex=2Ey",
	}
	all := len(jetstream.Topology())
	if got := words(apply(t, js, opts)); !slices.Equal(got[all:], want) {
		t.Errorf("apply: %q", got[all:])
	}
	for _, c := range apply(t, js, opts) {
		if c.Action != jetstream.ActionNone {
			t.Errorf("again: %s", c)
		}
	}
	for _, c := range []struct{ stream, name, filter, about string }{
		{"AEE_WORK_acme", "low-agent=2Ex", "acme.aee.work.low.agent.x", "aeemesh: low tasks of agent.x"},
		{"AEE_SCHEDULE_acme", "keep", "acme.aee.schedule.>", "aeemesh: keeps delayed tasks until they fall due; nothing is drawn from it"},
		{"AEE_SCHEDULE_acme", "due-agent=2Ex=2Ey", "acme.aee.due.*.agent.x.y", "aeemesh: delayed tasks of agent.x.y that fall due"},
	} {
		cons, err := js.Consumer(ctx, c.stream, c.name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := cons.CachedInfo().Config
		if cfg.FilterSubject != c.filter || cfg.Description != c.about || cfg.AckPolicy != natsjs.AckExplicitPolicy || cfg.MaxDeliver != -1 || cfg.MaxAckPending != -1 || cfg.MaxWaiting != 4096 || cfg.InactiveThreshold != 0 || cfg.Replicas != 0 {
			t.Errorf("%s: %+v", c.name, cfg)
		}
	}
	if _, err := jetstream.Plan(ctx, js, jetstream.Options{Entities: []string{"nobody"}}); err == nil {
		t.Error("an entity without a type was planned")
	}
}

// nats-server gives a stream 1,000 consumers unless it says more itself, and an agent with tasks of
// every priority has four on AEE_WORK. Finding D3 of the reliability review: a mesh ended at 250 agents.
func TestMoreThan250AgentsHaveConsumers(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js := start(t)
	entities := make([]string, 251)
	for i := range entities {
		entities[i] = fmt.Sprintf("agent.a%d", i)
	}
	opts := jetstream.Options{Only: []string{jetstream.StreamWork, jetstream.StreamSchedule}, Entities: entities}
	if _, err := jetstream.Apply(t.Context(), js, opts); err != nil { // 1,255 consumers take long on a busy machine
		t.Fatal(err)
	}
	work, err := js.Stream(testContext(t), jetstream.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	if n := work.CachedInfo().State.Consumers; n != 4*len(entities) {
		t.Errorf("%d consumers", n)
	}
}

// A lease that an operator has set stays unless the options ask for another one.
func TestTheLeaseOfAConsumerIsItsOperators(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	opts := jetstream.Options{Only: []string{jetstream.StreamWork}, Entities: []string{"agent.x"}, Lease: 7 * time.Second}
	apply(t, js, opts)
	opts.Lease = 0
	for _, c := range apply(t, js, opts) {
		if c.Action != jetstream.ActionNone {
			t.Errorf("got %s", c)
		}
	}
	opts.Lease = 9 * time.Second
	if got := words(apply(t, js, opts)); got[1] != "update AEE_WORK/urgent-agent=2Ex: ack_wait 7s, should be 9s" {
		t.Errorf("got %q", got)
	}
	spec, err := jetstream.WorkConsumer(subject.Map{}, "low", "agent.x", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	cons, err := jetstream.EnsureConsumer(ctx, js, subject.Map{}, spec, true)
	if err != nil || cons.CachedInfo().Config.AckWait != 9*time.Second {
		t.Errorf("a worker changed the lease: %v", err)
	}
}

// A lease is that of the work consumers: how long delayed tasks wait for a worker that has
// died stays as the operator has set it.
func TestALeaseDoesNotChangeTheConsumersOfDelayedTasks(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	opts := jetstream.Options{Only: []string{jetstream.StreamWork, jetstream.StreamSchedule}, Entities: []string{"agent.x"}, Lease: 7 * time.Second}
	apply(t, js, opts)
	for _, name := range []string{"due-agent=2Ex", "keep"} {
		cons, err := js.Consumer(ctx, "AEE_SCHEDULE", name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := cons.CachedInfo().Config
		cfg.AckWait = 45 * time.Second
		if _, err := js.UpdateConsumer(ctx, "AEE_SCHEDULE", cfg); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range apply(t, js, opts) {
		if c.Action != jetstream.ActionNone {
			t.Errorf("got %s", c)
		}
	}
}

func TestApplyRepairsConsumers(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	for _, cfg := range []natsjs.ConsumerConfig{
		{Durable: "urgent-agent=2Ex", FilterSubject: "aee.work.urgent.agent.*", AckPolicy: natsjs.AckExplicitPolicy, MaxDeliver: 5, BackOff: []time.Duration{time.Second}, MaxWaiting: 8, InactiveThreshold: time.Hour},
		{Durable: "other", FilterSubject: "aee.work.low.>", AckPolicy: natsjs.AckExplicitPolicy},
	} {
		if _, err := js.CreateConsumer(ctx, "AEE_WORK", cfg); err != nil {
			t.Fatal(err)
		}
	}
	opts := jetstream.Options{Only: []string{jetstream.StreamWork}, Entities: []string{"agent.x"}}
	report, err := jetstream.Apply(ctx, js, opts)
	want := []string{
		"none AEE_WORK",
		"update AEE_WORK/urgent-agent=2Ex: topology none, should be 9; filter_subject aee.work.urgent.agent.*, should be aee.work.urgent.agent.x; max_deliver 5, should be -1; max_ack_pending 1000, should be -1; " +
			"priority_groups none, should be topology-6; backoff [1s], should be none; inactive_threshold 1h0m0s, should be none; max_waiting 8, should be 4096 (it cannot be changed without making the consumer anew)",
		"create AEE_WORK/high-agent=2Ex",
		"create AEE_WORK/normal-agent=2Ex",
	}
	if !slices.Equal(words(report), want) {
		t.Errorf("got %q", words(report))
	}
	if err == nil || !strings.HasPrefix(err.Error(), "create AEE_WORK/low-agent=2Ex: consumer other draws from aee.work.low.agent.x already: ") {
		t.Errorf("got %v", err)
	}
	if err := js.DeleteConsumer(ctx, "AEE_WORK", "other"); err != nil {
		t.Fatal(err)
	}
	report = apply(t, js, opts)
	if report[1].Action != jetstream.ActionNone || report[4].Action != jetstream.ActionCreate {
		t.Errorf("got %q", words(report))
	}
}

func TestEnsureConsumer(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	ctx, js := testContext(t), connect(t, srv)
	apply(t, js, jetstream.Options{})
	spec, err := jetstream.WorkConsumer(subject.Map{}, "normal", "agent."+strings.Repeat("é", 100), 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(spec.Config.Durable); n > 220 {
		t.Errorf("a name of %d bytes", n)
	}
	if _, err := jetstream.EnsureConsumer(ctx, js, subject.Map{}, spec, false); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("what an operator forbade was made: %v", err)
	}
	var workers sync.WaitGroup
	for range 8 {
		js := connect(t, srv)
		workers.Go(func() {
			cons, err := jetstream.EnsureConsumer(ctx, js, subject.Map{}, spec, true)
			if err != nil || cons.CachedInfo().Config.AckWait != jetstream.DefaultLease {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	if _, err := js.Publish(ctx, spec.Config.FilterSubject, []byte("x")); err != nil {
		t.Fatal(err)
	}
	cons, err := jetstream.EnsureConsumer(ctx, js, subject.Map{}, spec, false)
	if err != nil {
		t.Fatal(err)
	}
	if msg, err := cons.Next(natsjs.FetchMaxWait(patience), natsjs.FetchPriorityGroup("topology-6")); err != nil || string(msg.Data()) != "x" {
		t.Errorf("got %v, %v", msg, err)
	}

	// A consumer of a newer release is used unchanged.
	cfg := cons.CachedInfo().Config
	cfg.MaxDeliver, cfg.Metadata = 9, map[string]string{jetstream.MetaTopology: "99"}
	if _, err := js.UpdateConsumer(ctx, "AEE_WORK", cfg); err != nil {
		t.Fatal(err)
	}
	if cons, err := jetstream.EnsureConsumer(ctx, js, subject.Map{}, spec, true); err != nil || cons.CachedInfo().Config.MaxDeliver != 9 {
		t.Errorf("a newer one: %v", err)
	}
}
