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
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// atOnce makes a sweep delete everything that may be deleted, however young it is.
var atOnce = jetstream.SweepOptions{Keep: time.Nanosecond, Orphans: time.Nanosecond}

func runs(t *testing.T, s *jetstream.States) []string {
	t.Helper()
	var got []string
	for r, err := range s.List(testContext(t), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.ID.Run)
	}
	slices.Sort(got)
	return got
}

// A full bucket stops all work until a sweep deletes the ended runs, and nothing else.
func TestSweepMakesRoom(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js := jetstream.Gather(start(t))
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: 1 << 20}}})
	s := jetstream.NewStates(js, subject.Map{})
	work := func(entity string) uint64 {
		ack, err := js.Publish(ctx, "aee.work.normal."+entity, []byte("task"))
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	stream, err := js.Stream(ctx, "AEE_WORK")
	if err != nil {
		t.Fatal(err)
	}
	old, waiting := work("agent.x"), work("agent.x")
	if err := stream.DeleteMsg(ctx, old); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 16<<10)
	kept := map[string]jetstream.Note{
		"paused":      {Status: "paused", Work: old},
		"running":     {Status: "running", Work: old},
		"unknown":     {Work: old},
		"redelivered": {Status: "completed", Work: waiting}, // its work message exists
		"tombstone":   {Status: "failed"},                   // its work message may exist
	}
	var want []string
	for run, note := range kept {
		putRun(t, s, state.ID{Entity: "agent.x", Run: run}, 0, data, note)
		want = append(want, run)
	}
	slices.Sort(want)
	failed := state.ID{Entity: "agent.x", Run: "dead"}
	putRun(t, s, failed, 0, data, jetstream.Note{Status: "failed", Work: old})
	fill := func(from int) int {
		for i := from; ; i++ {
			id := state.ID{Entity: "agent.y", Run: fmt.Sprintf("done%03d", i)}
			rev, err := s.PutNoted(ctx, id, 0, data, jetstream.Note{Status: "running", Work: old})
			if err == nil {
				_, err = s.PutNoted(ctx, id, rev, data, jetstream.Note{Status: "completed", Work: old})
			}
			if errors.Is(err, jetstream.ErrFull) {
				if rev > 0 {
					if _, err := s.PutNoted(ctx, id, rev, []byte("{}"), jetstream.Note{Status: "completed", Work: old}); err != nil {
						t.Fatal(err)
					}
				}
				return i
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	n := fill(0)
	if got, err := s.Sweep(ctx, jetstream.SweepOptions{}); err != nil || got.Runs != 0 || got.Used < 0.9 {
		t.Errorf("what ended just now was swept: %+v, %v", got, err)
	}
	swept, err := s.Sweep(ctx, atOnce)
	if err != nil || swept.Runs < n/4 {
		t.Errorf("swept %+v of %d, %v", swept, n, err)
	}
	if got := runs(t, s); !slices.Contains(got, "dead") && swept.Runs < n {
		t.Error("a failed run went before the others")
	}
	fill(n + 1)
	if swept, err = s.Sweep(ctx, jetstream.SweepOptions{From: 0.1, To: 0.0001, Keep: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if got := runs(t, s); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if swept, err = s.Sweep(ctx, atOnce); err != nil || swept.Runs != 0 || swept.Used > 0.2 {
		t.Errorf("with room: %+v, %v", swept, err)
	}
}

// A run that is written again while a sweep examines it stays.
func TestSweepKeepsReopenedRuns(t *testing.T) {
	t.Parallel()
	_, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	ended := putRun(t, s, id, 0, []byte("ended"), jetstream.Note{Status: "failed", Work: 1})
	again := putRun(t, s, id, ended, []byte("again"), jetstream.Note{Status: "running", Work: 2})
	if err := jetstream.PurgeRun(testContext(t), s, id, ended); err != nil {
		t.Fatal(err)
	}
	if h, err := s.History(testContext(t), id); err != nil || len(h) != 1 || h[0].Revision != again {
		t.Errorf("history %+v, %v", h, err)
	}
}

// A sweep stops when the bucket is half empty, also if the runs that it may delete are few.
func TestSweepStopsHalfWay(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		size      func(run, revision int) int
		revisions int
	}{
		"one revision":   {func(int, int) int { return 9 << 10 }, 1},
		"many revisions": {func(int, int) int { return 3 << 10 }, 6},
		"growing":        {func(_, revision int) int { return 4<<10 + revision<<12 }, 3},
		"unequal":        {func(run, _ int) int { return 1<<10 + run%5<<12 }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := jetstream.Gather(start(t))
			apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: 1 << 20}}})
			s := jetstream.NewStates(js, subject.Map{})
			size := func() (size int) {
				stream, err := js.Stream(testContext(t), "KV_aee_state")
				if err != nil {
					t.Fatal(err)
				}
				return int(stream.CachedInfo().State.Bytes)
			}
			var want []string
			for run := 0; size() < 900<<10; run++ {
				id, rev := state.ID{Entity: "agent.x", Run: fmt.Sprintf("%04d", run)}, uint64(0)
				for i := range of.revisions {
					rev = putRun(t, s, id, rev, make([]byte, of.size(run, i)), jetstream.Note{Status: "completed", Work: 1})
				}
				want = append(want, id.Run)
			}
			swept, err := s.Sweep(testContext(t), atOnce)
			if err != nil {
				t.Fatal(err)
			}
			if left := size(); left < 480<<10 || left > 512<<10 {
				t.Errorf("%d bytes are left, of 1 MiB", left)
			}
			if left := runs(t, s); !slices.Equal(left, want[swept.Runs:]) {
				t.Errorf("%d runs of %d were deleted, and %q are left", swept.Runs, len(want), left)
			}
		})
	}
}

// A sweep of a full object store counts all objects of the runs that it deletes, not only those of
// their newest revisions, so it stops when the store is half empty.
func TestSweepOfObjectsStopsHalfWay(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for name, last := range map[string]func(run int) int{
		"large":                func(int) int { return 300 << 10 },
		"every second's small": func(run int) int { return 1<<10 + (run+1)%2*299<<10 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, used := openObjects(t)
			var want []string
			for run := 0; used() < 12<<20+512<<10; run++ {
				id, rev := state.ID{Entity: "agent.x", Run: fmt.Sprintf("%04d", run)}, uint64(0)
				for range 7 {
					rev = putRun(t, s, id, rev, make([]byte, 300<<10), jetstream.Note{Status: "running", Work: 1})
				}
				putRun(t, s, id, rev, make([]byte, last(run)), jetstream.Note{Status: "completed", Work: 1})
				want = append(want, id.Run)
			}
			swept, err := s.Sweep(testContext(t), atOnce)
			if err != nil {
				t.Fatal(err)
			}
			if left := used(); left < 5<<20 || left > 8<<20 {
				t.Errorf("%d bytes are left, of 16 MiB", left)
			}
			left := runs(t, s)
			if swept.Runs == 0 || len(left) == 0 || !slices.Equal(left, want[swept.Runs:]) {
				t.Errorf("%d runs of %d were deleted, and %q are left", swept.Runs, len(want), left)
			}
			for _, run := range left {
				if h, err := s.History(testContext(t), state.ID{Entity: "agent.x", Run: run}); err != nil || len(h) != 8 {
					t.Errorf("run %s has %d revisions, %v", run, len(h), err)
				}
			}
		})
	}
}

// A sweep deletes the objects of the runs that it deletes, however young they are: otherwise the
// store would stay full, and each further sweep would delete more runs.
func TestSweepOfObjectsFreesThem(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	s, used := openObjects(t)
	for run := range 43 {
		putRun(t, s, state.ID{Entity: "agent.x", Run: fmt.Sprintf("%04d", run)}, 0, make([]byte, 300<<10), jetstream.Note{Status: "completed", Work: 1})
	}
	for sweep, want := range []int{16, 0} {
		swept, err := s.Sweep(testContext(t), jetstream.SweepOptions{Keep: time.Nanosecond})
		if err != nil || swept.Runs != want || used() > 8<<20 {
			t.Errorf("sweep %d: %+v, %v; %d bytes are used, of 16 MiB", sweep+1, swept, err, used())
		}
	}
}

// The objects of a run that was written again while a sweep examined it stay if its newer
// revisions refer to them.
func TestSweepKeepsTheObjectsOfReopenedRuns(t *testing.T) {
	t.Parallel()
	js, s := openStates(t)
	id := state.ID{Entity: "agent.x", Run: "r"}
	data := make([]byte, 300<<10)
	first := putRun(t, s, id, 0, data, jetstream.Note{Status: "running"})
	ended := putRun(t, s, id, first, data, jetstream.Note{Status: "failed", Work: 1})
	msg, err := jetstream.LastOn(testContext(t), js, "KV_aee_state", "$KV.aee_state.agent.x.r")
	if err != nil {
		t.Fatal(err)
	}
	// A writer that did not learn that its record was stored writes a further one for the same object.
	header := nats.Header{jetstream.HeaderObject: msg.Header[jetstream.HeaderObject]}
	if _, err := js.PublishMsg(testContext(t), &nats.Msg{Subject: msg.Subject, Data: msg.Data, Header: header}); err != nil {
		t.Fatal(err)
	}
	again := putRun(t, s, id, ended+1, data, jetstream.Note{Status: "running", Work: 2})
	if err := jetstream.PurgeRun(testContext(t), s, id, ended); err != nil {
		t.Fatal(err)
	}
	h, err := s.History(testContext(t), id)
	if err != nil || len(h) != 2 || h[1].Revision != again || len(h[0].Data) != len(data) || len(h[1].Data) != len(data) {
		t.Errorf("history of %d, %v", len(h), err)
	}
	stream, err := js.Stream(testContext(t), "OBJ_aee_state_objects")
	if err != nil {
		t.Fatal(err)
	}
	if left := stream.CachedInfo().State.Msgs; left != 2*3 {
		t.Errorf("%d chunks are left, want those of two objects", left)
	}
}

// openObjects returns states whose object store has 16 MiB, and how much of it is used.
func openObjects(t *testing.T) (*jetstream.States, func() int) {
	t.Helper()
	js := jetstream.Gather(start(t))
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.ObjectsState: {MaxBytes: 16 << 20}}})
	return jetstream.NewStates(js, subject.Map{}), func() int {
		stream, err := js.Stream(testContext(t), "OBJ_aee_state_objects")
		if err != nil {
			t.Fatal(err)
		}
		return int(stream.CachedInfo().State.Bytes)
	}
}

func TestManySweepAtOnce(t *testing.T) {
	t.Parallel()
	js := jetstream.Gather(start(t))
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: 1 << 20}}})
	s := jetstream.NewStates(js, subject.Map{})
	for i := range 100 {
		putRun(t, s, state.ID{Entity: "agent.x", Run: fmt.Sprint(i)}, 0, make([]byte, 9<<10), jetstream.Note{Status: "completed", Work: 1})
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := s.Sweep(testContext(t), atOnce); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err := s.Sweep(testContext(t), jetstream.SweepOptions{}); err != nil || got.Used > 0.5 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSweepCollectsOrphans(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, s := openStates(t)
	big := make([]byte, 300<<10)
	id, gone := state.ID{Entity: "agent.größe", Run: "a/b"}, state.ID{Entity: "agent.x", Run: "gone"}
	rev := putRun(t, s, id, 0, big, jetstream.Note{})
	putRun(t, s, id, rev, []byte("small"), jetstream.Note{}) // the history still refers to the object
	putRun(t, s, gone, 0, big, jetstream.Note{})
	stream, err := js.Stream(ctx, "KV_aee_state")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx, natsjs.WithPurgeSubject("$KV.aee_state.agent.x.gone")); err != nil { // as if expired
		t.Fatal(err)
	}
	// A writer crashed between two chunks, and another program uses the store.
	for _, subj := range []string{"$O.aee_state_objects.C.agent.x.died.TOKEN.0", "$O.aee_state_objects.C.HOLIDAY"} {
		if _, err := js.Publish(ctx, subj, big); err != nil {
			t.Fatal(err)
		}
	}
	if swept, err := s.Sweep(ctx, jetstream.SweepOptions{}); err != nil || swept.Objects != 0 {
		t.Errorf("young objects: %+v, %v", swept, err)
	}
	if swept, err := s.Sweep(ctx, atOnce); err != nil || swept.Objects != 2 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	if names, want := objectNames(t, js), []string{"HOLIDAY", "agent.gr=C3=B6=C3=9Fe.a=2Fb"}; !slices.Equal(names, want) {
		t.Errorf("left are %q", names)
	}
	if r, err := s.At(ctx, id, rev); err != nil || len(r.Data) != len(big) {
		t.Errorf("the history has lost its object: %d, %v", len(r.Data), err)
	}
	if swept, err := s.Sweep(ctx, atOnce); err != nil || swept.Objects != 0 {
		t.Errorf("again: %+v, %v", swept, err)
	}
}

// Runs are deleted in the order in which they were stored. One whose time is in the future, because
// the clock of the stream's leader was wrong, stays until then, and keeps none behind it.
func TestSweepDeletesTheEarliestFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var all []jetstream.Message
	add := func(age time.Duration, header ...string) {
		m := jetstream.Message{Seq: uint64(len(all) + 1), Time: now.Add(-age), Data: []byte("{}"), Header: nats.Header{}}
		for i := 0; i < len(header); i += 2 {
			m.Header.Set(header[i], header[i+1])
		}
		all = append(all, m)
	}
	add(time.Hour, jetstream.HeaderStatus, "failed")
	add(time.Hour, jetstream.HeaderStatus, "completed")
	add(time.Hour, jetstream.HeaderStatus, "running")
	add(-365*24*time.Hour, jetstream.HeaderStatus, "completed") // the clock is right again after that
	add(-365*24*time.Hour, natsjs.MsgTTLHeader, "3600", jetstream.HeaderStatus, "paused")
	add(50*time.Minute, jetstream.HeaderStatus, "completed")
	add(40*time.Minute, natsjs.MsgTTLHeader, "3600", jetstream.HeaderStatus, "paused")
	add(30*time.Minute, natsjs.MsgTTLHeader, "3600", jetstream.HeaderStatus, "completed")
	add(20*time.Minute, jetstream.HeaderStatus, "failed")
	add(10 * time.Minute)
	add(time.Minute, jetstream.HeaderStatus, "completed")
	if got, want := jetstream.Evicted(all, now, 2*time.Minute), []uint64{7, 2, 6, 8, 1, 9}; !slices.Equal(got, want) {
		t.Errorf("deleted are %d, want %d", got, want)
	}
}

// The records of handoffs have a time to live, as commands for tasks that have not started
// have. They are needed until then.
func TestSweepDeletesNoHandoffs(t *testing.T) {
	t.Parallel()
	js := jetstream.Gather(start(t))
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketHandoff: {MaxBytes: 1 << 20}}})
	s := jetstream.NewHandoffs(js, subject.Map{})
	for i := range 56 {
		if _, err := s.PutFor(testContext(t), state.ID{Entity: "agent.x", Run: fmt.Sprintf("run%02d", i)}, 0, make([]byte, 16<<10), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if swept, err := s.Sweep(testContext(t), jetstream.SweepOptions{Keep: time.Nanosecond}); err != nil || swept.Runs != 0 || swept.Used < 0.75 {
		t.Errorf("swept %+v, %v", swept, err)
	}
}

// Finding 4 of the security review: if room is needed, commands for tasks that have not
// started are deleted before any run.
func TestSweepDeletesNotesFirst(t *testing.T) {
	t.Parallel()
	js := jetstream.Gather(start(t))
	apply(t, js, jetstream.Options{Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: 1 << 20}}})
	s := jetstream.NewStates(js, subject.Map{})
	data := make([]byte, 16<<10)
	for i := range 24 {
		putRun(t, s, state.ID{Entity: "agent.x", Run: fmt.Sprintf("done%02d", i)}, 0, data, jetstream.Note{Status: "completed", Work: 1})
	}
	for i := range 24 {
		putRun(t, s, state.ID{Entity: "agent.y", Run: fmt.Sprintf("note%02d", i)}, 0, data, jetstream.Note{Status: "paused", TTL: time.Hour})
	}
	if swept, err := s.Sweep(testContext(t), jetstream.SweepOptions{From: 0.5}); err != nil || swept.Runs != 0 {
		t.Errorf("young notes: %+v, %v", swept, err)
	}
	if swept, err := s.Sweep(testContext(t), jetstream.SweepOptions{From: 0.5, Keep: time.Nanosecond}); err != nil || swept.Runs < 12 || swept.Runs > 24 {
		t.Errorf("swept %+v, %v", swept, err)
	}
	done := slices.DeleteFunc(runs(t, s), func(run string) bool { return strings.HasPrefix(run, "note") })
	if len(done) != 24 {
		t.Errorf("of the runs are left %q", done)
	}
}
