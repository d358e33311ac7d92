package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/state"
)

// A run has two subjects in the stream of [BucketState], which the server swaps as one
// register: that of its document, $KV.aee_state.<entity>.<run>, and that of its reply,
// $KV.aee_reply.<entity>.<run>. Every write of either names the pattern that matches both
// (Nats-Expected-Last-Subject-Sequence-Subject: $KV.*.<entity>.<run>), so that a write is
// stored only if its writer knows the last message of both. The reply ends the run: it
// follows the run's last document, or takes its place.
//
// Both subjects have the form of a bucket's keys, so that records of earlier releases stay
// where they are, and the pattern has no other subject of the stream.

// HeaderEnd has, in JSON, what a reply says of a run without a document: [state.End].
const HeaderEnd = "Aee-End"

// Replies reports whether the bucket takes replies, see [States.Reply]: a topology before
// 6 does not.
func (s *States) Replies(ctx context.Context) bool {
	if s.replySub == "" {
		return false
	}
	bucket, err := s.facts(ctx)
	return err == nil && bucket.replies
}

// Reply stores the terminal reply of a run, which ends the run, over the revision prev: 0
// if the run has no document. end is nil if the run has a document, which says that the
// run has ended; otherwise it is what is to be known of the run. The errors are those of
// [States.PutNoted].
//
// Reply does not send the reply to those who wait for it: see [Replies.Announce].
func (s *States) Reply(ctx context.Context, id state.ID, prev uint64, reply Reply, note Note, end *state.End) (uint64, error) {
	if err := checkID(ctx, id); err != nil {
		return 0, fmt.Errorf("reply of run: %w", err)
	}
	key := stateKey(id)
	h := s.headers(key, prev, reply.Data, note, len(reply.Header)+2)
	for name, values := range reply.Header {
		if !strings.HasPrefix(name, "Nats-Expected-") {
			h[name] = values
		}
	}
	h[natsjs.MsgIDHeader] = []string{reply.MsgID}
	if end != nil {
		text, err := json.Marshal(end)
		if err != nil {
			return 0, fmt.Errorf("reply of run %s: %w", id.Run, err)
		}
		h[HeaderEnd] = []string{string(text)}
	}
	return s.swap(ctx, id, prev, &nats.Msg{Subject: s.replyPub + key, Data: reply.Data, Header: h})
}

// endOf returns what a reply says of a run without a document, nil if it says nothing.
func endOf(h nats.Header) *state.End {
	text := h.Get(HeaderEnd)
	if text == "" {
		return nil
	}
	e := &state.End{}
	if json.Unmarshal([]byte(text), e) != nil {
		return nil
	}
	e.Status = aaif.RunStatus(h.Get(HeaderStatus))
	e.Work, _ = strconv.ParseUint(h.Get(HeaderWork), 10, 64)
	if !state.Terminal(e.Status) {
		return nil
	}
	return e
}

// register returns a run's record as the two last messages of its subjects have it: that
// of the document, or else that of the reply of a run without one. Its last is the
// sequence of the later of both.
func register(doc, reply Message) (stateMessage, error) {
	m := stateMessage{Message: doc, last: max(doc.Seq, reply.Seq)}
	none := doc.Seq == 0 || api.Deleted(doc.Header)
	switch stray := !reply.Genuine(); {
	case reply.Seq <= doc.Seq: // there is no reply, or the run was tried again after it
	case none && (stray || endOf(reply.Header) != nil):
		m.Message, m.replied = reply, !stray // a stray covers what may be a reply
		return m, nil
	case !none && !stray && doc.Genuine() && state.Terminal(m.status()):
		m.replied = true
	}
	if doc.Seq == 0 {
		return m, natsjs.ErrMsgNotFound
	}
	return m, nil
}

// read returns the record of a key, from any replica, with the errors of [api.Newest]. The
// document and the reply are read at the same time; if the run ended in between, they are
// read again.
func (s *States) read(ctx context.Context, key string) (stateMessage, error) {
	if s.replySub == "" {
		doc, err := api.Newest(ctx, s.js, s.stream, s.sub+key)
		if err != nil {
			return stateMessage{}, err
		}
		return register(doc, Message{})
	}
	for tries := 0; ; tries++ {
		doc, reply, err := s.readBoth(ctx, key)
		if err != nil {
			return stateMessage{}, err
		}
		m, err := register(doc, reply)
		if m.replied || reply.Seq <= doc.Seq || !reply.Genuine() || tries == 3 {
			return m, err
		}
		// A reply follows a document that does not say that the run has ended: the run has
		// ended between the two reads.
		if tries > 0 && !pause.For(ctx, time.Duration(tries)*time.Millisecond) {
			return stateMessage{}, ctx.Err()
		}
	}
}

// readBoth returns the last message of a document and that of a reply; the zero Message
// for one that there is none of.
func (s *States) readBoth(ctx context.Context, key string) (doc, reply Message, err error) {
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	one := func(m *Message, subj string) {
		got, err := api.Newest(ctx, s.js, s.stream, subj)
		if err == nil {
			*m = got
		} else if !errors.Is(err, natsjs.ErrMsgNotFound) {
			failed(err)
		}
	}
	var reading sync.WaitGroup
	reading.Go(func() { one(&reply, s.replySub+key) })
	one(&doc, s.sub+key)
	reading.Wait()
	return doc, reply, context.Cause(ctx)
}

// ReadRecord returns what a message of the stream of [BucketState] says of its run, for
// those who read the stream itself: a checkpoint, or a reply. Data of a large document is
// a reference to it.
func ReadRecord(m subject.Map, msg Message) (rec state.Record, reply bool, err error) {
	s := subjectsOf(BucketState+m.Suffix(), "").withReplies(m, "")
	key, reply := s.keyOf(msg.Subject)
	id, err := stateID(key)
	if err != nil {
		return rec, reply, err
	}
	rec = state.Record{ID: id, Data: msg.Data, Revision: msg.Seq, Time: msg.Time, Replied: reply}
	rec.Over, rec.Swapped = swappedOver(msg.Header, s.pattern(key))
	if reply {
		rec.End = endOf(msg.Header)
	}
	return rec, reply, nil
}
