package jetstream_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

var update = flag.Bool("update", false, "record what this version of the topology makes")

func recorded(version int) string {
	return filepath.Join("testdata", fmt.Sprintf("topology-v%d.json", version))
}

// Whoever changes the topology raises its version and adds a migration: see
// [jetstream.Migration].
func TestTheTopologyOfThisVersionIsRecorded(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	all := configs(t, js)
	var made []natsjs.StreamConfig
	for _, s := range jetstream.Topology() {
		cfg := all[s.StreamName(subject.Map{})]
		for k := range cfg.Metadata {
			if strings.HasPrefix(k, "_nats.") {
				delete(cfg.Metadata, k)
			}
		}
		made = append(made, cfg)
	}
	got, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := recorded(jetstream.TopologyVersion)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("version %d of the topology is not what %s records. A version that was released does not change: raise TopologyVersion and add a Migration. Got\n%s", jetstream.TopologyVersion, file, got)
	}
	migrations := jetstream.Migrations()
	for i, m := range migrations {
		if m.Version != i+2 || m.About == "" {
			t.Errorf("migration %d leads to version %d", i, m.Version)
		}
	}
	if len(migrations) != jetstream.TopologyVersion-1 {
		t.Errorf("%d migrations lead to version %d", len(migrations), jetstream.TopologyVersion)
	}
}

// makeVersion makes the streams of an older version.
func makeVersion(t *testing.T, js natsjs.JetStream, version int) {
	t.Helper()
	raw, err := os.ReadFile(recorded(version))
	if err != nil {
		t.Fatal(err)
	}
	var all []natsjs.StreamConfig
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range all {
		if _, err := js.CreateStream(testContext(t), cfg); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMigrationFromEveryVersion(t *testing.T) {
	t.Parallel()
	for version := 1; version < jetstream.TopologyVersion; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			t.Parallel()
			migrateFrom(t, version)
		})
	}
}

func migrateFrom(t *testing.T, version int) {
	ctx, js := testContext(t), start(t)
	makeVersion(t, js, version)
	run := state.ID{Entity: "agent.x", Run: state.RunID("agent.x", "12345678")}
	if version >= 2 {
		if _, err := jetstream.NewStates(js, subject.Map{}).Put(ctx, run, 0, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		submit(t, jetstream.NewQueue(js, subject.Map{}), jetstream.Submission{Entity: "agent.x", Priority: "normal", ID: "12345678", Data: []byte("task")})
	}
	for _, subj := range []string{"bus.ops", "human.ada"} {
		if err := js.Conn().Publish(subj, []byte(subj)); err != nil {
			t.Fatal(err)
		}
	}
	if err := jetstream.NewJournal(js, subject.Map{}).Put(ctx, "agent.x", "12345678", []byte("journal")); err != nil {
		t.Fatal(err)
	}
	put(t, jetstream.NewKeys(js, subject.Map{}), "kid", "key")
	before := configs(t, js)

	plan, err := jetstream.Plan(ctx, js, jetstream.Options{})
	if err != nil || jetstream.VersionOf(plan) != version {
		t.Errorf("version %d, %v", jetstream.VersionOf(plan), err)
	}
	var want []string
	for _, s := range jetstream.Topology() {
		if _, there := before[s.StreamName(subject.Map{})]; there {
			line := fmt.Sprintf("update %s: topology %d, should be %d", s.Name, version, jetstream.TopologyVersion)
			if s.Name == jetstream.StreamBus { // since version 5
				line += "; allow_msg_ttl false, should be true"
			}
			want = append(want, line)
		} else {
			want = append(want, "create "+s.Name)
		}
	}
	if got := words(apply(t, js, jetstream.Options{})); !slices.Equal(got, want) || !slices.Equal(words(plan), want) {
		t.Errorf("applied %q\nplanned %q\nwant %q", got, words(plan), want)
	}
	again := apply(t, js, jetstream.Options{})
	for _, c := range again {
		if c.Action != jetstream.ActionNone || c.Version != jetstream.TopologyVersion {
			t.Errorf("again: %+v", c)
		}
	}
	after := configs(t, js)
	for name, was := range before {
		is := after[name]
		is.Metadata, was.Metadata = nil, nil
		if name == jetstream.StreamBus {
			was.AllowMsgTTL = true
		}
		if !reflect.DeepEqual(is, was) {
			t.Errorf("%s was\n%+v, is\n%+v", name, was, is)
		}
	}
	for name, subj := range map[string]string{"AEE_BUS": "bus.ops", "AEE_HUMAN": "human.ada"} {
		waitFor(t, "what "+name+" held", func() bool {
			stream, err := js.Stream(ctx, name)
			if err != nil {
				return false
			}
			msg, err := stream.GetLastMsgForSubject(ctx, subj)
			return err == nil && string(msg.Data) == subj
		})
	}
	if got, err := jetstream.NewJournal(js, subject.Map{}).Get(ctx, "agent.x", "12345678"); err != nil || string(got) != "journal" {
		t.Errorf("the journal holds %s, %v", got, err)
	}
	if got, err := jetstream.NewKeys(js, subject.Map{}).Get(ctx, "kid"); err != nil || string(got.Value) != "key" {
		t.Errorf("the keys hold %+v, %v", got, err)
	}
	if version < 2 {
		return
	}
	if got, err := jetstream.NewStates(js, subject.Map{}).Get(ctx, run); err != nil || string(got.Data) != "{}" {
		t.Errorf("the runs hold %+v, %v", got, err)
	}
	if stream, err := js.Stream(ctx, jetstream.StreamWork); err != nil {
		t.Error(err)
	} else if msg, err := stream.GetLastMsgForSubject(ctx, "aee.work.normal.agent.x"); err != nil || string(msg.Data) != "task" {
		t.Errorf("the work queue holds %v, %v", msg, err)
	}
}

// Where a newer release has been at work, an older one touches nothing: what
// it would make or mend may be gone, or otherwise, for a reason.
func TestANewerTopologyIsLeftAlone(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	makeVersion(t, js, 1)
	cfg := configs(t, js)["AEE_HUMAN"]
	cfg.Metadata[jetstream.MetaTopology] = fmt.Sprint(jetstream.TopologyVersion + 1)
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	before := configs(t, js)
	for _, c := range apply(t, js, jetstream.Options{Replicas: 1, Entities: []string{"agent.x"}}) {
		if c.Action != jetstream.ActionNewer {
			t.Errorf("%s", c)
		}
	}
	if after := configs(t, js); !reflect.DeepEqual(before, after) {
		t.Errorf("something was changed:\n%+v\n%+v", before, after)
	}
}
