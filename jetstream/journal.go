package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Journal stores the envelopes that entities sent and received, by the entity and the
// envelope's id, for as long as the limits of [StreamJournal] allow.
//
// The first envelope with an id stays: a later one with the same id and other bytes does
// not replace it, so the journal of an entity cannot be rewritten.
type Journal struct {
	js natsjs.JetStream
	m  subject.Map
}

// NewJournal returns the journal of m's mesh. It does no I/O.
func NewJournal(js natsjs.JetStream, m subject.Map) *Journal {
	return &Journal{js: js, m: m}
}

// Put stores an envelope's bytes and waits until the server has stored them. It returns
// nil if the same bytes are stored already, and [ErrExists] if other bytes are. After
// [ErrUncertain] it may be called again.
func (j *Journal) Put(ctx context.Context, entity, id string, envelope []byte) error {
	subj, err := j.m.Journal(entity, id)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		_, err = j.js.Publish(ctx, subj, envelope, natsjs.WithExpectLastSequencePerSubject(0), natsjs.WithExpectStream(j.name()))
		err = api.OfWrite(j.js.Conn(), subj, err)
		if !api.IsWrongSequence(err) {
			return api.Uncertain(api.Explain(j.js.Conn(), err, "journal envelope %q of %s", id, entity))
		}
		have, failed := j.Get(ctx, entity, id)
		switch {
		case failed == nil && !bytes.Equal(have, envelope):
			return fmt.Errorf("journal envelope %q of %s: %w, with other bytes", id, entity, ErrExists)
		case failed == nil || !errors.Is(failed, ErrNotFound):
			return failed
		case wait > time.Second || !pause.For(ctx, wait): // it has expired meanwhile, or a replica is behind
			return api.Uncertain(api.Explain(j.js.Conn(), err, "journal envelope %q of %s", id, entity))
		}
	}
}

// Post stores an envelope's bytes without waiting, at the cost of a plain publish. It
// does not report whether they were stored, so a node can journal every envelope.
func (j *Journal) Post(entity, id string, envelope []byte) error {
	subj, err := j.m.Journal(entity, id)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	msg := &nats.Msg{Subject: subj, Data: envelope, Header: nats.Header{natsjs.ExpectedLastSubjSeqHeader: {"0"}}}
	if err := j.js.Conn().PublishMsg(msg); err != nil {
		return fmt.Errorf("journal envelope %q of %s: %w", id, entity, err)
	}
	return nil
}

// Get returns the bytes of an envelope, or [ErrNotFound]. Any replica may answer, so an
// envelope that was stored a moment ago may be missing.
func (j *Journal) Get(ctx context.Context, entity, id string) ([]byte, error) {
	subj, err := j.m.Journal(entity, id)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	msg, err := api.NewestPublished(ctx, j.js, j.name(), subj)
	if err != nil {
		return nil, api.Explain(j.js.Conn(), err, "fetch envelope %q of %s", id, entity)
	}
	return msg.Data, nil
}

func (j *Journal) name() string { return StreamJournal + j.m.Suffix() }
