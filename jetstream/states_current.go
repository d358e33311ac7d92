package jetstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// current returns the record of a key as the stream's leader has it, or
// [natsjs.ErrMsgNotFound]. It reads by the key's subjects, so that permissions can
// restrict a worker: permission for $JS.API.STREAM.MSG.GET, which the leader answers,
// cannot be limited to some subjects.
//
// If the bucket has several replicas, any of them may answer the read. Then current first asks the
// leader for the sequence of the key's last message, and reads until a replica has it. For a user
// without permission to ask, the answer of any replica counts. In an account that is full the leader
// answers only users who may read the whole bucket.
func (s *States) current(ctx context.Context, key string) (stateMessage, error) {
	ctx, cancel := api.Bounded(ctx)
	defer cancel()
	bucket, err := s.facts(ctx)
	if err != nil {
		return stateMessage{}, err
	}
	if bucket.single || s.denied.Has(entityOf(key)) {
		return s.read(ctx, key)
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		least, err := s.lastOfLeader(ctx, key) // again each time: the run may have been deleted
		if errors.Is(err, ErrDenied) {
			return s.read(ctx, key)
		}
		if err != nil {
			return stateMessage{}, err
		}
		m, err := s.read(ctx, key)
		if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) || m.last >= least {
			return m, err
		}
		if !pause.For(ctx, wait) {
			return stateMessage{}, ctx.Err()
		}
	}
}

// leaderGets stands for requests for messages to the leader in [States.denied]. It is no entity.
const leaderGets = "$JS.API.STREAM.MSG.GET"

// lastOfLeader asks the leader for the sequence of a key's last message. It fails with [ErrDenied]
// if the leader does not tell this user.
func (s *States) lastOfLeader(ctx context.Context, key string) (uint64, error) {
	ask := func(msg *nats.Msg) (*nats.Msg, error) { return api.Exchange(ctx, s.js.Conn(), msg) }
	last, err := api.LastSequence(ctx, s.stream, s.pub+key, s.pattern(key), ask)
	denied := entityOf(key)
	if api.UsedUp(err) {
		if denied = leaderGets; s.denied.Has(leaderGets) {
			return 0, ErrDenied
		}
		last, err = api.LeaderLast(ctx, s.js, s.stream, s.pattern(key))
	}
	if errors.Is(err, ErrDenied) {
		s.denied.Add(denied)
	}
	return last, err
}

// entityOf returns a key without its last token, which is the run.
func entityOf(key string) string { return key[:max(0, strings.LastIndexByte(key, '.'))] }

// bucketFacts is what is known of the bucket.
type bucketFacts struct {
	read    time.Time
	single  bool // it is known to have a single replica
	replies bool // it captures the subjects of replies, as far as is known
	age     time.Duration
}

// factsFor is how long the facts are cached.
const factsFor = time.Minute

// facts fails if the bucket does not exist.
func (s *States) facts(ctx context.Context) (bucketFacts, error) {
	if known := s.bucket.Load(); known != nil && time.Since(known.read) < factsFor {
		return *known, nil
	}
	var info natsjs.StreamInfo
	err := api.Request(ctx, s.js, "STREAM.INFO."+s.stream, nil, &info)
	switch {
	case ctx.Err() != nil:
		return bucketFacts{}, ctx.Err()
	case errors.Is(err, natsjs.ErrStreamNotFound):
		return bucketFacts{}, err
	}
	read := bucketFacts{time.Now(), err == nil && info.Config.Replicas == 1, err != nil || slices.Contains(info.Config.Subjects, s.replySub+">"), info.Config.MaxAge}
	s.bucket.Store(&read)
	return read, nil
}

// MaxAge returns how long the bucket keeps a record that no other replaces; 0: for ever, or it is not
// known. It asks the server once a minute.
func (s *States) MaxAge(ctx context.Context) time.Duration {
	bucket, _ := s.facts(ctx)
	return bucket.age
}

// Absent reports whether no record of a run is stored. It is for a worker that receives a
// new task, and cheap: one request. It returns false if no answer comes in time, and if
// the bucket has several replicas.
func (s *States) Absent(ctx context.Context, id state.ID) bool {
	if checkID(ctx, id) != nil {
		return false
	}
	looking, cancel := context.WithTimeout(ctx, absentTimeout)
	bucket, _ := s.facts(looking)
	cancel()
	if !bucket.single {
		return false
	}
	until := time.Now().Add(absentTimeout) // bounds all requests: the leader may keep answering that a write is under way
	ask := func(msg *nats.Msg) (*nats.Msg, error) {
		left := time.Until(until)
		if left <= 0 {
			return nil, context.DeadlineExceeded
		}
		return api.ExchangeWithin(ctx, s.js, msg, left)
	}
	last, err := api.LastSequence(ctx, s.stream, s.pub+stateKey(id), s.pattern(stateKey(id)), ask)
	return err == nil && last == 0
}

// absentTimeout is the timeout of [States.Absent].
const absentTimeout = 500 * time.Millisecond
