package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// Bucket is the bucket of a mesh's slots, without the suffix of the mesh.
const Bucket = "aee_slots"

// A Store has the slots of one mesh. It may be used by many goroutines at once.
type Store struct {
	js     natsjs.JetStream
	bucket string
	lease  time.Duration

	mu     sync.Mutex
	unsure map[string]unsure // by nonce
}

// DefaultLease is how long a slot lasts without a renewal. A holder that cannot renew
// it must stop its task before the lease ends, to keep the limit. So the lease decides
// how long a server outage tasks survive, and for how long the slots of a crashed worker
// are unavailable. A server restart takes some seconds, and clients need some more to
// reconnect.
const DefaultLease = 15 * time.Second

// NewStore returns the slots of m's mesh. lease is how long a slot lasts without a
// renewal: whole seconds, at least two; 0 is [DefaultLease]. The server may take a
// second longer to expire it. NewStore does no I/O.
func NewStore(js natsjs.JetStream, m subject.Map, lease time.Duration) *Store {
	if lease <= 0 {
		lease = DefaultLease
	}
	return &Store{js: js, bucket: Bucket + m.Suffix(), lease: max(lease.Round(time.Second), 2*time.Second)}
}

// MaxLimit is the largest limit that a Store accepts.
const MaxLimit = 1000

// Lease is how long a slot lasts without a renewal.
func (s *Store) Lease() time.Duration { return s.lease }

// RenewEvery is how often a holder renews its slots.
func (s *Store) RenewEvery() time.Duration { return s.lease / 4 }

// Late is the age at which a slot's renewal is overdue.
func (s *Store) Late() time.Duration { return s.RenewEvery() + time.Second }

// A Slot is the right to run one task. Its holder has to renew it, well within its lease,
// as long as the task runs. Its methods may be called concurrently.
type Slot struct {
	Entity string
	N      int // 0 … limit-1

	slots *Store
	value []byte

	mu       sync.Mutex
	revision uint64
}

// slotRecord is the value of a slot's key.
type slotRecord struct {
	Holder string `json:"holder"`
	Limit  int    `json:"limit"`
	Nonce  string `json:"nonce"` // unique to this acquisition, so that a holder recognises its own record
}

// Acquire waits for one of limit slots of an entity, until ctx ends. [Store.List] shows
// holder. Acquire subscribes to changes of the slots instead of only polling them; it
// serves waiting callers in no particular order. It calls heard, if not nil, each time that the server
// has answered. An error that may pass is retried.
func (s *Store) Acquire(ctx context.Context, entity string, limit int, holder string, heard func()) (*Slot, error) {
	if err := s.check(entity, limit); err != nil {
		return nil, err
	}
	if heard == nil {
		heard = func() {}
	}
	slot, err := s.Try(ctx, entity, limit, holder)
	for {
		switch {
		case slot != nil:
			return slot, nil
		case err == nil:
			heard()
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for a slot of %s: %w", entity, ctx.Err())
		case !api.Temporary(err):
			return nil, err
		case !pause.For(ctx, s.lease/8):
			return nil, fmt.Errorf("wait for a slot of %s: %w", entity, ctx.Err())
		}
		slot, err = s.wait(ctx, entity, limit, holder, heard)
	}
}

// Try acquires one of limit slots of an entity if one is free; otherwise it returns nil.
func (s *Store) Try(ctx context.Context, entity string, limit int, holder string) (*Slot, error) {
	if err := s.check(entity, limit); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.lease)
	defer cancel()
	for range slotTries {
		slot, lost, err := s.try(ctx, entity, limit, holder)
		if slot != nil || err != nil || !lost {
			return slot, err
		}
	}
	return nil, nil
}

// try tries once to acquire a slot. lost reports that another worker was faster.
func (s *Store) try(ctx context.Context, entity string, limit int, holder string) (slot *Slot, lost bool, err error) {
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	slots, err := s.read(ctx, entity)
	if err != nil {
		return nil, false, err
	}
	return s.take(ctx, entity, slots, limit, holder)
}

// slotTries is how often Try tries again after another worker was faster.
const slotTries = 4

func (s *Store) check(entity string, limit int) error {
	if err := subject.ValidateEntity(entity); err != nil {
		return fmt.Errorf("acquire a slot: %w", err)
	}
	if limit < 1 || limit > MaxLimit {
		return fmt.Errorf("acquire a slot of %s: the limit is %d, must be 1 to %d", entity, limit, MaxLimit)
	}
	return nil
}

// slotState is a slot's key as last read.
type slotState struct {
	revision uint64 // 0: the key does not exist
	held     bool
	record   slotRecord
	since    time.Time
}

// take acquires a free slot. lost reports that another worker was faster.
//
// If ctx ends during the write, take still waits for its answer, for a while: a slot whose holder
// does not know of it is not free for others until its lease ends.
func (s *Store) take(ctx context.Context, entity string, slots map[int]slotState, limit int, holder string) (slot *Slot, lost bool, err error) {
	if slot := s.found(ctx, entity, slots); slot != nil {
		return slot, false, nil
	}
	held, least := 0, limit
	for _, state := range slots {
		if state.held {
			held++
			if l := state.record.Limit; l > 0 {
				least = min(least, l)
			}
		}
	}
	if held >= least {
		return nil, false, nil
	}
	var free []int
	for n := range least {
		if !slots[n].held {
			free = append(free, n)
		}
	}
	if len(free) == 0 {
		return nil, false, nil
	}
	n := free[rand.IntN(len(free))]
	nonce := nuid.Next()
	value, err := json.Marshal(slotRecord{Holder: holder, Limit: limit, Nonce: nonce})
	if err != nil {
		return nil, false, err
	}
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	writing, cancel := outlast(ctx, answerWait)
	defer cancel()
	revision, err := s.write(writing, s.key(entity, n), value, slots[n].revision, s.lease, "")
	if api.IsWrongSequence(err) {
		return nil, true, nil
	}
	if err != nil {
		s.remember(nonce, value)
		return nil, false, api.Uncertain(api.Explain(s.js.Conn(), err, "acquire a slot of %s", entity))
	}
	return &Slot{Entity: entity, N: n, slots: s, value: value, revision: revision}, false, nil
}

// wait subscribes to changes of the slots until it acquires one. If it returns neither a
// slot nor an error, the caller has to call it again.
func (s *Store) wait(ctx context.Context, entity string, limit int, holder string, heard func()) (*Slot, error) {
	changed := make(chan *nats.Msg, 64)
	sub, err := s.js.Conn().ChanSubscribe(s.subject(entity, "*"), changed)
	if err != nil {
		return nil, api.Explain(s.js.Conn(), err, "listen for the slots of %s", entity)
	}
	defer func() { _ = sub.Unsubscribe() }()
	// An expired slot is not published, and a server in another domain publishes none.
	tick := time.NewTicker(slotTick)
	defer tick.Stop()
	for {
		// If another worker was faster, its write arrives here as a change.
		slot, _, err := s.try(ctx, entity, limit, holder)
		if slot != nil || err != nil {
			return slot, err
		}
		heard()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		case <-changed:
			for len(changed) > 0 {
				<-changed
			}
			// The message came straight from its publisher, and may not be stored yet.
			if !pause.For(ctx, time.Millisecond) {
				return nil, ctx.Err()
			}
		}
	}
}

// slotTick is how often the slots are read while no change arrives.
const slotTick = time.Second

// read returns the current slots of an entity. It reads them one by one by their
// subjects: permissions can restrict that, but not a read of several subjects at once.
func (s *Store) read(ctx context.Context, entity string) (map[int]slotState, error) {
	stream := "KV_" + s.bucket
	fail := func(err error) (map[int]slotState, error) {
		return nil, api.Explain(s.js.Conn(), err, "read the slots of %s", entity)
	}
	names, err := api.Subjects(ctx, s.js, stream, s.subject(entity, "*"))
	if err != nil {
		return fail(err)
	}
	var mu sync.Mutex
	var done sync.WaitGroup
	var failed error
	slots := map[int]slotState{}
	for subj := range names {
		n, ok := slotNumber(subj)
		if !ok {
			continue
		}
		done.Go(func() {
			msg, err := api.Newest(ctx, s.js, stream, subj)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, natsjs.ErrMsgNotFound):
			case err != nil:
				failed = err
			default:
				gone := !msg.Genuine() || msg.Header.Get("KV-Operation") != "" || msg.Header.Get("Nats-Marker-Reason") != ""
				slots[n] = readSlot(msg.Data, msg.Seq, !gone, msg.Time)
			}
		})
	}
	done.Wait()
	if failed != nil {
		return fail(failed)
	}
	return slots, nil
}

func readSlot(value []byte, revision uint64, held bool, since time.Time) slotState {
	state := slotState{revision: revision, held: held, since: since}
	if held {
		_ = json.Unmarshal(value, &state.record) // a value that is not ours counts as held
	}
	return state
}

func slotNumber(key string) (int, bool) {
	n, err := strconv.Atoi(key[strings.LastIndexByte(key, '.')+1:])
	return n, err == nil && n >= 0
}

func (s *Store) key(entity string, n int) string {
	return subject.Escape(entity) + "." + strconv.Itoa(n)
}

// subject is the subject of the slot with a number, or with "*" of all slots of an
// entity.
func (s *Store) subject(entity, n string) string {
	return "$KV." + s.bucket + "." + subject.Escape(entity) + "." + n
}

// write stores a key with a time to live, if it is at a revision. nats.go's kv.Update
// would drop the time to live.
func (s *Store) write(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration, operation string) (uint64, error) {
	ctx, cancel := api.OneRequest(ctx)
	defer cancel()
	msg := &nats.Msg{Subject: api.KeyPrefix(s.js) + "$KV." + s.bucket + "." + key, Data: value, Header: nats.Header{
		natsjs.ExpectedLastSubjSeqHeader: {strconv.FormatUint(revision, 10)},
		natsjs.ExpectedStreamHeader:      {"KV_" + s.bucket},
		natsjs.MsgTTLHeader:              {ttl.String()},
	}}
	if operation != "" {
		msg.Header.Set("KV-Operation", operation)
	}
	ack, err := api.Publish(ctx, s.js, msg)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// Free releases slots of a holder that has died, and returns their number: as many as runs, whose
// tasks go on elsewhere, and all that were not renewed since a time. A holder that is alive after
// all finds out when it renews them, and must stop its tasks.
func (s *Store) Free(ctx context.Context, entity, holder string, runs int, since time.Time) (n int, err error) {
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	slots, err := s.read(ctx, entity)
	if err != nil {
		return 0, err
	}
	var failed []error
	for number, state := range slots {
		if !state.held || state.record.Holder != holder || n >= runs && !state.since.Before(since) {
			continue
		}
		switch _, err := s.write(ctx, s.key(entity, number), nil, state.revision, time.Minute, "DEL"); {
		case err == nil:
			n++
		case !api.IsWrongSequence(err):
			failed = append(failed, api.Explain(s.js.Conn(), err, "free a slot of %s", entity))
		}
	}
	return n, errors.Join(failed...)
}

// Renew renews the slot's lease. jetstream.ErrChanged means that the slot is lost: its lease had
// ended. After another error Renew may be called again.
func (slot *Slot) Renew(ctx context.Context) error {
	return slot.update(ctx, "renew", slot.value, slot.slots.lease, "")
}

// Release frees the slot. It is no error if the slot was lost.
func (slot *Slot) Release(ctx context.Context) error {
	// The marker expires after a minute: all that wait have seen it by then.
	err := slot.update(ctx, "release", nil, time.Minute, "DEL")
	if errors.Is(err, api.ErrChanged) {
		return nil
	}
	return err
}

func (slot *Slot) update(ctx context.Context, what string, value []byte, ttl time.Duration, operation string) error {
	slot.mu.Lock()
	defer slot.mu.Unlock()
	s, key := slot.slots, slot.slots.key(slot.Entity, slot.N)
	for try := 0; ; try++ {
		revision, err := s.write(ctx, key, value, slot.revision, ttl, operation)
		if err == nil {
			slot.revision = revision
			return nil
		}
		if !api.IsWrongSequence(err) {
			return api.Uncertain(api.Explain(s.js.Conn(), err, "%s slot %d of %s", what, slot.N, slot.Entity))
		}
		// An earlier renewal whose answer was lost may have changed the revision, or may still
		// change it.
		last, known := api.LastIn(err)
		if !known {
			if !pause.For(ctx, 5*time.Millisecond) {
				return api.Uncertain(api.Explain(s.js.Conn(), ctx.Err(), "%s slot %d of %s", what, slot.N, slot.Entity))
			}
			try--
			continue
		}
		have, err := s.newest(ctx, slot, last)
		if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
			return api.Explain(s.js.Conn(), err, "%s slot %d of %s", what, slot.N, slot.Entity)
		}
		stray := err == nil && !have.Genuine()
		if err != nil || try > 0 || !stray && string(have.Data) != string(slot.value) {
			return fmt.Errorf("%s slot %d of %s: %w", what, slot.N, slot.Entity, api.ErrChanged)
		}
		slot.revision = have.Seq
	}
}

// newest returns the last message of a slot's key, or [natsjs.ErrMsgNotFound], from a replica that
// has the message with the sequence least. That message may have expired, so newest does not wait
// for ever.
func (s *Store) newest(ctx context.Context, slot *Slot, least uint64) (api.Message, error) {
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		m, err := api.Newest(ctx, s.js, "KV_"+s.bucket, s.subject(slot.Entity, strconv.Itoa(slot.N)))
		if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) || m.Seq >= least || wait > time.Second || !pause.For(ctx, wait) {
			return m, err
		}
	}
}

// A Held is a slot that a worker holds.
type Held struct {
	N      int
	Holder string
	Limit  int       // the limit that the holder was configured with
	Since  time.Time // when it was last renewed
}

// List returns the slots of an entity that are held.
func (s *Store) List(ctx context.Context, entity string) ([]Held, error) {
	if err := subject.ValidateEntity(entity); err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	slots, err := s.read(ctx, entity)
	if err != nil {
		return nil, err
	}
	var held []Held
	for n, state := range slots {
		if state.held {
			held = append(held, Held{N: n, Holder: state.record.Holder, Limit: state.record.Limit, Since: state.since})
		}
	}
	sorted.By(held, func(a, b Held) int { return a.N - b.N })
	return held, nil
}
