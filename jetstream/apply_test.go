package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestApplyTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	for _, p := range []string{"", "acme.eu"} {
		m := prefix(t, p)
		opts := jetstream.Options{Map: m}
		suffix := m.Suffix()
		names := []string{"AEE_BUS", "AEE_HUMAN", "AEE_JOURNAL", "aee_keys", "aee_seen", "aee_refuted",
			"AEE_WORK", "AEE_SCHEDULE", "AEE_REPLY", "AEE_DEAD", "aee_state", "aee_state_objects", "aee_slots", "aee_handoff", "AEE_COUNT", "aee_agents", "aee_lanes", "aee_sdsi"}
		var created, none []string
		for _, n := range names {
			created = append(created, "create "+n+suffix)
			none = append(none, "none "+n+suffix)
		}
		plan, err := jetstream.Plan(ctx, js, opts)
		if err != nil || !slices.Equal(words(plan), created) {
			t.Errorf("plan: %q, %v", words(plan), err)
		}
		if got := words(apply(t, js, opts)); !slices.Equal(got, created) {
			t.Errorf("first: %q", got)
		}
		before := configs(t, js)
		if got := words(apply(t, js, opts)); !slices.Equal(got, none) {
			t.Errorf("second: %q", got)
		}
		if after := configs(t, js); !reflect.DeepEqual(before, after) {
			t.Errorf("applying twice changed\n%+v\nto\n%+v", before, after)
		}
	}
	for name, want := range map[string][]string{
		"AEE_BUS": {"bus.>"}, "AEE_BUS_acme_eu": {"acme.eu.bus.>"}, "AEE_JOURNAL_acme_eu": {"acme.eu.aee.journal.>"},
		"KV_aee_seen_acme_eu": {"$KV.aee_seen_acme_eu.>"}, "AEE_SCHEDULE_acme_eu": {"acme.eu.aee.schedule.>", "acme.eu.aee.due.>"},
		"OBJ_aee_state_objects_acme_eu": {"$O.aee_state_objects_acme_eu.C.>", "$O.aee_state_objects_acme_eu.M.>"},
	} {
		if got := configs(t, js)[name]; !slices.Equal(got.Subjects, want) || got.Metadata[jetstream.MetaTopology] != strconv.Itoa(jetstream.TopologyVersion) {
			t.Errorf("%s captures %v, metadata %v", name, got.Subjects, got.Metadata)
		}
	}
}

func configs(t *testing.T, js natsjs.JetStream) map[string]natsjs.StreamConfig {
	t.Helper()
	all := map[string]natsjs.StreamConfig{}
	list := js.ListStreams(testContext(t))
	for info := range list.Info() {
		all[info.Config.Name] = info.Config
	}
	if list.Err() != nil {
		t.Fatal(list.Err())
	}
	return all
}

// The buckets are what nats.go itself would create, except for the limits, the metadata
// and the time to live of ids.
func TestBucketsAreOrdinaryOnes(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	if _, err := js.CreateKeyValue(ctx, natsjs.KeyValueConfig{Bucket: "theirs", History: 8, MaxBytes: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	all := configs(t, js)
	ours, theirs := all["KV_aee_keys"], all["KV_theirs"]
	theirs.Name, theirs.Subjects, theirs.Description, theirs.Metadata = ours.Name, ours.Subjects, ours.Description, ours.Metadata
	if !reflect.DeepEqual(ours, theirs) {
		t.Errorf("ours   %+v\ntheirs %+v", ours, theirs)
	}
	names := map[string]bool{}
	for s := range js.KeyValueStores(ctx).Status() {
		names[s.Bucket()] = true
	}
	for _, n := range []string{"aee_keys", "aee_seen", "aee_refuted", "aee_state", "aee_slots", "aee_handoff", "aee_agents", "aee_lanes", "aee_sdsi"} {
		if !names[n] {
			t.Errorf("%s is not listed as a bucket", n)
		}
	}
	if _, err := js.CreateObjectStore(ctx, natsjs.ObjectStoreConfig{Bucket: "objects", MaxBytes: 256 << 20}); err != nil {
		t.Fatal(err)
	}
	all = configs(t, js)
	ours, theirs = all["OBJ_aee_state_objects"], all["OBJ_objects"]
	theirs.Name, theirs.Subjects, theirs.Description, theirs.Metadata = ours.Name, ours.Subjects, ours.Description, ours.Metadata
	theirs.AllowRollup = false // see TestNoRollUpInBucketsOfWorkers
	if !reflect.DeepEqual(ours, theirs) {
		t.Errorf("ours   %+v\ntheirs %+v", ours, theirs)
	}
}

// Finding 1 of the security review: if a stream allows roll-ups, a user who may publish
// to one of its subjects can purge all of it with "Nats-Rollup: all". So streams that
// workers write to do not allow roll-ups.
func TestNoRollUpInBucketsOfWorkers(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	for _, subj := range []string{
		"$KV.aee_state.agent.x.run", "$KV.aee_slots.agent=2Ex.0", "$KV.aee_seen.x", "$KV.aee_refuted.x", "$KV.aee_handoff.agent.x.run",
		"$O.aee_state_objects.C.agent.x.run.token.0", "aee.work.normal.agent.x", "aee.reply.agent.x.1", "aee.dead.agent.x.1", "aee.journal.agent.x.1", "human.ada",
	} {
		if _, err := js.Publish(ctx, subj, []byte("kept")); err != nil {
			t.Fatal(err)
		}
		for _, rollup := range []string{natsjs.MsgRollupAll, natsjs.MsgRollupSubject} {
			_, err := js.PublishMsg(ctx, &nats.Msg{Subject: subj, Header: nats.Header{natsjs.MsgRollup: {rollup}}})
			if err == nil || !strings.Contains(err.Error(), "rollup not permitted") {
				t.Errorf("a roll-up of %s on %s: %v", rollup, subj, err)
			}
		}
	}
}

// The documentation names this size.
func TestTheTopologyReserves2200MiB(t *testing.T) {
	t.Parallel()
	sum := int64(0)
	for _, s := range jetstream.Topology() {
		if s.Config.MaxBytes > 0 {
			sum += s.Config.MaxBytes
		}
	}
	if sum != 2200<<20 {
		t.Errorf("%d MiB", sum>>20)
	}
}

// A full work queue refuses tasks and keeps those that it has; a delayed task is never
// dropped.
func TestNoTaskIsDiscarded(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.StreamWork: {MaxBytes: 64 << 10}}})
	stored := 0
	for ; stored < 100; stored++ {
		if _, err := js.Publish(ctx, "aee.work.low.agent.x", make([]byte, 16<<10)); err != nil {
			var api *natsjs.APIError
			if !errors.As(err, &api) || api.ErrorCode != 10077 {
				t.Errorf("full: %v", err)
			}
			break
		}
	}
	if got, err := js.Stream(ctx, "AEE_WORK"); err != nil || got.CachedInfo().State.Msgs != uint64(stored) || stored == 0 || stored > 4 {
		t.Errorf("%d stored, %v", stored, err)
	}
	c := configs(t, js)["AEE_SCHEDULE"]
	if c.MaxBytes != -1 || c.MaxMsgs != -1 || c.MaxMsgsPerSubject != -1 || c.MaxAge != 0 || c.Retention != natsjs.WorkQueuePolicy {
		t.Errorf("a delayed task can be dropped: %+v", c)
	}
	if _, err := js.CreateStream(ctx, natsjs.StreamConfig{Name: "BOTH", Subjects: []string{"both"}, Discard: natsjs.DiscardNew, AllowMsgSchedules: true}); err == nil {
		t.Error("nats-server has schedules in a stream that discards new messages: AEE_SCHEDULE may be a part of AEE_WORK now")
	}
}

func TestADelayedTaskFallsDue(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	m := prefix(t, "acme")
	apply(t, js, jetstream.Options{Map: m})
	wait, err := m.Schedule("agent.x", "urn:1")
	if err != nil {
		t.Fatal(err)
	}
	due, err := m.Due("high", "agent.x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, wait, []byte("task"), natsjs.WithScheduleAt(time.Now().Add(time.Second)), natsjs.WithScheduleTarget(due)); err != nil {
		t.Fatal(err)
	}
	filter, err := m.DueOf("agent.x")
	if err != nil {
		t.Fatal(err)
	}
	cons, err := js.CreateConsumer(ctx, "AEE_SCHEDULE_acme", natsjs.ConsumerConfig{FilterSubject: filter, AckPolicy: natsjs.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	msg, err := cons.Next(natsjs.FetchMaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	if msg.Subject() != due || string(msg.Data()) != "task" || msg.Headers().Get("Nats-Scheduler") != wait {
		t.Errorf("%s: %s, %v", msg.Subject(), msg.Data(), msg.Headers())
	}
	if err := msg.DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	if s, err := js.Stream(ctx, "AEE_SCHEDULE_acme"); err != nil || s.CachedInfo().State.Msgs != 0 {
		t.Errorf("something is left: %+v, %v", s.CachedInfo().State, err)
	}
}

func TestNamesWithASuffixAreLegalAndDoNotCollide(t *testing.T) {
	t.Parallel()
	legal := regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	seen := map[string]string{}
	for _, p := range []string{"", "a", "a.b", "a_b", "keys", "AEE_BUS"} {
		m := prefix(t, p)
		for _, s := range jetstream.Topology() {
			name := s.StreamName(m)
			if other, dup := seen[name]; dup || !legal.MatchString(name) {
				t.Errorf("%s with prefix %q is %q, and so is %s", s.Name, p, name, other)
			}
			seen[name] = fmt.Sprintf("%s with prefix %q", s.Name, p)
		}
	}
}

func TestApplyRepairsRequiredSettings(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	// Streams that an operator may have created by hand.
	for _, cfg := range []natsjs.StreamConfig{
		{Name: "AEE_BUS", Subjects: []string{"bus.ops", "news.>"}, MaxAge: time.Hour, DenyDelete: true, Metadata: map[string]string{"team": "x"}},
		{Name: "KV_aee_keys", Subjects: []string{"$KV.aee_keys.>"}, MaxMsgsPerSubject: 1},
	} {
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
	got := words(apply(t, js, jetstream.Options{Only: []string{jetstream.StreamBus, jetstream.BucketKeys}}))
	want := []string{
		"update AEE_BUS: topology none, should be 9; subjects bus.ops news.>, should be news.> bus.>; no_ack false, should be true; allow_direct false, should be true; allow_msg_ttl false, should be true",
		"update aee_keys: topology none, should be 9; allow_direct false, should be true; allow_rollup_hdrs false, should be true; deny_delete false, should be true; discard DiscardOld, should be DiscardNew; max_msgs_per_subject 1, should be 8",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	bus := configs(t, js)["AEE_BUS"]
	if !bus.NoAck || !bus.DenyDelete || bus.MaxAge != time.Hour || bus.Metadata["team"] != "x" || !slices.Equal(bus.Subjects, []string{"news.>", "bus.>"}) {
		t.Errorf("mended to %+v", bus)
	}
	if got := words(apply(t, js, jetstream.Options{Only: []string{jetstream.StreamBus}})); !slices.Equal(got, []string{"none AEE_BUS"}) {
		t.Errorf("again: %q", got)
	}
}

// With a transform of its subjects a stream stores what is published elsewhere than it is looked for.
func TestApplyRemovesATransformOfSubjects(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	opts := jetstream.Options{Only: []string{jetstream.StreamWork}}
	apply(t, js, opts)
	cfg := configs(t, js)[jetstream.StreamWork]
	cfg.SubjectTransform = &natsjs.SubjectTransformConfig{Source: "aee.work.normal.>", Destination: "aee.work.normal.x.>"}
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	want := []string{"update AEE_WORK: subject_transform aee.work.normal.> to aee.work.normal.x.>, should be none"}
	if got := words(apply(t, js, opts)); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := configs(t, js)[jetstream.StreamWork].SubjectTransform; got != nil {
		t.Errorf("left: %+v", got)
	}
}

// Fault 4 of the operators' review: a limit is lowered if the stream's messages fit, and
// the report lists the limits that were asked for and not changed.
func TestApplyLowersALimitWhereThatDropsNothing(t *testing.T) {
	t.Parallel()
	js := start(t)
	only := []string{jetstream.StreamDead}
	limits := func(age time.Duration, bytes int64) jetstream.Options {
		return jetstream.Options{Only: only, Limits: map[string]jetstream.Limits{jetstream.StreamDead: {MaxAge: age, MaxBytes: bytes}}}
	}
	apply(t, js, limits(10*time.Hour, 1<<20))
	got := apply(t, js, limits(5*time.Hour, 1<<19))
	if want := []string{"update AEE_DEAD: max_age 10h0m0s, should be 5h0m0s; max_bytes 1048576, should be 524288"}; !slices.Equal(words(got), want) || got[0].Reserves != -1<<19 || got[0].NotDone() != nil {
		t.Errorf("got %q, %d, %v", words(got), got[0].Reserves, got[0].NotDone())
	}
	for range 2 {
		if _, err := js.Publish(testContext(t), "aee.dead.agent.x.1", make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
	}
	var notDone []jetstream.Difference
	waitFor(t, "the messages to be too old", func() bool {
		plan, err := jetstream.Plan(testContext(t), js, limits(100*time.Millisecond, 100<<10))
		return err == nil && len(plan[0].NotDone()) == 2
	})
	got = apply(t, js, limits(100*time.Millisecond, 100<<10))
	notDone = got[0].NotDone()
	if got[0].Action != jetstream.ActionNone || len(notDone) != 2 || notDone[0].Field != "max_age" || notDone[1].Field != "max_bytes" ||
		!regexp.MustCompile("^it holds messages of [0-9.]+m?s, which lowering it would drop: do that with `nats stream edit`$").MatchString(notDone[0].Kept) ||
		!regexp.MustCompile("^it holds 20[0-9]{4} bytes, which lowering it would drop").MatchString(notDone[1].Kept) {
		t.Errorf("got %+v", got[0])
	}
	if c := configs(t, js)["AEE_DEAD"]; c.MaxAge != 5*time.Hour || c.MaxBytes != 1<<19 {
		t.Errorf("age %s, bytes %d", c.MaxAge, c.MaxBytes)
	}
	if got := apply(t, js, limits(time.Hour, 300<<10)); got[0].Action != jetstream.ActionUpdate || got[0].NotDone() != nil {
		t.Errorf("got %q", words(got))
	}
	// Also below the duplicate window.
	if got := apply(t, js, limits(90*time.Second, -1)); got[0].NotDone() != nil {
		t.Errorf("got %q", words(got))
	}
	if c := configs(t, js)["AEE_DEAD"]; c.MaxAge != 90*time.Second || c.MaxBytes != -1 || c.Duplicates != 90*time.Second {
		t.Errorf("age %s, bytes %d, duplicates %s", c.MaxAge, c.MaxBytes, c.Duplicates)
	}
	if got := apply(t, js, jetstream.Options{Only: only, Storage: natsjs.MemoryStorage}); len(got[0].NotDone()) != 1 || got[0].NotDone()[0].Field != "storage" {
		t.Errorf("got %+v", got)
	}
	// Without Options.Limits the operator's limits stay.
	if got := apply(t, js, jetstream.Options{Only: only}); got[0].NotDone() != nil || got[0].Action == jetstream.ActionConflict {
		t.Errorf("got %q", words(got))
	}
}

func TestApplyLeavesConflictsAndNewerStreamsAlone(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	for _, cfg := range []natsjs.StreamConfig{
		{Name: "AEE_BUS", Subjects: []string{"bus.>"}, Metadata: map[string]string{jetstream.MetaTopology: "99"}},
		{Name: "AEE_HUMAN", Subjects: []string{"human.>"}, Retention: natsjs.WorkQueuePolicy},
		{Name: "AEE_JOURNAL", Subjects: []string{"something.else"}},
	} {
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
	before := configs(t, js)
	report, err := jetstream.Apply(ctx, js, jetstream.Options{Only: []string{jetstream.StreamBus, jetstream.StreamHuman, jetstream.StreamJournal}})
	want := []string{
		"newer AEE_BUS: topology 99, should be 9 (a newer aeemesh made it)",
		"conflict AEE_HUMAN: retention WorkQueue, should be Limits (it cannot be changed without making the stream anew)",
		"conflict AEE_JOURNAL: subjects something.else, should be aee.journal.> (a foreign stream has the name)",
	}
	if !slices.Equal(words(report), want) {
		t.Errorf("got %q", words(report))
	}
	if !errors.Is(err, jetstream.ErrConflict) || err.Error() != want[1]+"\n"+want[2] {
		t.Errorf("error %v", err)
	}
	if after := configs(t, js); !reflect.DeepEqual(before, after) {
		t.Error("something was changed")
	}
}

func TestApplyNamesTheStreamThatHasTheSubjects(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	if _, err := js.CreateStream(ctx, natsjs.StreamConfig{Name: "EVERYTHING", Subjects: []string{"bus.ops.>"}}); err != nil {
		t.Fatal(err)
	}
	_, err := jetstream.Apply(ctx, js, jetstream.Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "create AEE_BUS: bus.> captured by EVERYTHING already: ") {
		t.Errorf("got %v", err)
	}
}

func TestManyNodesApplyAtOnce(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	var nodes sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		js := connect(t, srv)
		nodes.Go(func() {
			age := time.Duration(i%2+1) * time.Hour // the nodes want different limits
			_, errs[i] = jetstream.Apply(testContext(t), js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.StreamBus: {MaxAge: age}}})
		})
	}
	nodes.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestApplyWithoutJetStream(t *testing.T) {
	t.Parallel()
	js := connect(t, natstest.Run(t, natsd.Config{}))
	if _, err := jetstream.Apply(testContext(t), js, jetstream.Options{}); !errors.Is(err, jetstream.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// permitted starts a server with a user who may publish to these subjects only.
func permitted(t *testing.T, publish ...string) (admin, user natsjs.JetStream) {
	t.Helper()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "admin", Password: "a"},
		{Name: "user", Password: "u", Permissions: &natsd.Permissions{
			Publish: natsd.Subjects{Allow: publish}, Subscribe: natsd.Subjects{Allow: []string{"_INBOX.>"}},
		}},
	}})
	return connect(t, srv, nats.UserInfo("admin", "a")), connect(t, srv, nats.UserInfo("user", "u"))
}

func TestPermissionDeniedSaysSo(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	admin, user := permitted(t, "$JS.API.STREAM.INFO.>")
	// A refused publish of JetStream has no answer: its error comes at the end of the time.
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	_, err := jetstream.Apply(short(), user, jetstream.Options{})
	if !errors.Is(err, jetstream.ErrDenied) || !strings.Contains(err.Error(), `create AEE_BUS: NATS permissions do not allow it: `) || !strings.Contains(err.Error(), `"$JS.API.STREAM.CREATE.AEE_BUS"`) {
		t.Errorf("apply: %v", err)
	}
	apply(t, admin, jetstream.Options{})
	_, err = seen.New(user, subject.Map{}, time.Minute).Claim(short(), "agent.x", "01JFB2R1JZKQ9V3K8W8Y9W1F2A", "by")
	if !errors.Is(err, jetstream.ErrDenied) || errors.Is(err, jetstream.ErrUncertain) || !strings.Contains(err.Error(), `"$KV.aee_seen.agent=2Ex.01JFB2R1JZKQ9V3K8W8Y9W1F2A"`) {
		t.Errorf("seen: %v", err)
	}
	if err := jetstream.NewJournal(user, subject.Map{}).Put(short(), "agent.x", "12345678", nil); !errors.Is(err, jetstream.ErrDenied) || !strings.Contains(err.Error(), `"aee.journal.agent.x.12345678"`) {
		t.Errorf("journal: %v", err)
	}
}

func TestOptionsReportAllErrors(t *testing.T) {
	t.Parallel()
	js := start(t)
	_, err := jetstream.Apply(testContext(t), js, jetstream.Options{
		Replicas: 2, Lease: time.Millisecond, Only: []string{"AEE_BUSS"}, Entities: []string{"x"},
		Limits: map[string]jetstream.Limits{"aee_nothing": {}, "AEE_WORK": {MaxAge: time.Hour}, "AEE_SCHEDULE": {MaxBytes: 1}},
	})
	names := "AEE_BUS, AEE_HUMAN, AEE_JOURNAL, aee_keys, aee_seen, aee_refuted, AEE_WORK, AEE_SCHEDULE, AEE_REPLY, AEE_DEAD, aee_state, aee_state_objects, aee_slots, aee_handoff, AEE_COUNT, aee_agents, aee_lanes, aee_sdsi"
	want := `"AEE_BUSS" is not a stream or bucket of the mesh: ` + names + `
entity "x": has no type: it must be <type>.<name>, like "agent.x"
lease 1ms: must be a second or more
limits of "aee_nothing": it is not a stream or bucket of the mesh: ` + names + `
max_age of AEE_WORK: tasks that wait for longer would be dropped without notice
max_bytes of AEE_SCHEDULE: beyond it the oldest tasks would be dropped without notice
replicas 2: must be 1, 3 or 5`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if n := len(configs(t, js)); n != 0 {
		t.Errorf("%d streams were made", n)
	}
}

// An operator may set limits that drop tasks; the plan reports them.
func TestPlanTellsOfLimitsThatDropTasks(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	only := []string{jetstream.StreamWork, jetstream.StreamSchedule}
	apply(t, js, jetstream.Options{Only: only})
	for name, change := range map[string]func(*natsjs.StreamConfig){
		"AEE_WORK":     func(c *natsjs.StreamConfig) { c.MaxAge, c.Duplicates = time.Hour, time.Minute },
		"AEE_SCHEDULE": func(c *natsjs.StreamConfig) { c.MaxBytes, c.MaxMsgs = 1<<20, 10 },
	} {
		cfg := configs(t, js)[name]
		change(&cfg)
		if _, err := js.UpdateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"update AEE_WORK: duplicate_window 1m0s, should be 2m0s; max_age 1h0m0s, should be no limit (its operator's: tasks beyond it are dropped without notice)",
		"none AEE_SCHEDULE: max_bytes 1048576, should be no limit (its operator's: tasks beyond it are dropped without notice); max_msgs 10, should be no limit (its operator's: tasks beyond it are dropped without notice)",
	}
	if got := words(apply(t, js, jetstream.Options{Only: only})); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestReplicasAndPlacement(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes its time")
	}
	t.Parallel()
	ctx := testContext(t)
	js := connect(t, natstest.Cluster(t, 3)[0])
	opts := jetstream.Options{Only: []string{jetstream.StreamReply, jetstream.BucketSlots}}
	applyInCluster(t, js, opts)
	waitFor(t, "the leader to know that all three servers are there", func() bool { // a busy machine may consider one as gone
		_, err := js.CreateOrUpdateStream(ctx, natsjs.StreamConfig{Name: "THREE", Subjects: []string{"three"}, Replicas: 3, Storage: natsjs.MemoryStorage})
		return err == nil
	})
	opts.Replicas = 3
	if got := words(apply(t, js, opts)); !slices.Equal(got, []string{"update AEE_REPLY: num_replicas 1, should be 3", "update aee_slots: num_replicas 1, should be 3"}) {
		t.Errorf("got %q", got)
	}
	info, err := js.Stream(ctx, "AEE_REPLY")
	if err != nil || info.CachedInfo().Config.Replicas != 3 {
		t.Fatal(err, info)
	}
	opts.Replicas = 0
	opts.Placement = &natsjs.Placement{Cluster: info.CachedInfo().Cluster.Name}
	plan, err := jetstream.Plan(ctx, js, opts)
	if want := "update AEE_REPLY: placement anywhere, should be cluster " + opts.Placement.Cluster; err != nil || plan[0].String() != want {
		t.Errorf("got %q, %v", words(plan), err)
	}
	waitFor(t, "the streams to move, once their replicas are there", func() bool { // until then the server refuses
		report, err := jetstream.Apply(ctx, js, opts)
		return err == nil && slices.Equal(words(report), []string{"none AEE_REPLY", "none aee_slots"})
	})
	opts.Placement.Tags = []string{"nowhere"}
	if _, err := jetstream.Apply(ctx, js, opts); err == nil {
		t.Error("a place that is not there was accepted")
	}
	_, err = jetstream.Apply(ctx, js, jetstream.Options{
		Only: []string{jetstream.StreamDead}, Replicas: 3, Limits: map[string]jetstream.Limits{jetstream.StreamDead: {MaxBytes: 1 << 50}},
	})
	if !errors.Is(err, jetstream.ErrNoRoom) || !strings.HasPrefix(err.Error(), "create AEE_DEAD, which reserves 1073741824 MiB: ") {
		t.Errorf("no server has room: %v", err)
	}
}
