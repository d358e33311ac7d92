package slot_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/slot"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const shortLease = 2 * time.Second

func acquire(t testing.TB, s *slot.Store, limit int, holder string) *slot.Slot {
	t.Helper()
	slot, err := s.Acquire(testContext(t), "agent.x", limit, holder, nil)
	if err != nil {
		t.Fatal(err)
	}
	return slot
}

func release(t testing.TB, slot *slot.Slot) {
	t.Helper()
	if err := slot.Release(testContext(t)); err != nil {
		t.Error(err)
	}
}

// Eight workers, each with its own connection, never hold more slots than the
// limit at once, and all of them get their turns.
func TestSlotsAreNeverMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	apply(t, connect(t, srv))
	const workers, limit, turns = 8, 3, 25
	var holding atomic.Int64
	var running sync.WaitGroup
	for w := range workers {
		s := slot.NewStore(connect(t, srv), subject.Map{}, 0)
		running.Go(func() {
			for turn := range turns {
				slot, err := s.Acquire(ctx, "agent.x", limit, fmt.Sprint("worker ", w), nil)
				if err != nil {
					t.Errorf("worker %d, turn %d: %v", w, turn, err)
					return
				}
				if n := holding.Add(1); n > limit {
					t.Errorf("%d hold a slot", n)
				}
				if err := slot.Renew(ctx); err != nil {
					t.Error(err)
				}
				holding.Add(-1)
				if err := slot.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	s := slot.NewStore(connect(t, srv), subject.Map{}, 0)
	for n := range limit { // no turn has kept a slot
		if slot, err := s.Try(ctx, "agent.x", limit, "worker"); slot == nil || err != nil {
			t.Errorf("%d of %d slots held, and there is no other: %v", n, limit, err)
		}
	}
}

// A crashed holder does not renew. Its slot is free again when its lease has ended, and
// not before; a holder that renews keeps its slot.
func TestSlotOfACrashedHolder(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	apply(t, connect(t, srv))
	slots := func() *slot.Store { return slot.NewStore(connect(t, srv), subject.Map{}, shortLease) }
	crashes, lives, waits := slots(), slots(), slots()
	if waits.Lease() != shortLease {
		t.Errorf("lease %s", waits.Lease())
	}
	begun := time.Now()
	dead := acquire(t, crashes, 2, "crashes")
	held := acquire(t, lives, 2, "lives")
	list, err := waits.List(ctx, "agent.x")
	if err != nil || len(list) != 2 || list[dead.N].Holder != "crashes" || list[held.N].Holder != "lives" || list[0].Limit != 2 {
		t.Errorf("held: %+v, %v", list, err)
	}
	if slot, err := waits.Try(ctx, "agent.x", 2, "waits"); slot != nil || err != nil {
		t.Errorf("took %+v of none, %v", slot, err)
	}
	renewing, stop := context.WithCancel(ctx)
	var renewer sync.WaitGroup
	renewer.Go(func() {
		tick := time.NewTicker(shortLease / 8)
		defer tick.Stop()
		for {
			select {
			case <-renewing.Done():
				return
			case <-tick.C:
				if err := held.Renew(ctx); err != nil {
					t.Error(err)
				}
			}
		}
	})
	got := acquire(t, waits, 2, "waits")
	if took := time.Since(begun); got.N != dead.N || took < shortLease-100*time.Millisecond {
		t.Errorf("got slot %d after %s", got.N, took)
	}
	stop()
	renewer.Wait()
	// The crashed holder resumes.
	if err := dead.Renew(ctx); !errors.Is(err, api.ErrChanged) {
		t.Errorf("a lost slot was renewed: %v", err)
	}
	release(t, dead)
	if err := got.Renew(ctx); err != nil {
		t.Errorf("a zombie's release took the slot of another one: %v", err)
	}
	release(t, got)
	release(t, got)
	release(t, held)
	if list, err := waits.List(ctx, "agent.x"); err != nil || len(list) != 0 {
		t.Errorf("held: %+v, %v", list, err)
	}
}

// A lost answer to a renewal does not lose the slot.
func TestSlotRenewedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js)
	s := slot.NewStore(js, subject.Map{}, 0)
	mine := acquire(t, s, 1, "me")
	kv, err := js.KeyValue(ctx, slot.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(ctx, "agent=2Ex.0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(ctx, e.Key(), e.Value()); err != nil { // as the renewal did whose answer was lost
		t.Fatal(err)
	}
	if err := mine.Renew(ctx); err != nil {
		t.Error(err)
	}
	if _, err := kv.Put(ctx, e.Key(), []byte("somebody else's")); err != nil {
		t.Fatal(err)
	}
	if err := mine.Renew(ctx); !errors.Is(err, api.ErrChanged) {
		t.Errorf("got %v", err)
	}
	// A value of another program counts as held.
	if slot, err := s.Try(ctx, "agent.x", 1, "me"); slot != nil || err != nil {
		t.Errorf("took %+v, %v", slot, err)
	}
}

// Nor does it if a replica that lags behind is read then.
func TestSlotRenewedWithoutAnAnswerWhereAReplicaLagsBehind(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js)
	mine := acquire(t, slot.NewStore(js, subject.Map{}, 0), 1, "me")
	kv, err := js.KeyValue(ctx, slot.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(ctx, "agent=2Ex.0")
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := kv.Put(ctx, e.Key(), e.Value())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "KV_"+slot.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = false // the replica answers
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	subj, answers := "$KV."+slot.Bucket+"."+e.Key(), []uint64{e.Revision(), e.Revision(), renewed}
	sub, err := js.Conn().Subscribe("$JS.API.DIRECT.GET.KV_"+slot.Bucket+"."+subj, func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Data: e.Value(), Header: nats.Header{
			natsjs.StreamHeader: {"KV_" + slot.Bucket}, natsjs.SubjectHeader: {subj}, natsjs.SequenceHeader: {strconv.FormatUint(answers[0], 10)}, natsjs.TimeStampHeaer: {e.Created().Format(time.RFC3339Nano)},
		}})
		answers = answers[min(1, len(answers)-1):]
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := mine.Renew(ctx); err != nil {
		t.Error(err)
	}
}

// Workers are configured with different limits: the smallest of the current holders
// counts for all.
func TestSlotsOfDifferentLimits(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), start(t)
	apply(t, js)
	s := slot.NewStore(js, subject.Map{}, 0)
	try := func(limit int) *slot.Slot {
		t.Helper()
		slot, err := s.Try(ctx, "agent.x", limit, "w")
		if err != nil {
			t.Fatal(err)
		}
		return slot
	}
	large := []*slot.Slot{try(4), try(4)}
	if slot := try(2); slot != nil {
		t.Error("two are held, and the limit is two")
	}
	release(t, large[0])
	small := try(2)
	if small == nil {
		// Any slot below two would do.
		t.Fatal("one is held, and the limit is two")
	}
	if slot := try(4); slot != nil {
		t.Error("one who holds a slot knows a limit of two")
	}
	release(t, small)
	if one, two, three, four := try(4), try(4), try(4), try(4); one == nil || two == nil || three == nil || four != nil {
		t.Error("the larger limit does not hold again")
	}
	for _, limit := range []int{0, -1, slot.MaxLimit + 1} {
		if _, err := s.Try(ctx, "agent.x", limit, "w"); err == nil {
			t.Errorf("a limit of %d", limit)
		}
	}
	if _, err := s.Acquire(ctx, "agent.*", 1, "w", nil); err == nil {
		t.Error("a pattern is no entity")
	}
}

func TestSlotsWithoutTheirBucket(t *testing.T) {
	t.Parallel()
	js := start(t)
	s := slot.NewStore(js, subject.Map{}, 0)
	if _, err := s.Acquire(testContext(t), "agent.x", 1, "w", nil); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	apply(t, js)
	acquire(t, s, 1, "w")
	if _, err := s.Acquire(brief(t), "agent.x", 1, "w", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("none is free: %v", err)
	}
	if slot, err := s.Acquire(testContext(t), "agent.y", 1, "w", nil); err != nil || slot == nil {
		t.Errorf("of another entity: %v", err)
	}
}

// A waiting worker keeps waiting while the server is down.
func TestSlotsAcrossARestart(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js)
	s := slot.NewStore(js, subject.Map{}, shortLease)
	held := acquire(t, s, 1, "first")
	ctx, second := testContext(t), slot.NewStore(connect(t, srv), subject.Map{}, shortLease)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if slot, err := second.Acquire(ctx, "agent.x", 1, "second", nil); err != nil || slot == nil {
			t.Errorf("%+v, %v", slot, err)
		}
	})
	natstest.Restart(t, srv)
	for held.Release(brief(t)) != nil {
		if ctx.Err() != nil {
			t.Fatal("the slot is not given back")
		}
	}
	waiting.Wait()
}

// Slots of a holder that died are freed: as many as its tasks go on elsewhere, and all that it
// has not renewed for long. Those of others stay. A holder that lives all the same finds out.
func TestSlotsOfADeadHolderAreFreed(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	apply(t, connect(t, srv))
	s := slot.NewStore(connect(t, srv), subject.Map{}, time.Hour)
	dead := []*slot.Slot{acquire(t, s, 3, "dead"), acquire(t, s, 3, "dead")}
	other := acquire(t, s, 3, "other")
	if slot, err := s.Try(ctx, "agent.x", 3, "new"); slot != nil || err != nil {
		t.Fatalf("a fourth slot: %v, %v", slot, err)
	}
	long := time.Now().Add(-time.Hour)
	if n, err := s.Free(ctx, "agent.x", "dead", 0, long); n != 0 || err != nil {
		t.Fatalf("%d slots that were renewed lately, %v", n, err)
	}
	if n, err := s.Free(ctx, "agent.x", "dead", 1, long); n != 1 || err != nil {
		t.Fatalf("%d slots for one run, %v", n, err)
	}
	if n, err := s.Free(ctx, "agent.x", "dead", 0, time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Fatalf("%d slots that were not renewed, %v", n, err)
	}
	acquire(t, s, 3, "new")
	acquire(t, s, 3, "new")
	if slot, err := s.Try(ctx, "agent.x", 3, "new"); slot != nil || err != nil {
		t.Errorf("a slot of the other holder was freed: %v, %v", slot, err)
	}
	if err := other.Renew(ctx); err != nil {
		t.Errorf("another holder: %v", err)
	}
	for _, slot := range dead {
		if err := slot.Renew(ctx); !errors.Is(err, api.ErrChanged) {
			t.Errorf("the holder that died: %v", err)
		}
	}
}

// lossy is a JetStream whose answers to publishes get lost: the message is stored.
type lossy struct {
	natsjs.JetStream
	lose func(ctx context.Context) error // called after each publish; the error stands in place of the answer
}

func (l *lossy) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...natsjs.PublishOpt) (*natsjs.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(context.WithoutCancel(ctx), msg, opts...)
	if lost := l.lose(ctx); lost != nil && err == nil {
		return nil, lost
	}
	return ack, err
}

// A worker that needs no further slot cancels its search while a slot is being acquired. Then it has
// the slot, and can release it: otherwise the other workers would wait until its lease ends.
func TestASlotIsNotLostByACancelledSearch(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js)
	searching, cancel := context.WithCancel(testContext(t))
	s := slot.NewStore(&lossy{js, func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	}}, subject.Map{}, 0)
	got, err := s.Acquire(searching, "agent.x", 1, "worker", nil)
	if err != nil {
		t.Fatal(err)
	}
	release(t, got)
	release(t, acquire(t, slot.NewStore(js, subject.Map{}, 0), 1, "other"))
}

// The answer to an acquisition is lost. The worker that made it finds its own slot when it looks
// again; another worker does not.
func TestASlotWhoseAnswerWasLostIsFound(t *testing.T) {
	t.Parallel()
	js := start(t)
	apply(t, js)
	lost := true
	s := slot.NewStore(&lossy{js, func(context.Context) error {
		defer func() { lost = false }()
		if lost {
			return context.DeadlineExceeded
		}
		return nil
	}}, subject.Map{}, 0)
	if got, err := s.Try(testContext(t), "agent.x", 1, "worker"); got != nil || !errors.Is(err, api.ErrUncertain) {
		t.Fatalf("%v, %v", got, err)
	}
	for _, holder := range []string{"other", "worker"} {
		if got, err := slot.NewStore(js, subject.Map{}, 0).Try(testContext(t), "agent.x", 1, holder); got != nil || err != nil {
			t.Fatalf("another process got it as %s: %v, %v", holder, got, err)
		}
	}
	got, err := s.Try(testContext(t), "agent.x", 1, "worker")
	if got == nil || err != nil {
		t.Fatalf("%v, %v", got, err)
	}
	if again, err := s.Try(testContext(t), "agent.x", 1, "worker"); again != nil || err != nil {
		t.Fatalf("a second time: %v, %v", again, err)
	}
	release(t, got)
	release(t, acquire(t, slot.NewStore(js, subject.Map{}, 0), 1, "other"))
}
