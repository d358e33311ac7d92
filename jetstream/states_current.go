package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/state"
)

// current returns the last message under a key as the stream's leader has it, or
// [natsjs.ErrMsgNotFound]. It reads by the key's subject, so that permissions can
// fence a worker in: $JS.API.STREAM.MSG.GET, which the leader answers, cannot be
// given for some subjects only.
//
// Where the bucket has replicas, any of them may answer the read. Then current first
// asks the leader for the sequence of the key's last message, and reads until a replica
// has it.
func (s *States) current(ctx context.Context, key string) (Message, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	single, err := s.alone(ctx)
	if err != nil {
		return Message{}, err
	}
	if single {
		return newest(ctx, s.js, s.stream, s.sub+key)
	}
	least, err := s.lastSequence(ctx, key)
	if err != nil && !errors.Is(err, ErrDenied) { // a user who is denied this reads only
		return Message{}, err
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		m, err := newest(ctx, s.js, s.stream, s.sub+key)
		if err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) || m.Seq >= least {
			return m, err
		}
		if !pause(ctx, wait) {
			return Message{}, ctx.Err()
		}
		if least, err = s.lastSequence(ctx, key); err != nil { // it may have gone
			return Message{}, err
		}
	}
}

// lastSequence asks the stream's leader for the sequence of the last message under
// a key, 0 if there is none. JetStream has no request for that which permissions can
// fence by subject. So it publishes to the key what the leader must refuse: a message
// that expects a last sequence that no stream reaches. The refusal names the sequence.
func (s *States) lastSequence(ctx context.Context, key string) (uint64, error) {
	for {
		answer, err := exchange(ctx, s.js.Conn(), &nats.Msg{Subject: s.pub + key, Header: nats.Header{
			natsjs.ExpectedLastSubjSeqHeader: {strconv.FormatInt(math.MaxInt64, 10)},
			natsjs.ExpectedStreamHeader:      {s.stream},
		}})
		if err != nil {
			return 0, err
		}
		_, err = readAck(answer.Data)
		if hasCode(err, natsjs.JSErrCodeStreamWrongLastSequenceConstant) { // another write is under way
			if !pause(ctx, time.Millisecond) {
				return 0, ctx.Err()
			}
			continue
		}
		var refused *natsjs.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != natsjs.JSErrCodeStreamWrongLastSequence {
			return 0, fmt.Errorf("ask for the last sequence under %s: %w", key, err)
		}
		_, number, _ := strings.Cut(refused.Description, ": ")
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("ask for the last sequence under %s: the server says %q", key, refused.Description)
		}
		return seq, nil
	}
}

// aloneLook is the time between two looks at the number of replicas.
const aloneLook = time.Minute

// alone reports whether the bucket is known to have one replica only. It fails where
// there is no bucket.
func (s *States) alone(ctx context.Context) (bool, error) {
	s.mu.Lock()
	known, single := time.Since(s.looked) < aloneLook, s.single
	s.mu.Unlock()
	if known {
		return single, nil
	}
	var info natsjs.StreamInfo
	err := request(ctx, s.js, "STREAM.INFO."+s.stream, nil, &info)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.Is(err, natsjs.ErrStreamNotFound):
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked, s.single = time.Now(), err == nil && info.Config.Replicas == 1
	return s.single, nil
}

// Absent reports whether nothing is stored of a run. It is for a worker that is
// handed a new task, and cheap: one direct get. It is false where the answer is not
// to be had soon, and where the bucket has replicas, of which the one that answers
// may be behind.
func (s *States) Absent(ctx context.Context, id state.ID) bool {
	if s.check(ctx, id) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, absentWait)
	defer cancel()
	if single, err := s.alone(ctx); err != nil || !single {
		return false
	}
	_, err := newest(ctx, s.js, s.stream, s.sub+stateKey(id))
	return errors.Is(err, natsjs.ErrMsgNotFound)
}

// absentWait bounds the question of [States.Absent].
const absentWait = 500 * time.Millisecond
