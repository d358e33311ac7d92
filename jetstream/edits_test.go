package jetstream_test

import (
	"slices"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream"
)

// A limit of messages of a subject makes the server drop tasks that it has accepted, although the
// work queue refuses new ones when it is full.
func TestPlanTellsOfALimitOfAnAgentsTasks(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	opts := jetstream.Options{Only: []string{jetstream.StreamWork}}
	apply(t, js, opts)
	editStream(t, js, jetstream.StreamWork, func(c *natsjs.StreamConfig) { c.MaxMsgsPerSubject = 1 })
	for range 2 {
		if _, err := js.Publish(ctx, "aee.work.normal.agent.x", []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := js.Stream(ctx, jetstream.StreamWork); err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Fatalf("the server has dropped no task: %+v, %v", s, err)
	}
	want := []string{"none AEE_WORK: max_msgs_per_subject 1, should be no limit (its operator's: tasks beyond it are dropped without notice)"}
	if got := words(apply(t, js, opts)); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	// If the server refuses the task instead, its submitter knows.
	editStream(t, js, jetstream.StreamWork, func(c *natsjs.StreamConfig) { c.DiscardNewPerSubject = true })
	if got := words(apply(t, js, opts)); !slices.Equal(got, []string{"none AEE_WORK"}) {
		t.Errorf("got %q", got)
	}
}

// Every edit of a stream that breaks a promise of the mesh is corrected, or told of if it is the
// operator's or cannot be corrected.
func TestApplyFindsEditsThatBreakPromises(t *testing.T) {
	t.Parallel()
	js := start(t)
	if _, err := js.CreateStream(testContext(t), natsjs.StreamConfig{Name: "OTHER", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	apply(t, js, jetstream.Options{})
	for _, tt := range []struct {
		name, stream string // of the spec, and of the server
		edit         func(*natsjs.StreamConfig)
		want         string
		then         string // it is corrected, breaks a promise, or is an operator's
	}{
		{"aee_state", "KV_aee_state", func(c *natsjs.StreamConfig) { c.DiscardNewPerSubject = true },
			"update aee_state: discard_new_per_subject true, should be false", "corrected"},
		{"AEE_BUS", "AEE_BUS", func(c *natsjs.StreamConfig) {
			c.Discard, c.DiscardNewPerSubject, c.MaxMsgsPerSubject = natsjs.DiscardNew, true, 9
		}, "update AEE_BUS: discard DiscardNew, should be DiscardOld; discard_new_per_subject true, should be false; max_msgs_per_subject 9, should be -1", "corrected"},
		{"AEE_WORK", "AEE_WORK", func(c *natsjs.StreamConfig) {
			c.ConsumerLimits = natsjs.StreamConsumerLimits{InactiveThreshold: time.Hour, MaxAckPending: 5}
		}, "update AEE_WORK: consumer_limits.inactive_threshold 1h0m0s, should be 0s; consumer_limits.max_ack_pending 5, should be 0", "corrected"},
		{"AEE_JOURNAL", "AEE_JOURNAL", func(c *natsjs.StreamConfig) { c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = true, time.Minute },
			"update AEE_JOURNAL: allow_rollup_hdrs true, should be false; subject_delete_marker_ttl 1m0s, should be none", "corrected"},
		{"aee_state", "KV_aee_state", func(c *natsjs.StreamConfig) {
			c.RePublish = &natsjs.RePublish{Source: "$KV.aee_state.>", Destination: "mon.>"}
		}, "none aee_state: republish $KV.aee_state.> to mon.>, should be none (its operator's: all who may subscribe there read what is stored)", "kept"},
		{"AEE_DEAD", "AEE_DEAD", func(c *natsjs.StreamConfig) { c.MaxMsgSize = 1000 },
			"none AEE_DEAD: max_msg_size 1000, should be no limit (its operator's: what is larger is refused, also where a task that was accepted needs it)", "breaks"},
		{"aee_state_objects", "OBJ_aee_state_objects", func(c *natsjs.StreamConfig) { c.MaxAge = time.Hour },
			"none aee_state_objects: max_age 1h0m0s, should be no limit (its operator's: large checkpoints of runs that go on are dropped without notice)", "breaks"},
		{"AEE_HUMAN", "AEE_HUMAN", func(c *natsjs.StreamConfig) { c.Sources = []*natsjs.StreamSource{{Name: "OTHER"}} },
			"none AEE_HUMAN: sources OTHER, should be none (its operator's: what that stream stores is taken for messages of the mesh)", "kept"},
		{"AEE_REPLY", "AEE_REPLY", func(c *natsjs.StreamConfig) { c.AllowMsgSchedules = true },
			"none AEE_REPLY: allow_msg_schedules true, should be false (a server does not turn it off again: with it come roll-ups, by which a user who may publish one message purges the whole stream)", "breaks"},
		{"aee_slots", "KV_aee_slots", func(c *natsjs.StreamConfig) { c.DenyPurge = true },
			"none aee_slots: deny_purge true, should be false (a server does not turn it off again: nothing in it can be removed for good)", "breaks"},
		{"aee_agents", "KV_aee_agents", func(c *natsjs.StreamConfig) { c.AllowRollup, c.DenyPurge = false, true },
			"none aee_agents: deny_purge true, should be false (a server does not turn it off again: nothing in it can be removed for good)", "breaks"},
		{"AEE_WORK", "AEE_WORK", func(c *natsjs.StreamConfig) { c.DenyDelete = true },
			"none AEE_WORK: deny_delete true, should be false (a server does not turn it off again: none of its tasks can be removed by hand)", "breaks"},
	} {
		editStream(t, js, tt.stream, tt.edit)
		opts := jetstream.Options{Only: []string{tt.name}}
		report, err := jetstream.Apply(testContext(t), js, opts)
		if got := words(report); err != nil || !slices.Equal(got, []string{tt.want}) {
			t.Errorf("got  %q, %v\nwant %q", got, err, tt.want)
			continue
		}
		if d := report[0].Differences[0]; d.Breaks != (tt.then == "breaks") {
			t.Errorf("%s: %+v", tt.name, d)
		}
		after := "none " + tt.name
		if tt.then != "corrected" {
			after = tt.want
		}
		if got := words(apply(t, js, opts)); !slices.Equal(got, []string{after}) {
			t.Errorf("again: %q, want %q", got, after)
		}
		if tt.stream == "KV_aee_state" { // further edits of this one
			editStream(t, js, tt.stream, func(c *natsjs.StreamConfig) { c.RePublish = nil })
		}
	}
}

// A stream that was made by hand has settings that no edit changes: those of one that counts, or
// that acknowledges what is not written yet.
func TestApplyFindsStreamsThatWereMadeOtherwise(t *testing.T) {
	t.Parallel()
	const counts = "(it cannot be changed without making the stream anew)"
	const async = "persist_mode async, should be default (it cannot be changed without making the stream anew: what was acknowledged is lost if the server is killed)"
	for _, tt := range []struct {
		name, stream string
		change       func(*natsjs.StreamConfig)
		replicas     int
		want         string
		conflict     bool
		breaks       bool
	}{
		{name: "AEE_HUMAN", stream: "AEE_HUMAN", change: func(c *natsjs.StreamConfig) { c.AllowMsgCounter = true },
			want: "conflict AEE_HUMAN: allow_msg_counter true, should be false " + counts, conflict: true},
		{name: "aee_agents", stream: "KV_aee_agents", change: func(c *natsjs.StreamConfig) { c.AllowMsgCounter, c.Discard = true, natsjs.DiscardOld },
			want: "conflict aee_agents: allow_msg_counter true, should be false " + counts, conflict: true},
		{name: "AEE_COUNT", stream: "AEE_COUNT", change: func(c *natsjs.StreamConfig) { c.AllowMsgCounter = false },
			want: "conflict AEE_COUNT: allow_msg_counter false, should be true " + counts, conflict: true},
		{name: "AEE_WORK", stream: "AEE_WORK", change: func(c *natsjs.StreamConfig) { c.PersistMode = natsjs.AsyncPersistMode },
			want: "none AEE_WORK: " + async, breaks: true},
		{name: "aee_state", stream: "KV_aee_state", change: func(c *natsjs.StreamConfig) { c.PersistMode = natsjs.AsyncPersistMode }, replicas: 3,
			want: "none aee_state: " + async + "; num_replicas 1, should be 3 (persist_mode async allows no replicas)", breaks: true},
		{name: "AEE_BUS", stream: "AEE_BUS", change: func(c *natsjs.StreamConfig) { c.PersistMode = natsjs.AsyncPersistMode },
			want: "none AEE_BUS"}, // it acknowledges nothing
	} {
		ctx, js := testContext(t), start(t)
		opts := jetstream.Options{Only: []string{tt.name}}
		apply(t, js, opts)
		made, err := js.Stream(ctx, tt.stream)
		if err != nil {
			t.Fatal(err)
		}
		cfg := made.CachedInfo().Config
		if err := js.DeleteStream(ctx, tt.stream); err != nil {
			t.Fatal(err)
		}
		tt.change(&cfg)
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		opts.Replicas = tt.replicas
		report, err := jetstream.Apply(ctx, js, opts)
		if got := words(report); !slices.Equal(got, []string{tt.want}) || tt.conflict != (err != nil) || tt.conflict && err.Error() != tt.want {
			t.Errorf("got  %q, %v\nwant %q", got, err, tt.want)
			continue
		}
		if broken := len(report[0].Differences) > 0 && report[0].Differences[0].Breaks; broken != tt.breaks {
			t.Errorf("%s: %+v", tt.name, report[0].Differences)
		}
	}
}

func editStream(t *testing.T, js natsjs.JetStream, stream string, change func(*natsjs.StreamConfig)) {
	t.Helper()
	s, err := js.Stream(testContext(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	change(&cfg)
	if _, err := js.UpdateStream(testContext(t), cfg); err != nil {
		t.Fatalf("%s: %v", stream, err)
	}
}
