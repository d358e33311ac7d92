package jetstream

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/mesh/subject"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// States keeps the checkpoints of runs: it is a [state.Store] over
// [BucketState] and, for documents that are too large for it, [ObjectsState].
//
// A run's key in the bucket is <entity>.<run id>, each token of it escaped by
// [subject.Escape]; its revisions are the bucket's last 64, so that `nats kv
// history` shows them too. What decides who owns a run is the server's
// compare-and-swap of the sequence of the key's subject: one publish, no read.
//
// Get returns what the stream's leader has, so that a replica that is behind cannot
// hide what was written a moment ago. History, List and Watch may be answered by
// any replica; History waits until it has what the leader has. A run that went by
// its age, or by [States.Sweep], is not reported as deleted by Watch.
//
// A worker needs permissions for subjects of its own entity only: Put to publish to
// $KV.aee_state.<entity>.* and, for documents over [MaxInline], to
// $O.aee_state_objects.C.<entity>.*.*.*; Get and Absent to use
// $JS.API.DIRECT.GET.<stream>.<subject> of these; and Open of one entity to use
// $JS.API.STREAM.INFO, too, which tells the names of subjects and nothing of what is
// stored. The rest reads or takes away what others wrote, and needs the permissions of
// an operator: $JS.API.STREAM.{MSG.GET,PURGE}, $JS.API.DIRECT.GET and
// $JS.API.CONSUMER.{CREATE,MSG.NEXT,DELETE} of the streams.
type States struct {
	js     natsjs.JetStream
	m      subject.Map
	stream string
	pub    string // before a key, where it is published
	sub    string // before a key, as it is stored
	object string // before a key in the names of objects

	mu        sync.Mutex
	collected time.Time // when orphaned objects were looked for
	single    bool      // the bucket has one replica
	looked    time.Time // when that was learnt

	fenced atomic.Bool // this user may not read the whole bucket
	ended  endedRuns
}

// NewStates returns the checkpoints of m's mesh. It does no I/O. With a js from
// [Gather] many goroutines may Put at once at less cost.
func NewStates(js natsjs.JetStream, m subject.Map) *States {
	return newStates(js, m, BucketState, "")
}

// NewHandoffs returns the records of runs that other platforms hand over to m's
// mesh: checkpoints like those of [NewStates], in [BucketHandoff].
func NewHandoffs(js natsjs.JetStream, m subject.Map) *States {
	return newStates(js, m, BucketHandoff, handoffObject)
}

func newStates(js natsjs.JetStream, m subject.Map, bucket, object string) *States {
	bucket += m.Suffix()
	sub := "$KV." + bucket + "."
	return &States{js: js, m: m, stream: "KV_" + bucket, sub: sub, pub: kvPrefix(js) + sub, object: object}
}

// Headers of the messages that hold checkpoints.
const (
	HeaderStatus = "Aee-Status" // the run's status
	HeaderWork   = "Aee-Work"   // the sequence in StreamWork of the message that the run answers
	HeaderObject = "Aee-Object" // the document is an object of ObjectsState: "<digest> <size> <name>"
)

// A Note is what [States.PutNoted] writes beside a checkpoint, where it can be
// read without the document.
type Note struct {
	// Status is the run's. [States.Open] leaves out runs that have ended, and
	// [States.Sweep] takes no others away.
	Status aaif.RunStatus

	// Work is the sequence in [StreamWork] of the message that the run answers,
	// 0 if there is none: a run that has ended is not swept away while its
	// message may be delivered again.
	Work uint64

	// TTL is how long the checkpoint is kept if no other is stored over it, in
	// whole seconds; 0 is as long as the bucket keeps any.
	TTL time.Duration
}

// Put stores a checkpoint, see [state.Store]. The note is read from the
// document; without one that can be read the run counts as one that has not
// ended.
func (s *States) Put(ctx context.Context, id state.ID, prev uint64, data []byte) (uint64, error) {
	return s.PutNoted(ctx, id, prev, data, noteOf(data, 0))
}

// PutNoted is Put for who knows what is in the document. Its errors are those
// of [state.Store], and [ErrFull] where the bucket has no room.
func (s *States) PutNoted(ctx context.Context, id state.ID, prev uint64, data []byte, note Note) (uint64, error) {
	if err := s.check(ctx, id); err != nil {
		return 0, fmt.Errorf("put run: %w", err)
	}
	if len(data) == 0 {
		return 0, fmt.Errorf("put run %s: it is empty", id.Run)
	}
	key := stateKey(id)
	msg := &nats.Msg{Subject: s.pub + key, Data: data, Header: s.headers(prev, data, note)}
	object := ""
	if len(data) > s.inline() {
		var err error
		if object, err = s.putObject(ctx, id, msg); err != nil {
			return 0, err
		}
	}
	ack, err := s.js.PublishMsg(ctx, msg)
	for try := 0; prev == 0 && isWrongSequence(err) && try < 8; try++ {
		// What is there may be the marker of a deletion.
		marker, e := s.current(ctx, key)
		if e != nil && !errors.Is(e, natsjs.ErrMsgNotFound) || e == nil && !deleted(marker.Header) {
			break
		}
		msg.Header[natsjs.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(marker.Seq, 10)}
		ack, err = s.js.PublishMsg(ctx, msg)
	}
	if err == nil {
		return ack.Sequence, nil
	}
	if isWrongSequence(err) {
		err = fmt.Errorf("put run %s over revision %d: %w: %w", id.Run, prev, state.ErrChanged, err)
	} else {
		err = uncertain(explain(s.js.Conn(), err, "put run %s of %s", id.Run, id.Entity))
	}
	if object != "" && !errors.Is(err, ErrUncertain) {
		s.dropObject(ctx, object)
	}
	return 0, err
}

func (s *States) headers(prev uint64, data []byte, note Note) nats.Header {
	kind := "application/cbor"
	if data[0] == '{' {
		kind = "application/json"
	}
	// One allocation for all the values.
	v := [6]string{kind, strconv.FormatUint(prev, 10), s.stream, string(note.Status)}
	h := nats.Header{
		"Content-Type":                   v[0:1:1],
		natsjs.ExpectedLastSubjSeqHeader: v[1:2:2],
		natsjs.ExpectedStreamHeader:      v[2:3:3],
	}
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
	return h
}

// Resolve finds out what became of a Put with the same arguments that ended
// with [ErrUncertain], and finishes it: it returns the revision of data once
// they are stored, though others may have written since, or [state.ErrChanged]
// if somebody else wrote over prev. It goes on until ctx ends, and then fails with ErrUncertain
// again.
//
// It knows data by their bytes, so no two checkpoints of a run may have the
// same; a [state.Codec] gives each an id of its own.
func (s *States) Resolve(ctx context.Context, id state.ID, prev uint64, data []byte) (uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	pause := 10 * time.Millisecond
	for {
		have, err := s.Get(ctx, id)
		switch {
		case err == nil && have.Revision > prev && string(have.Data) == string(data):
			return have.Revision, nil
		case err == nil && have.Revision > prev:
			// Ours may have been the first, and others have written since.
			history, err := s.History(ctx, id)
			for _, r := range history {
				if r.Revision > prev && string(r.Data) == string(data) {
					return r.Revision, nil
				}
			}
			if errors.Is(err, ErrDenied) {
				return 0, err
			}
			if err == nil || errors.Is(err, state.ErrNotFound) {
				return 0, fmt.Errorf("put run %s over revision %d: %w", id.Run, prev, state.ErrChanged)
			}
		case errors.Is(err, state.ErrNotFound) && prev > 0:
			return 0, fmt.Errorf("put run %s over revision %d: %w: it is gone", id.Run, prev, state.ErrChanged)
		case err == nil, errors.Is(err, state.ErrNotFound):
			// What was sent may still be on its way. It is over the same revision,
			// so that one of the two fails.
			var rev uint64
			if rev, err = s.Put(ctx, id, prev, data); err == nil {
				return rev, nil
			}
			if !errors.Is(err, ErrUncertain) && !errors.Is(err, state.ErrChanged) {
				return 0, err
			}
		case errors.Is(err, ErrDenied):
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("resolve run %s of %s: %w: %w", id.Run, id.Entity, ErrUncertain, ctx.Err())
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// Delete takes a run away, see [state.Store]. A marker stays for an hour, so
// that watchers hear of it.
func (s *States) Delete(ctx context.Context, id state.ID) error {
	if err := s.check(ctx, id); err != nil {
		return fmt.Errorf("delete run: %w", err)
	}
	key := stateKey(id)
	last, err := s.current(ctx, key)
	if errors.Is(err, natsjs.ErrMsgNotFound) || err == nil && deleted(last.Header) {
		return nil
	}
	objects, err := s.references(ctx, key)
	if err != nil {
		return err
	}
	marker, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: s.pub + key, Header: nats.Header{
		"KV-Operation": {"PURGE"}, natsjs.MsgTTLHeader: {"1h"}, natsjs.ExpectedStreamHeader: {s.stream},
	}})
	if err != nil {
		return uncertain(explain(s.js.Conn(), err, "delete run %s of %s", id.Run, id.Entity))
	}
	// A roll-up would do the same in one step; the bucket takes none, see bucket.
	if err := request(ctx, s.js, "STREAM.PURGE."+s.stream, map[string]any{"filter": s.sub + key, "seq": marker.Sequence}, nil); err != nil {
		return explain(s.js.Conn(), err, "delete the revisions of run %s of %s", id.Run, id.Entity)
	}
	for o := range objects {
		s.dropObject(ctx, o)
	}
	return nil
}

func (s *States) check(ctx context.Context, id state.ID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return ctx.Err()
}

// RunSubjects is the pattern of the subjects under which the runs of an entity are
// stored, and DocumentSubjects that of the chunks of their large documents.
func RunSubjects(m subject.Map, entity string) string {
	return "$KV." + BucketState + m.Suffix() + "." + entityKey(entity) + ".*"
}

// DocumentSubjects: see [RunSubjects].
func DocumentSubjects(m subject.Map, entity string) string {
	return "$O." + ObjectsState + m.Suffix() + ".C." + entityKey(entity) + ".*.*.*" // run, token, number
}

// Fence says that the user's permissions end at its own entities. It then asks for
// nothing more, which it would else find out by a request that the server refuses and
// logs: [States.Open] lists runs by their names, and [States.Sweep] takes nothing away.
func (s *States) Fence() { s.fenced.Store(true) }

// stateKey is a run's key in the bucket.
func stateKey(id state.ID) string {
	return entityKey(id.Entity) + "." + subject.Escape(id.Run)
}

// entityKey is an entity with each of its tokens escaped.
func entityKey(entity string) string {
	tokens := strings.Split(entity, ".")
	for i, t := range tokens {
		tokens[i] = subject.Escape(t)
	}
	return strings.Join(tokens, ".")
}

// stateID reads a key.
func stateID(key string) (state.ID, error) {
	tokens := strings.Split(key, ".")
	for i, t := range tokens {
		var err error
		if tokens[i], err = subject.Unescape(t); err != nil {
			return state.ID{}, err
		}
	}
	n := len(tokens) - 1
	id := state.ID{Entity: strings.Join(tokens[:n], "."), Run: tokens[n]}
	if stateKey(id) != key {
		return state.ID{}, errors.New("the key is none of a run")
	}
	return id, id.Validate()
}

// deleted reports that a message says that there is nothing any more.
func deleted(h nats.Header) bool {
	op := h.Get("KV-Operation")
	return op == "DEL" || op == "PURGE" || h.Get("Nats-Marker-Reason") != ""
}

// leader asks the stream's leader for a message.
func (s *States) leader(ctx context.Context, query map[string]any) (Message, error) {
	body, err := json.Marshal(query)
	if err != nil {
		return Message{}, err
	}
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	answer, err := exchange(ctx, s.js.Conn(), &nats.Msg{Subject: apiPrefix(s.js) + "STREAM.MSG.GET." + s.stream, Data: body})
	if err != nil {
		return Message{}, err
	}
	m, err := readMessage(answer.Data)
	m.Stream = s.stream
	return m, err
}

// readMessage reads the answer of $JS.API.STREAM.MSG.GET. encoding/json takes
// most of a millisecond for the base64 of 64 KiB, so that is cut out before: a
// JSON string cannot hold what it is found by.
func readMessage(answer []byte) (Message, error) {
	var data []byte
	const member = `"data":"`
	if i := bytes.Index(answer, []byte(member)); i >= 0 {
		i += len(member)
		n := bytes.IndexByte(answer[i:], '"')
		if n < 0 {
			return Message{}, errors.New("read a message: its data do not end")
		}
		data = make([]byte, base64.StdEncoding.DecodedLen(n))
		got, err := base64.StdEncoding.Decode(data, answer[i:i+n])
		if err != nil {
			return Message{}, fmt.Errorf("read a message: %w", err)
		}
		data, answer = data[:got], slices.Concat(answer[:i], answer[i+n:])
	}
	var got struct {
		Error   *natsjs.APIError `json:"error"`
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return Message{}, fmt.Errorf("read a message: %w", err)
	}
	if got.Error != nil {
		return Message{}, got.Error
	}
	m := Message{Subject: got.Message.Subject, Data: data, Time: got.Message.Time, Seq: got.Message.Seq}
	if len(got.Message.Header) > 0 {
		var err error
		if m.Header, err = nats.DecodeHeadersMsg(got.Message.Header); err != nil {
			return Message{}, fmt.Errorf("read a message: %w", err)
		}
	}
	return m, nil
}

var _ state.Store = (*States)(nil)
