package jetstream_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

var update = flag.Bool("update", false, "record what this version of the topology makes")

func recorded(version int) string {
	return filepath.Join("testdata", fmt.Sprintf("topology-v%d.json", version))
}

// A change of the topology needs a new version and a migration: see
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
		if m.Step != nil && !strings.HasSuffix(m.About, "; stop all workers first") {
			t.Errorf("migration to version %d moves what workers use, and says: %s", m.Version, m.About)
		}
	}
	if len(migrations) != jetstream.TopologyVersion-1 {
		t.Errorf("%d migrations lead to version %d", len(migrations), jetstream.TopologyVersion)
	}
}

// makeVersion creates the streams of an older version.
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

// storeAsBefore5 stores the large document of a run in the layout of releases before
// topology 5.
func storeAsBefore5(t *testing.T, js natsjs.JetStream, id state.ID, document []byte) {
	t.Helper()
	ctx, key, token := testContext(t), id.Entity+"."+id.Run, rand.Text()
	publish := func(subj string, data []byte, header nats.Header) {
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: subj, Data: data, Header: header}); err != nil {
			t.Fatal(err)
		}
	}
	for chunk := range slices.Chunk(document, 128<<10) {
		publish("$O.aee_state_objects.C."+token, chunk, nil)
	}
	name := key + "/" + token
	meta, err := json.Marshal(natsjs.ObjectInfo{ObjectMeta: natsjs.ObjectMeta{Name: name}, Bucket: "aee_state_objects", NUID: token, Size: uint64(len(document))})
	if err != nil {
		t.Fatal(err)
	}
	publish("$O.aee_state_objects.M."+base64.URLEncoding.EncodeToString([]byte(name)), meta, nil)
	publish("$KV.aee_state."+key, []byte("{}"), nats.Header{jetstream.HeaderObject: {fmt.Sprintf("sha256:%x %d %s", sha256.Sum256(document), len(document), name)}})
	if got, err := jetstream.NewStates(js, subject.Map{}).Get(ctx, id); err != nil || !bytes.Equal(got.Data, document) {
		t.Fatalf("as it was stored: %d bytes, %v", len(got.Data), err)
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
	large := state.ID{Entity: "agent.x", Run: "large"}
	document := bytes.Repeat([]byte("large "), 50<<10)
	switch {
	case version >= 5:
		if _, err := jetstream.NewStates(js, subject.Map{}).Put(ctx, large, 0, document); err != nil {
			t.Fatal(err)
		}
	case version >= 2:
		storeAsBefore5(t, js, large, document)
	}
	before := configs(t, js)

	plan, err := jetstream.Plan(ctx, js, jetstream.Options{})
	if err != nil || jetstream.VersionOf(plan) != version {
		t.Errorf("version %d, %v", jetstream.VersionOf(plan), err)
	}
	var want []string
	for _, s := range jetstream.Topology() {
		if _, there := before[s.StreamName(subject.Map{})]; there {
			line := fmt.Sprintf("update %s: topology %d, should be %d", s.Name, version, jetstream.TopologyVersion)
			want = append(want, line)
		} else {
			want = append(want, "create "+s.Name)
		}
	}
	short := func(changes []jetstream.Change) []string {
		all := words(changes)
		for i, w := range all {
			all[i], _, _ = strings.Cut(w, ";") // further differences are compared below
		}
		return all
	}
	if got := short(apply(t, js, jetstream.Options{})); !slices.Equal(got, want) || !slices.Equal(short(plan), want) {
		t.Errorf("applied %q\nplanned %q\nwant %q", got, short(plan), want)
	}
	again := apply(t, js, jetstream.Options{})
	for _, c := range again {
		if c.Action != jetstream.ActionNone || c.Version != jetstream.TopologyVersion {
			t.Errorf("again: %+v", c)
		}
	}
	after := configs(t, js)
	specs := map[string]natsjs.StreamConfig{}
	for _, s := range jetstream.Topology() {
		specs[s.StreamName(subject.Map{})] = s.Config
	}
	for name, was := range before {
		is, spec := after[name], specs[name]
		is.Metadata, was.Metadata = nil, nil
		was.NoAck, was.AllowRollup, was.MaxConsumers, was.SubjectDeleteMarkerTTL = spec.NoAck, spec.AllowRollup, spec.MaxConsumers, spec.SubjectDeleteMarkerTTL
		switch name {
		case jetstream.StreamBus:
			was.AllowMsgTTL = true
		case "KV_" + jetstream.BucketState, jetstream.StreamWork:
			was.Subjects = is.Subjects
		}
		if !reflect.DeepEqual(is, was) {
			t.Errorf("%s was\n%+v, is\n%+v", name, was, is)
		}
	}
	if version >= 2 {
		got, err := jetstream.NewStates(js, subject.Map{}).Get(ctx, large)
		if err != nil || !bytes.Equal(got.Data, document) {
			t.Errorf("a large document has %d bytes, %v", len(got.Data), err)
		}
		objects, err := js.Stream(ctx, "OBJ_aee_state_objects")
		if err != nil {
			t.Fatal(err)
		}
		info, err := objects.Info(ctx, natsjs.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		for subj := range info.State.Subjects {
			if !strings.HasPrefix(subj, "$O.aee_state_objects.C.agent.x.large.") {
				t.Errorf("an object is still on %s", subj)
			}
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

// An older release changes nothing that a newer one has set up: what seems to be missing
// or wrong may be intended.
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

// A task of a priority that there is not is refused, so that its sender learns of it. What a mesh
// of an older topology has stored, and what its workers do, stays as it is.
func TestTasksOfNoPriorityAreRefused(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "acme.eu"} {
		ctx, js, m := testContext(t), start(t), prefix(t, p)
		raw, err := os.ReadFile(recorded(8))
		if err != nil {
			t.Fatal(err)
		}
		var all []natsjs.StreamConfig
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		cfg := all[slices.IndexFunc(all, func(c natsjs.StreamConfig) bool { return c.Name == jetstream.StreamWork })]
		cfg.Name, cfg.Subjects = jetstream.StreamWork+m.Suffix(), []string{m.AllWork(), "jobs.of.others"}
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		q := jetstream.NewQueue(js, m)
		work := func(priority string) string { return strings.TrimSuffix(m.AllWork(), ">") + priority + ".agent.x" }
		for _, priority := range []string{"bogus", "normal"} {
			if _, err := js.Publish(ctx, work(priority), []byte("before")); err != nil {
				t.Fatal(err)
			}
		}
		w := startLane(t, js, m, "agent.x", 4, alert(true))
		waitFor(t, "a task that is drawn before", func() bool { return w.Health().Unacked == 1 })

		want := append([]string{"jobs.of.others"}, m.AllWorkByPriority()...)
		for range 2 {
			apply(t, js, jetstream.Options{Map: m})
			if got := configs(t, js)[cfg.Name].Subjects; !slices.Equal(got, want) {
				t.Errorf("the stream captures %q, want %q", got, want)
			}
		}
		if _, err := js.Publish(ctx, work("bogus"), nil, natsjs.WithRetryAttempts(0)); !errors.Is(err, natsjs.ErrNoStreamResponse) {
			t.Errorf("a task of no priority: %v", err)
		}
		if d := w.done(t); string(d.Data) != "before" {
			t.Errorf("got %q", d.Data)
		}
		for _, priority := range subject.Priorities() {
			if _, err := q.Submit(ctx, jetstream.Submission{Entity: "agent.x", Priority: priority}); err != nil {
				t.Errorf("%s: %v", priority, err)
			}
			w.done(t)
		}
		if got, err := q.Undrawn(ctx); err != nil || !reflect.DeepEqual(got, map[string]int{work("bogus"): 1}) {
			t.Errorf("from no consumer can be drawn %v, %v", got, err)
		}
		stream, err := js.Stream(ctx, cfg.Name)
		if err == nil {
			err = stream.Purge(ctx, natsjs.WithPurgeSubject(work("bogus")))
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := q.Undrawn(ctx); err != nil || len(got) != 0 {
			t.Errorf("purged, %v, %v", got, err)
		}
	}
}
