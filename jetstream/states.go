package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/internal/chunks"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// States stores the checkpoints of runs: it is a [state.Store] over [BucketState] and,
// for documents that are too large for it, [ObjectsState].
//
// A run's key in the bucket is <entity>.<run id>, each token escaped by [subject.Escape].
// The bucket keeps the last 64 revisions of a key, so that `nats kv history` shows them
// too. The server decides who owns a run by compare-and-swap on the last sequence of the
// run's subjects, that of its document and that of its reply: one publish, no read.
//
// Get returns the stream leader's record, so that a replica that lags behind cannot hide
// a recent write. Any replica may answer History and List; History waits until it has what
// the leader has.
//
// A worker needs permissions for subjects of its own entity only. Put needs to publish to
// $KV.aee_state.<entity>.*, Reply to $KV.aee_reply.<entity>.* and, for documents over
// [MaxInline], both to $O.aee_state_objects.C.<entity>.*.*.*. Get needs
// $JS.API.DIRECT.GET.<stream>.<subject> of these, Absent what Put needs. Open of one entity also needs
// $JS.API.STREAM.INFO, which reveals names of subjects but no stored data. All other
// methods read or delete records of other entities too, and need the permissions of an
// operator: $JS.API.STREAM.{MSG.GET,PURGE}, $JS.API.DIRECT.GET and
// $JS.API.CONSUMER.{CREATE,MSG.NEXT,DELETE} of the streams.
type States struct {
	runSubjects
	js      natsjs.JetStream
	m       subject.Map
	objects *chunks.Store // the documents that are too large for the bucket
	object  string        // prefix of a key in the names of objects

	mu        sync.Mutex
	collected time.Time // when orphaned objects were last collected

	bucket atomic.Pointer[bucketFacts]
	denied denial.Recent // questions to the leader: by entity, and the requests for messages

	uploads uploads

	fenced atomic.Bool // this user may not read the whole bucket
	ended  endedRuns
}

// NewStates returns the checkpoints of m's mesh. It does no I/O. With a js from [Gather]
// it is cheaper when many goroutines call Put at once.
func NewStates(js natsjs.JetStream, m subject.Map) *States {
	s := newStates(js, m, BucketState, "")
	s.runSubjects = s.withReplies(m, api.KeyPrefix(js))
	return s
}

// NewHandoffs returns the records of runs that other platforms transfer to m's mesh:
// checkpoints like those of [NewStates], in [BucketHandoff].
func NewHandoffs(js natsjs.JetStream, m subject.Map) *States {
	return newStates(js, m, BucketHandoff, chunks.HandoffPrefix)
}

func newStates(js natsjs.JetStream, m subject.Map, bucket, object string) *States {
	return &States{
		js: js, m: m, runSubjects: subjectsOf(bucket+m.Suffix(), api.KeyPrefix(js)),
		objects: chunks.New(js, ObjectsState+m.Suffix()), object: object, uploads: uploads{age: uploadAge},
	}
}

// Headers of the messages that hold checkpoints.
const (
	HeaderStatus = "Aee-Status" // the run's status
	HeaderWork   = "Aee-Work"   // the sequence in StreamWork of the run's task
	HeaderObject = "Aee-Object" // the document is in ObjectsState: "<digest> <size> <name>"
	HeaderCorr   = "Aee-Corr"   // the task's corr, in the form of CorrDigest
)

// A Note is what [States.PutNoted] stores in the headers of a checkpoint, to be read
// without the document.
type Note struct {
	// Status is the run's status. [States.Open] skips runs that have ended, and
	// [States.Sweep] removes no others.
	Status aaif.RunStatus

	// Work is the sequence in [StreamWork] of the run's task, 0 if there is none. Sweep
	// does not remove an ended run while that message can still be redelivered.
	Work uint64

	// Corr is the corr of the run's task, "" if the writer does not know it.
	// [States.Documents] leaves out the runs of other corrs by it.
	Corr string

	// Header is the document's header; nil: a document that is too large for the bucket is
	// read for it.
	Header *state.Header
	// Digest is the document's digest, see [state.Codec.EncodeDigest]; "": it is computed
	// of a document that is too large for the bucket.
	Digest string

	// TTL is how long the checkpoint is kept unless another one replaces it, in whole
	// seconds; 0: as long as the bucket keeps records.
	TTL time.Duration
}

// Put stores a checkpoint, see [state.Store]. It reads the note from the document; a
// document that it cannot read counts as a run that has not ended.
func (s *States) Put(ctx context.Context, id state.ID, prev uint64, data []byte) (uint64, error) {
	return s.PutNoted(ctx, id, prev, data, noteOf(data, 0))
}

// PutNoted is like Put for callers that know the note. Its errors are those of
// [state.Store], and [ErrFull] if the bucket has no room.
func (s *States) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note Note) (uint64, error) {
	if err := checkID(ctx, id); err != nil {
		return 0, fmt.Errorf("put run: %w", err)
	}
	if len(data) == 0 {
		return 0, fmt.Errorf("put run %s: it is empty", id.Run)
	}
	key := stateKey(id)
	msg := &nats.Msg{Subject: s.pub + key, Data: data, Header: s.headers(key, prev, data, note, 0)}
	if len(data) <= inlineMax(s.js.Conn()) {
		return s.swap(ctx, id, prev, msg)
	}
	u, err := s.putObject(ctx, id, msg, note)
	if err != nil {
		return 0, err
	}
	rev := uint64(0)
	if conn := s.js.Conn(); conn.IsConnected() || conn.IsClosed() {
		rev, err = s.swap(ctx, id, prev, msg)
	} else { // it would be stored when the connection is back, perhaps after a sweep has deleted the object
		err = api.Uncertain(api.Explain(conn, nats.ErrDisconnected, "put run %s of %s", id.Run, id.Entity))
	}
	if u.age() > s.uploads.age && (err == nil || errors.Is(err, state.ErrUncertain)) {
		if e := u.storeAgain(ctx, s, id, data); err == nil && e != nil {
			u.again, rev, err = true, 0, e
		}
	}
	s.settle(ctx, id, u, err)
	return rev, err
}

// swap stores a message of a run, whose headers have the revision that it replaces.
func (s *States) swap(ctx context.Context, id state.ID, prev uint64, msg *nats.Msg) (uint64, error) {
	ack, err := api.Publish(ctx, s.js, msg)
	for try := 0; prev == 0 && api.IsWrongSequence(err) && try < 8; try++ {
		// The last message may be the marker of a deletion: write over that.
		marker, e := s.current(ctx, stateKey(id))
		if e != nil && !errors.Is(e, natsjs.ErrMsgNotFound) || e == nil && !api.Deleted(marker.Header) {
			break
		}
		msg.Header[natsjs.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(marker.last, 10)}
		ack, err = api.Publish(ctx, s.js, msg)
	}
	if err == nil && ack.Duplicate {
		// A reply whose id another message has, perhaps of another entity: see [api.PublishOnce].
		if have, _ := s.current(ctx, stateKey(id)); have.last != ack.Sequence {
			msg.Header.Del(natsjs.MsgIDHeader)
			ack, err = api.Publish(ctx, s.js, msg)
		}
	}
	switch {
	case err == nil:
		return ack.Sequence, nil
	case api.IsChanged(err):
		return 0, fmt.Errorf("put run %s over revision %d: %w: %w", id.Run, prev, state.ErrChanged, err)
	}
	return 0, api.Uncertain(api.Explain(s.js.Conn(), err, "put run %s of %s", id.Run, id.Entity))
}

// headers returns the headers of a write, with room for more.
func (s *States) headers(key string, prev uint64, data []byte, note Note, more int) nats.Header {
	kind := "application/cbor"
	if data[0] == '{' {
		kind = "application/json"
	}
	// One allocation for all values.
	v := [8]string{kind, strconv.FormatUint(prev, 10), s.stream, string(note.Status)}
	h := make(nats.Header, len(v)+more)
	h["Content-Type"] = v[0:1:1]
	h[natsjs.ExpectedLastSubjSeqHeader] = v[1:2:2]
	h[natsjs.ExpectedStreamHeader] = v[2:3:3]
	if note.Status != "" {
		h[HeaderStatus] = v[3:4:4]
	}
	if note.Work > 0 {
		v[4] = strconv.FormatUint(note.Work, 10)
		h[HeaderWork] = v[4:5:5]
	}
	if note.TTL >= time.Second {
		v[5] = strconv.FormatInt(int64(note.TTL/time.Second), 10)
		h[natsjs.MsgTTLHeader] = v[5:6:6]
	}
	if s.replySub != "" {
		v[6] = s.pattern(key)
		h[natsjs.ExpectedLastSubjSeqSubjHeader] = v[6:7:7]
	}
	if note.Corr != "" {
		v[7] = CorrDigest(note.Corr)
		h[HeaderCorr] = v[7:8:8]
	}
	return h
}

// Delete deletes a run, see [state.Store]. A marker stays for an hour, so that watchers of the bucket
// (`nats kv watch`) see the deletion. The revisions are purged first, because a marker that expires would uncover them. The
// marker is stored only if the key has no message, because it may arrive after the run was written
// again.
func (s *States) Delete(ctx context.Context, id state.ID) error {
	if err := checkID(ctx, id); err != nil {
		return fmt.Errorf("delete run: %w", err)
	}
	key := stateKey(id)
	for {
		objects, err := s.references(ctx, key) // read first, so that no object of a remaining revision is deleted
		if err != nil {
			return err
		}
		last, err := s.current(ctx, key)
		gone := errors.Is(err, natsjs.ErrMsgNotFound) // an earlier try may have deleted it, and stored no marker
		switch {
		case gone:
		case err != nil:
			return api.Explain(s.js.Conn(), err, "delete run %s of %s", id.Run, id.Entity)
		case api.Deleted(last.Header):
			return nil
		default:
			// A roll-up would do the same in one step, but the bucket does not allow roll-ups,
			// see fenced.
			if _, err := (api.Purge{Filter: s.pattern(key), Before: last.last + 1}).Do(ctx, s.js, s.stream); err != nil {
				return api.Explain(s.js.Conn(), err, "delete the revisions of run %s of %s", id.Run, id.Entity)
			}
		}
		for o := range objects {
			s.dropObject(ctx, o)
		}
		marker := &nats.Msg{Subject: s.pub + key, Header: nats.Header{
			"KV-Operation": {"PURGE"}, natsjs.MsgTTLHeader: {"1h"}, natsjs.ExpectedStreamHeader: {s.stream}, natsjs.ExpectedLastSubjSeqHeader: {"0"},
		}}
		if s.replySub != "" {
			marker.Header[natsjs.ExpectedLastSubjSeqSubjHeader] = []string{s.pattern(key)}
		}
		_, err = api.Publish(ctx, s.js, marker)
		switch refused := api.IsChanged(err); {
		case refused && gone: // there is a new run
			return nil
		case !refused: // else it was written meanwhile
			return api.Uncertain(api.Explain(s.js.Conn(), err, "delete run %s of %s", id.Run, id.Entity))
		}
	}
}

// checkID refuses an invalid id, and anything after ctx has ended.
func checkID(ctx context.Context, id state.ID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return ctx.Err()
}

// Fence says that the user's permissions end at its own entities. It saves requests that
// the server would refuse and log: [States.Open] then lists runs by their names, and
// [States.Sweep] deletes nothing.
func (s *States) Fence() { s.fenced.Store(true) }

// A RunStore is a store of runs with all that durable lanes use of one; [States] describes its
// methods.
type RunStore interface {
	state.Store
	Sweeper
	PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note Note) (uint64, error)
	Reply(ctx context.Context, id state.ID, prev uint64, reply Reply, note Note, end *state.End) (uint64, error)
	Replies(ctx context.Context) bool
	Absent(ctx context.Context, id state.ID) bool
	MaxAge(ctx context.Context) time.Duration
	Open(ctx context.Context, entity string) iter.Seq2[state.Record, error]
	Shares(ctx context.Context, entity string, soon int64) ([]Share, error)
	Fence()
}

var _ RunStore = (*States)(nil)
