package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/statetest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// states are the parts of the topology that a store of checkpoints needs.
var states = []string{jetstream.BucketState, jetstream.ObjectsState}

// interrupted is a store whose server can be restarted.
type interrupted struct {
	*jetstream.States
	t   *testing.T
	srv *natsd.Server
}

func (i *interrupted) Interrupt() { i.srv = natstest.Restart(i.t, i.srv) }

func TestStatesAreAStore(t *testing.T) {
	t.Parallel()
	statetest.Run(t, func(t *testing.T) state.Store {
		srv := natstest.Run(t, natsd.Config{JetStream: true})
		js := jetstream.Gather(connect(t, srv))
		apply(t, js, jetstream.Options{Only: states})
		return &interrupted{jetstream.NewStates(js, subject.Map{}), t, srv}
	})
}

// The records of handoffs are stored in the same way.
func TestHandoffsAreAStore(t *testing.T) {
	t.Parallel()
	statetest.Run(t, func(t *testing.T) state.Store {
		srv := natstest.Run(t, natsd.Config{JetStream: true})
		js := jetstream.Gather(connect(t, srv))
		apply(t, js, jetstream.Options{Only: []string{jetstream.BucketHandoff, jetstream.ObjectsState}})
		return jetstream.NewHandoffs(js, subject.Map{})
	})
}

// A sweep of the runs does not delete the documents of handoffs, nor the reverse.
func TestSweepsLeaveOneAnothersObjectsAlone(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{Only: []string{jetstream.BucketState, jetstream.BucketHandoff, jetstream.ObjectsState}})
	runs, handoffs := jetstream.NewStates(js, subject.Map{}), jetstream.NewHandoffs(js, subject.Map{})
	ctx := t.Context()
	id := state.ID{Entity: "agent.x", Run: "r"}
	large := []byte(`{"x":"` + strings.Repeat("x", jetstream.MaxInline) + `"}`)
	for _, s := range []*jetstream.States{runs, handoffs} {
		rev, err := s.Put(ctx, id, 0, large)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(ctx, id, rev, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(s *jetstream.States) int {
		t.Helper()
		swept, err := s.Sweep(ctx, jetstream.SweepOptions{Orphans: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		return swept.Objects
	}
	if n := sweep(runs) + sweep(handoffs); n != 0 {
		t.Errorf("%d objects collected that a revision refers to", n)
	}
	if err := handoffs.Compact(ctx, id); err != nil {
		t.Fatal(err)
	}
	if n := sweep(runs); n != 0 {
		t.Errorf("the runs' sweep collected %d objects of handoffs", n)
	}
	if n := sweep(handoffs); n != 1 {
		t.Errorf("the handoffs' sweep collected %d objects, want 1", n)
	}
	if rec, err := handoffs.Get(ctx, id); err != nil || string(rec.Data) != "{}" {
		t.Errorf("after compacting: %q, %v", rec.Data, err)
	}
	if history, err := runs.History(ctx, id); err != nil || len(history) != 2 || len(history[0].Data) != len(large) {
		t.Errorf("the runs' history: %d, %v", len(history), err)
	}
}

// The same in another JetStream domain, with a prefix, without Gather.
func TestStatesInADomainAreAStore(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	statetest.Run(t, func(t *testing.T) state.Store {
		srv := natstest.Run(t, natsd.Config{JetStream: true, Domain: "hub"})
		js, err := natsjs.NewWithDomain(natstest.Conn(t, srv), "hub")
		if err != nil {
			t.Fatal(err)
		}
		m := prefix(t, "acme.eu")
		apply(t, js, jetstream.Options{Only: states, Map: m})
		return jetstream.NewStates(js, m)
	})
}

// The same with three replicas; the stores of the tests are on different servers.
func TestStatesWithReplicasAreAStore(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes its time")
	}
	t.Parallel()
	servers := natstest.Cluster(t, 3)
	// A small disk has not enough room for all stores of this test at the topology's
	// limits.
	small := map[string]jetstream.Limits{}
	for _, name := range states {
		small[name] = jetstream.Limits{MaxBytes: 16 << 20}
	}
	var n atomic.Int32
	t.Run("R3", func(t *testing.T) {
		statetest.Run(t, func(t *testing.T) state.Store {
			i := int(n.Add(1))
			js := jetstream.Gather(connect(t, servers[i%3]))
			m := prefix(t, fmt.Sprintf("p%d", i))
			applyInCluster(t, js, jetstream.Options{Only: states, Map: m, Replicas: 3, Limits: small})
			for _, stream := range []string{"KV_" + jetstream.BucketState, "OBJ_" + jetstream.ObjectsState} {
				waitFor(t, "a replica of the new stream to answer direct gets", func() bool {
					_, err := js.Conn().Request("$JS.API.DIRECT.GET."+stream+m.Suffix(), []byte(`{"seq":1}`), time.Second)
					return err == nil
				})
			}
			return jetstream.NewStates(js, m)
		})
	})
}

func openStates(t testing.TB) (natsjs.JetStream, *jetstream.States) {
	t.Helper()
	js := jetstream.Gather(start(t))
	apply(t, js, jetstream.Options{})
	return js, jetstream.NewStates(js, subject.Map{})
}

func putRun(t testing.TB, s *jetstream.States, id state.ID, prev uint64, data []byte, note jetstream.Note) uint64 {
	t.Helper()
	rev, err := s.PutNoted(testContext(t), id, prev, data, note)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// document returns a checkpoint as the mesh writes it.
func document(t testing.TB, entity, task, filler string, status string) (state.ID, []byte) {
	t.Helper()
	c := state.New(entity, task, "")
	c.Mesh.Work = 7
	c.Mesh.Told = filler
	if status == "completed" {
		c.Doc.Status = "completed"
	}
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return c.ID(), data
}

// NATS tools can read stored checkpoints, and the headers of those stored as objects.
func TestStatesAreReadableForNATSTools(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	id, small := document(t, "agent.größe.x", "task-1", "", "running")
	rev, err := s.Put(ctx, id, 0, small)
	if err != nil {
		t.Fatal(err)
	}
	_, big := document(t, "agent.größe.x", "task-1", strings.Repeat("long ", 80<<10), "completed")
	if len(big) <= jetstream.MaxInline {
		t.Fatalf("%d bytes are not big", len(big))
	}
	if _, err := s.Put(ctx, id, rev, big); err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(ctx, "aee_state")
	if err != nil {
		t.Fatal(err)
	}
	history, err := kv.History(ctx, "agent.gr=C3=B6=C3=9Fe.x."+id.Run)
	if err != nil || len(history) != 2 || !bytes.Equal(history[0].Value(), small) || len(history[1].Value()) > 4<<10 {
		t.Fatalf("history %v, %v", history, err)
	}
	h, err := state.ReadHeader(history[1].Value())
	if err != nil || h.ID() != id || h.Status != "completed" || h.Object == nil || h.Object.Size != int64(len(big)) {
		t.Errorf("header %+v, %v", h, err)
	}
	objects, err := js.Stream(ctx, "OBJ_aee_state_objects")
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for i := 0; len(got) < len(big); i++ {
		chunk, err := objects.GetLastMsgForSubject(ctx, fmt.Sprintf("$O.aee_state_objects.C.%s.%d", strings.ReplaceAll(h.Object.Name, "/", "."), i))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, chunk.Data...)
	}
	if !bytes.Equal(got, big) {
		t.Errorf("the object has %d bytes", len(got))
	}
	stream, err := js.Stream(ctx, "KV_aee_state")
	if err != nil {
		t.Fatal(err)
	}
	for revision, want := range map[uint64]string{history[0].Revision(): "running", history[1].Revision(): "completed"} {
		msg, err := stream.GetMsg(ctx, revision)
		if err != nil || msg.Header.Get("Content-Type") != "application/json" || msg.Header.Get("Aee-Status") != want || msg.Header.Get("Aee-Work") != "7" {
			t.Errorf("headers %v, %v", msg.Header, err)
		}
	}
	putRun(t, s, state.ID{Entity: "agent.x", Run: "cbor"}, 0, []byte{0xa0}, jetstream.Note{})
	if msg, err := stream.GetLastMsgForSubject(ctx, "$KV.aee_state.agent.x.cbor"); err != nil || msg.Header.Get("Content-Type") != "application/cbor" || msg.Header["Aee-Status"] != nil {
		t.Errorf("headers %v, %v", msg.Header, err)
	}
}

// A run that was deleted with a NATS tool is gone.
func TestStatesDeletedByOthers(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	rev := putRun(t, s, id, 0, []byte("1"), jetstream.Note{})
	kv, err := js.KeyValue(ctx, "aee_state")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(ctx, "agent.x.r"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, id); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	for r, err := range s.List(ctx, "") {
		t.Errorf("listed %+v, %v", r, err)
	}
	again := putRun(t, s, id, 0, []byte("2"), jetstream.Note{})
	if h, err := s.History(ctx, id); err != nil || len(h) != 1 || string(h[0].Data) != "2" || again <= rev {
		t.Errorf("history %+v, %v", h, err)
	}
	if _, err := kv.Put(ctx, "not-a-run", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for r, err := range s.List(ctx, "") {
		if r.ID != id || err != nil {
			t.Errorf("listed %+v, %v", r, err)
		}
	}
}

func TestOpenRuns(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	_, s := openStates(t)
	put := func(entity, run string, note jetstream.Note) {
		putRun(t, s, state.ID{Entity: entity, Run: run}, 0, []byte(run), note)
	}
	put("agent.x", "running", jetstream.Note{Status: "running"})
	put("agent.x", "done", jetstream.Note{Status: "completed"})
	put("agent.x", "failed", jetstream.Note{Status: "failed"})
	put("agent.x", "paused", jetstream.Note{Status: "paused"})
	put("agent.x", "unknown", jetstream.Note{})
	put("agent.y", "other", jetstream.Note{Status: "running"})
	for entity, want := range map[string]string{"agent.x": "running paused unknown", "": "running paused unknown other", "agent.z": ""} {
		var got []string
		for r, err := range s.Open(ctx, entity) {
			if err != nil || string(r.Data) != r.ID.Run {
				t.Fatal(r, err)
			}
			got = append(got, r.ID.Run)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("open of %q: %q", entity, got)
		}
	}
}

func TestStatesErrors(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "admin", Password: "a"},
		{Name: "user", Password: "u", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Allow: []string{"nothing"}}}},
	}})
	admin := connect(t, srv, nats.UserInfo("admin", "a"))
	id := state.ID{Entity: "agent.x", Run: "r"}
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	none := jetstream.NewStates(admin, subject.Map{})
	_, getErr := none.Get(ctx, id)
	_, historyErr := none.History(ctx, id)
	for what, err := range map[string]error{"Get": getErr, "History": historyErr, "WatchRun": jetstream.WatchRun(ctx, none, id, func(state.Record) {})} {
		if errors.Is(err, state.ErrNotFound) || !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("%s without a bucket: %v", what, err)
		}
	}
	if _, err := none.Put(ctx, id, 0, []byte("x")); !errors.Is(err, jetstream.ErrUnavailable) || errors.Is(err, state.ErrUncertain) {
		t.Errorf("Put without a bucket: %v", err)
	}
	apply(t, admin, jetstream.Options{Only: states})
	for _, js := range []natsjs.JetStream{connect(t, srv, nats.UserInfo("user", "u")), jetstream.Gather(connect(t, srv, nats.UserInfo("user", "u")))} {
		denied := jetstream.NewStates(js, subject.Map{})
		_, putErr := denied.Put(short(), id, 0, []byte("x"))
		_, getErr := denied.Get(short(), id)
		for what, err := range map[string]error{"Put": putErr, "Get": getErr} {
			if !errors.Is(err, jetstream.ErrDenied) || errors.Is(err, state.ErrUncertain) {
				t.Errorf("%s without permission: %v", what, err)
			}
		}
	}
	full := jetstream.NewStates(admin, prefix(t, "full"))
	apply(t, admin, jetstream.Options{Map: prefix(t, "full"), Only: states, Limits: map[string]jetstream.Limits{
		jetstream.BucketState: {MaxBytes: 64 << 10}, jetstream.ObjectsState: {MaxBytes: 256 << 10},
	}})
	rev := putRun(t, full, id, 0, make([]byte, 32<<10), jetstream.Note{})
	if _, err := full.Put(ctx, id, rev, make([]byte, 40<<10)); !errors.Is(err, jetstream.ErrFull) {
		t.Errorf("a full bucket: %v", err)
	}
	if _, err := full.Put(ctx, id, rev, make([]byte, 300<<10)); !errors.Is(err, jetstream.ErrFull) {
		t.Errorf("a full object store: %v", err)
	}
	if r, err := full.Get(ctx, id); err != nil || r.Revision != rev {
		t.Errorf("after it: %d, %v", r.Revision, err)
	}
}

// A writer whose compare-and-swap fails leaves no object behind.
func TestTheLoserOfARaceLeavesNoObject(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	big := make([]byte, 300<<10)
	rev := putRun(t, s, id, 0, big, jetstream.Note{})
	if _, err := s.Put(ctx, id, rev+1, big); !errors.Is(err, state.ErrChanged) {
		t.Fatal(err)
	}
	if n := objectCount(t, js); n != 1 {
		t.Errorf("%d objects", n)
	}
	if err := s.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	if st, err := js.Stream(ctx, "OBJ_aee_state_objects"); err != nil || st.CachedInfo().State.Msgs != 0 {
		t.Errorf("deleted, but there is %+v, %v", st.CachedInfo().State, err)
	}
}

func objectCount(t *testing.T, js natsjs.JetStream) int {
	t.Helper()
	return len(objectNames(t, js))
}

// objectNames returns the runs that have objects, and all other names in their store.
// A fenced worker tries to store a large checkpoint until there is room. It stores the document once.
func TestALargeCheckpointIsUploadedOnce(t *testing.T) {
	t.Parallel()
	js := jetstream.Gather(start(t))
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: 64 << 10}}})
	s := jetstream.NewStates(js, subject.Map{})
	s.Fence()
	full := state.ID{Entity: "agent.x", Run: "full"}
	var err error
	for i := 0; err == nil; i++ {
		_, err = s.PutNoted(testContext(t), state.ID{Entity: "agent.x", Run: fmt.Sprint("small", i)}, 0, make([]byte, 100), jetstream.Note{})
	}
	data := bytes.Repeat([]byte("x"), 300<<10)
	for range 4 {
		if _, err := s.PutNoted(testContext(t), full, 0, data, jetstream.Note{}); !errors.Is(err, jetstream.ErrFull) {
			t.Fatal(err)
		}
	}
	chunks := func() uint64 {
		stream, err := js.Stream(testContext(t), "OBJ_aee_state_objects")
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.Msgs
	}
	if n := chunks(); n != 3 {
		t.Errorf("%d chunks of a document of three", n)
	}
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: 1 << 20}}})
	rev := putRun(t, s, full, 0, data, jetstream.Note{})
	if r, err := s.Get(testContext(t), full); err != nil || r.Revision != rev || !bytes.Equal(r.Data, data) {
		t.Errorf("%d bytes, %v", len(r.Data), err)
	}
	other := bytes.Repeat([]byte("y"), 300<<10)
	putRun(t, s, full, rev, other, jetstream.Note{})
	if r, err := s.Get(testContext(t), full); err != nil || !bytes.Equal(r.Data, other) {
		t.Errorf("%d bytes, %v", len(r.Data), err)
	}
	if n := chunks(); n != 6 {
		t.Errorf("%d chunks of two documents of three", n)
	}
}

func objectNames(t *testing.T, js natsjs.JetStream) []string {
	t.Helper()
	stream, err := js.Stream(testContext(t), "OBJ_aee_state_objects")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(testContext(t), natsjs.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for subj := range info.State.Subjects {
		tokens := strings.Split(strings.TrimPrefix(subj, "$O.aee_state_objects.C."), ".")
		if len(tokens) > 2 {
			tokens = tokens[:len(tokens)-2]
		}
		names = append(names, strings.Join(tokens, "."))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
