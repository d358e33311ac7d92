package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/seen"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestJournal(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	m := prefix(t, "acme")
	apply(t, js, jetstream.Options{Map: m})
	j := jetstream.NewJournal(js, m)

	if _, err := j.Get(ctx, "agent.x", "01JFB2R1JZKQ9V3K8W8Y9W1F2A"); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	for _, id := range []string{"01JFB2R1JZKQ9V3K8W8Y9W1F2A", "urn:uuid:a.b/ü *>"} {
		raw := []byte(`{"id":"` + id + `"}`)
		for range 2 { // the same bytes again are not an error
			if err := j.Put(ctx, "agent.x", id, raw); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := j.Get(ctx, "agent.x", id); err != nil || string(got) != string(raw) {
			t.Errorf("got %s, %v", got, err)
		}
		if err := j.Put(ctx, "agent.x", id, []byte("forged")); !errors.Is(err, jetstream.ErrExists) {
			t.Errorf("other bytes under the id: %v", err)
		}
		if err := j.Post("agent.x", id, []byte("forged")); err != nil {
			t.Error(err)
		}
		if _, err := j.Get(ctx, "agent.y", id); !errors.Is(err, jetstream.ErrNotFound) {
			t.Errorf("another entity's: %v", err)
		}
	}
	if err := j.Post("agent.x", "posted-0001", []byte("posted")); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the posted envelope", func() bool {
		got, err := j.Get(ctx, "agent.x", "posted-0001")
		return err == nil && string(got) == "posted"
	})
	for _, bad := range []func() error{
		func() error { return j.Put(ctx, "agent.*", "12345678", nil) },
		func() error { return j.Post("agent.x", "", nil) },
		func() error { _, err := j.Get(ctx, "x", "12345678"); return err },
	} {
		var refused *subject.Error
		if err := bad(); !errors.As(err, &refused) {
			t.Errorf("got %v", err)
		}
	}

	natstest.Restart(t, srv)
	waitFor(t, "the journal after a restart", func() bool {
		got, err := j.Get(brief(t), "agent.x", "01JFB2R1JZKQ9V3K8W8Y9W1F2A")
		return err == nil && string(got) == `{"id":"01JFB2R1JZKQ9V3K8W8Y9W1F2A"}`
	})
}

func TestSeen(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	ids := seen.New(js, subject.Map{}, time.Minute)
	for _, id := range []string{"01JFB2R1JZKQ9V3K8W8Y9W1F2A", "a.b:c", "a=2Eb", "_kv", strings.Repeat("x", 512)} {
		for _, by := range []string{"first", "second", "third", "first"} {
			if holder, err := ids.Claim(ctx, "agent.x", id, by); err != nil || holder != "first" {
				t.Errorf("%q, claimed by %s: %v, %v", id, by, holder, err)
			}
		}
		if holder, err := ids.Claim(ctx, "agent.y", id, "another"); err != nil || holder != "another" {
			t.Errorf("%q of another entity: %v, %v", id, holder, err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("x", 513)} {
		if holder, err := ids.Claim(ctx, "agent.x", bad, "by"); err == nil || holder != "" {
			t.Errorf("an id of %d bytes: %v, %v", len(bad), holder, err)
		}
	}
	if bound, age, err := ids.Bound(ctx); err != nil || bound != 15*time.Minute || age <= 0 || age > natstest.Patience {
		t.Errorf("bound %v, age %v, %v", bound, age, err)
	}
}

// docs/operations.md, "Ids", says how many ids a bucket holds: max_bytes / 260. Beyond that it refuses
// further ones.
func TestSeenHoldsSoManyIds(t *testing.T) {
	t.Parallel()
	js := connect(t, natstest.Run(t, natsd.Config{JetStream: true}))
	const room = 100_000
	apply(t, js, jetstream.Options{Only: []string{jetstream.BucketSeen}, Limits: map[string]jetstream.Limits{jetstream.BucketSeen: {MaxBytes: room}}})
	w := seen.New(js, subject.Map{}, 10*time.Minute)
	n := 0
	for ; n < room; n++ { // an id as the mesh makes it, a hash, and a holder
		if _, err := w.Claim(t.Context(), "agent.reviewer", fmt.Sprintf("%064x", n), "live.LPqVLzYVZw1rO8zSFBuFzE"); err != nil {
			if n == 0 || !errors.Is(err, jetstream.ErrFull) {
				t.Fatal(err)
			}
			break
		}
	}
	if each := room / n; each < 250 || each > 270 {
		t.Errorf("%d ids in %d bytes: %d bytes each", n, room, each)
	}
}

// An id that is there and whose holder a replica does not have yet is not free.
func TestSeenDoesNotTakeAnIdForFreeThatAReplicaDoesNotHave(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	ids := seen.New(js, subject.Map{}, time.Minute)
	lagging(t, js, "KV_aee_seen", "$KV.aee_seen.agent=2Ex.12345678", 9)
	if holder, err := ids.Claim(ctx, "agent.x", "12345678", "first"); err != nil || holder != "first" {
		t.Errorf("%v, %v", holder, err)
	}
	if holder, err := ids.Claim(ctx, "agent.x", "12345678", "second"); holder != "" || !errors.Is(err, jetstream.ErrExists) {
		t.Errorf("while the replica lags behind: %v, %v", holder, err)
	}
	if holder, err := ids.Claim(ctx, "agent.x", "12345678", "second"); err != nil || holder != "first" {
		t.Errorf("later: %v, %v", holder, err)
	}
}

func TestSeenIsFirstForOneOfMany(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	apply(t, connect(t, srv), jetstream.Options{})
	const nodes, ids = 4, 50
	var firsts [ids]atomic.Int32
	var wg sync.WaitGroup
	for node := range nodes {
		window, by := seen.New(connect(t, srv), subject.Map{}, time.Minute), fmt.Sprint("node ", node)
		wg.Go(func() {
			for i := range ids {
				holder, err := window.Claim(testContext(t), "agent.x", fmt.Sprintf("id-%08d", i), by)
				if err != nil {
					t.Error(err)
				}
				if holder == by {
					firsts[i].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i := range firsts {
		if n := firsts[i].Load(); n != 1 {
			t.Errorf("id %d was first seen %d times", i, n)
		}
	}
}

// A replica that lags behind does not have the envelope because of which the leader refuses another
// one with its id.
func TestAnotherEnvelopeIsRefusedThoughAReplicaLagsBehind(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{Only: []string{jetstream.StreamJournal}})
	lagging(t, js, jetstream.StreamJournal, "aee.journal.agent.x.id", 3)
	journal := jetstream.NewJournal(js, subject.Map{})
	if err := journal.Put(ctx, "agent.x", "id", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := journal.Put(ctx, "agent.x", "id", []byte("two")); !errors.Is(err, jetstream.ErrExists) {
		t.Errorf("other bytes: %v", err)
	}
	if err := journal.Put(ctx, "agent.x", "id", []byte("one")); err != nil {
		t.Errorf("the same bytes: %v", err)
	}
}

// A replica that lags behind does not have the claim by which the leader refuses another one.
func TestAnIdThatIsTakenIsTakenThoughAReplicaLagsBehind(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{Only: []string{jetstream.BucketSeen}})
	lagging(t, js, "KV_aee_seen", "$KV.aee_seen.agent=2Ex.id", 6)
	ids := seen.New(js, subject.Map{}, time.Minute)
	for _, by := range []string{"first", "second"} {
		if holder, err := ids.Claim(ctx, "agent.x", "id", by); err != nil || holder != "first" {
			t.Errorf("claimed by the %s: %q, %v", by, holder, err)
		}
	}
}

// An id expires at the end of its window without a deletion, and leaves no marker, which
// would look like an id that was seen.
func TestSeenForgetsAfterItsWindow(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	long := seen.New(js, subject.Map{}, time.Hour)
	short := seen.New(js, subject.Map{}, time.Millisecond) // rounded up to a second
	if holder, err := long.Claim(ctx, "agent.x", "long-0001", "one"); err != nil || holder != "one" {
		t.Fatal(holder, err)
	}
	begin := time.Now()
	if holder, err := short.Claim(ctx, "agent.x", "short-0001", "one"); err != nil || holder != "one" {
		t.Fatal(holder, err)
	}
	waitFor(t, "the id to be forgotten", func() bool {
		holder, err := short.Claim(ctx, "agent.x", "short-0001", "two")
		return err == nil && holder == "two"
	})
	if took := time.Since(begin); took < time.Second {
		t.Errorf("forgotten after %s", took)
	}
	if holder, err := long.Claim(ctx, "agent.x", "long-0001", "two"); err != nil || holder != "one" {
		t.Errorf("the long window ended too: %v, %v", holder, err)
	}
	natstest.Restart(t, srv)
	waitFor(t, "the window after a restart", func() bool {
		holder, err := long.Claim(brief(t), "agent.x", "long-0001", "two")
		if err == nil && holder != "one" {
			t.Fatal("a restart forgot an id")
		}
		return err == nil
	})
}

func TestSeenWithoutItsBucketOrAnAnswer(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	ids := seen.New(js, subject.Map{}, time.Minute)
	if holder, err := ids.Claim(testContext(t), "agent.x", "id-000001", "by"); !errors.Is(err, jetstream.ErrUnavailable) || holder != "" {
		t.Errorf("no bucket: %v, %v", holder, err)
	}
	apply(t, js, jetstream.Options{})
	srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if holder, err := ids.Claim(ctx, "agent.x", "id-000001", "by"); !errors.Is(err, jetstream.ErrUncertain) || holder != "" {
		t.Errorf("no server: %v, %v", holder, err)
	}
}

func TestRecords(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js, jetstream.Options{})
	keys := jetstream.NewKeys(js, subject.Map{})
	const kid = "agent.reviewer/2026"
	if _, err := keys.Get(ctx, kid); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	rev, err := keys.Create(ctx, kid, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Create(ctx, kid, []byte("two")); !errors.Is(err, jetstream.ErrExists) {
		t.Errorf("create again: %v", err)
	}
	rev2, err := keys.Update(ctx, kid, []byte("two"), rev)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Update(ctx, kid, []byte("three"), rev); !errors.Is(err, jetstream.ErrChanged) {
		t.Errorf("update of an old revision: %v", err)
	}
	got, err := keys.Get(ctx, kid)
	if err != nil || got.ID != kid || string(got.Value) != "two" || got.Revision != rev2 || time.Since(got.Time) > time.Hour {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := keys.Put(ctx, "other", []byte("x")); err != nil {
		t.Fatal(err)
	}
	list := func() (ids []string) {
		all, err := keys.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			ids = append(ids, r.ID+"="+string(r.Value))
		}
		return ids
	}
	if got := list(); !slices.Equal(got, []string{kid + "=two", "other=x"}) {
		t.Errorf("list %q", got)
	}
	for range 2 {
		if err := keys.Delete(ctx, kid); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := keys.Get(ctx, kid); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	if got := list(); !slices.Equal(got, []string{"other=x"}) {
		t.Errorf("list %q", got)
	}
	if _, err := keys.Create(ctx, kid, []byte("again")); err != nil {
		t.Errorf("create after delete: %v", err)
	}
	for _, bad := range []string{"", strings.Repeat(".", 200)} {
		if _, err := keys.Put(ctx, bad, nil); err == nil {
			t.Errorf("an id of %d bytes was stored", len(bad))
		}
	}
	if _, err := jetstream.NewKeys(js, prefix(t, "nobody")).List(ctx); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("no bucket: %v", err)
	}
}

// watched collects the reports of Watch.
type watched struct {
	mu   sync.Mutex
	now  map[string]string
	said []string
}

func (w *watched) change(id string, record []byte, deleted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if deleted {
		delete(w.now, id)
		w.said = append(w.said, "-"+id)
		return
	}
	w.now[id] = string(record)
	w.said = append(w.said, id+"="+string(record))
}

func (w *watched) is(want map[string]string) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Sprint(w.now) == fmt.Sprint(want)
	}
}

func startWatch(t *testing.T, keys *jetstream.Records) *watched {
	t.Helper()
	w := &watched{now: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- keys.WatchFrom(ctx, nil, w.change) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func put(t *testing.T, keys *jetstream.Records, id, value string) {
	t.Helper()
	if _, err := keys.Put(testContext(t), id, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func TestWatchSaysEveryChangeInOrder(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js := start(t)
	apply(t, js, jetstream.Options{})
	keys := jetstream.NewKeys(js, subject.Map{})
	put(t, keys, "k.1", "old")
	put(t, keys, "k.1", "a")
	if err := keys.Delete(testContext(t), "gone"); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, keys)
	waitFor(t, "the first record", w.is(map[string]string{"k.1": "a"}))
	put(t, keys, "k.2", "b")
	put(t, keys, "k.1", "c")
	if err := keys.Delete(testContext(t), "k.2"); err != nil {
		t.Fatal(err)
	}
	put(t, keys, "k.3", "d")
	waitFor(t, "the last record", w.is(map[string]string{"k.1": "c", "k.3": "d"}))
	w.mu.Lock()
	defer w.mu.Unlock()
	if want := []string{"k.1=a", "k.2=b", "k.1=c", "-k.2", "k.3=d"}; !slices.Equal(w.said, want) {
		t.Errorf("said %q, want %q", w.said, want)
	}
}

// Records that were listed, and have gone before they are watched, are reported; those that have not
// changed are not.
func TestWatchFromSaysWhatHasChangedSinceTheList(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	keys := jetstream.NewKeys(js, subject.Map{})
	for _, id := range []string{"deleted", "purged", "changed", "stays", "purged.last"} {
		put(t, keys, id, "old")
	}
	list, err := keys.List(testContext(t))
	if err != nil || len(list) != 5 {
		t.Fatal(list, err)
	}
	bucket, err := js.Stream(testContext(t), "KV_aee_keys")
	if err != nil {
		t.Fatal(err)
	}
	put(t, keys, "changed", "new")
	put(t, keys, "later", "new")
	if err := keys.Delete(testContext(t), "deleted"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"purged", "purged.last"} {
		if err := bucket.Purge(testContext(t), natsjs.WithPurgeSubject("$KV.aee_keys."+subject.Escape(id))); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &watched{now: map[string]string{}}
	want := []string{"-deleted", "-purged", "-purged.last", "changed=new", "later=new"}
	err = keys.WatchFrom(ctx, list, func(id string, value []byte, deleted bool) {
		if w.change(id, value, deleted); len(w.said) == len(want) {
			cancel()
		}
	})
	if slices.Sort(w.said); err != nil || !slices.Equal(w.said, want) {
		t.Errorf("said %q, want %q; %v", w.said, want, err)
	}
}

// A list that was read before the bucket lost its last records ends no watch.
func TestWatchFromOfABucketThatIsBehindTheList(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js := start(t)
	apply(t, js, jetstream.Options{})
	keys := jetstream.NewKeys(js, subject.Map{})
	put(t, keys, "stays", "old")
	put(t, keys, "purged", "old")
	list, err := keys.List(testContext(t))
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	bucket, err := js.Stream(testContext(t), "KV_aee_keys")
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Purge(testContext(t), natsjs.WithPurgeSubject("$KV.aee_keys.purged")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said []string
	err = keys.WatchFrom(ctx, list, func(id string, _ []byte, deleted bool) {
		said = append(said, fmt.Sprint(id, " ", deleted))
		cancel()
	})
	if err != nil || !slices.Equal(said, []string{"purged true"}) {
		t.Errorf("said %q, %v", said, err)
	}
}

// A watch that is stopped with many reports left frees everything.
func TestWatchIsLeftInTheMiddle(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	keys := jetstream.NewKeys(js, subject.Map{})
	for i := range 1000 {
		if _, err := js.PublishAsync(fmt.Sprintf("$KV.aee_keys.k%d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := keys.WatchFrom(ctx, nil, func(string, []byte, bool) {
		n++
		cancel()
	})
	if err != nil || n != 1 {
		t.Errorf("after %d records: %v", n, err)
	}
	if all, err := keys.List(testContext(t)); err != nil || len(all) != 1000 {
		t.Errorf("%d records, %v", len(all), err)
	}
}

func TestWatchSurvivesAServerRestart(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	keys := jetstream.NewKeys(js, subject.Map{})
	put(t, keys, "stays", "1")
	put(t, keys, "goes", "1")
	w := startWatch(t, keys)
	waitFor(t, "the records", w.is(map[string]string{"stays": "1", "goes": "1"}))

	for round := range 3 {
		// Changes while the watcher is disconnected are reported after the reconnect.
		srv.Close()
		cfg := srv.Config()
		port := cfg.Port
		cfg.Port = natsd.RandomPort // a port that the watcher does not know
		away := natstest.Run(t, cfg)
		others := jetstream.NewKeys(connect(t, away), subject.Map{})
		if err := others.Delete(testContext(t), "goes"); err != nil {
			t.Fatal(err)
		}
		put(t, others, "stays", fmt.Sprint("away", round))
		away.Close()
		cfg.Port = port
		srv = natstest.Run(t, cfg)
		waitFor(t, "what changed meanwhile", w.is(map[string]string{"stays": fmt.Sprint("away", round)}))
		put(t, keys, "goes", "back")
		waitFor(t, "a change after the restart", w.is(map[string]string{"stays": fmt.Sprint("away", round), "goes": "back"}))
	}
}

// With memory storage a restart loses the bucket: the watcher waits until it is created
// again, and reports the entries of the new one, whose revisions start again.
func TestWatchSurvivesTheLossOfItsBucket(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	memory := jetstream.Options{Storage: natsjs.MemoryStorage}
	apply(t, js, memory)
	keys := jetstream.NewKeys(js, subject.Map{})
	for i := range 5 {
		put(t, keys, "old", fmt.Sprint(i))
	}
	w := startWatch(t, keys)
	waitFor(t, "the record", w.is(map[string]string{"old": "4"}))
	srv = natstest.Restart(t, srv)
	waitFor(t, "the topology to be made again", func() bool {
		_, err := jetstream.Apply(brief(t), js, memory)
		return err == nil
	})
	put(t, jetstream.NewKeys(connect(t, srv), subject.Map{}), "new", "1")
	waitFor(t, "the new record", w.is(map[string]string{"new": "1"}))
}

// The sequences of a bucket that was made again start again, so a record of it may have the sequence
// of another one that the watcher knows: that of the last record, or of an earlier one.
func TestWatchReportsOtherRecordsOfTheSameSequence(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	keys := jetstream.NewKeys(js, subject.Map{})
	put(t, keys, "k", "valid")
	w := startWatch(t, keys)
	waitFor(t, "the record", w.is(map[string]string{"k": "valid"}))
	again := func(later ...string) {
		t.Helper()
		if err := js.DeleteStream(testContext(t), "KV_aee_keys"); err != nil {
			t.Fatal(err)
		}
		apply(t, js, jetstream.Options{})
		put(t, keys, "k", "revoked "+fmt.Sprint(len(later)))
		for _, id := range later {
			put(t, keys, id, "later")
		}
	}
	again()
	waitFor(t, "the last record", w.is(map[string]string{"k": "revoked 0"}))
	again("l")
	natstest.Restart(t, srv) // else the whole bucket is read only once a minute
	waitFor(t, "an earlier record", w.is(map[string]string{"k": "revoked 1", "l": "later"}))
}

// The time that a read may take bounds the requests. It does not end while what was read is reported:
// no record is left out, however long the watcher takes for each.
func TestWatchReportsAllThatItHasRead(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js := start(t)
	apply(t, js, jetstream.Options{})
	keys := jetstream.NewKeys(js, subject.Map{})
	for _, id := range []string{"a", "b", "c"} {
		put(t, keys, id, "v")
	}
	heard := make(chan string, 64)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- jetstream.WatchCut(ctx, keys, func(id string) { heard <- id }, func() { heard <- "ready" })
	}()
	wait := func(want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case got := <-heard:
				if got != w {
					t.Fatalf("heard %q, want %q", got, w)
				}
			case <-time.After(patience):
				t.Fatalf("not heard: %q", w)
			}
		}
	}
	wait("a", "b", "c", "ready")
	for i := range 3 { // the watcher sees several of them at once
		if _, err := js.PublishAsync("$KV.aee_keys."+fmt.Sprint(i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	wait("0", "1", "2")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A watch that is ended while it reports what it has read is not ready.
func TestWatchThatIsEndedWhileItReportsIsNotReady(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js, jetstream.Options{})
	agents := jetstream.NewAgents(js, subject.Map{})
	for _, id := range []string{"a", "b"} {
		if _, err := js.Publish(testContext(t), "$KV.aee_agents."+id, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	heard := 0
	err := agents.Watch(ctx, func(registry.Entry) { heard++; cancel() }, func() { t.Error("it is ready") })
	if err != nil || heard != 1 {
		t.Errorf("heard %d records, %v", heard, err)
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	js := start(t)
	keys := jetstream.NewKeys(js, subject.Map{})
	nothing := func(string, []byte, bool) {}
	if err := keys.WatchFrom(testContext(t), nil, nothing); !errors.Is(err, jetstream.ErrNotFound) {
		t.Errorf("no bucket: %v", err)
	}
	apply(t, js, jetstream.Options{})
	put(t, keys, "k", "v")
	heard := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- keys.WatchFrom(t.Context(), nil, func(string, []byte, bool) {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	}()
	<-heard
	js.Conn().Close()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "watch aee_keys: nats: connection closed") {
			t.Errorf("connection closed: %v", err)
		}
	case <-time.After(patience):
		t.Error("Watch did not end with its connection")
	}
}
