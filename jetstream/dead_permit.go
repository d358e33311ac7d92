package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// The headers of a permit to retry a dead letter: the letter's sequence, and the digest
// of the task's bytes. A permit without a digest is used up.
const (
	headerDeadRetry  = headerDead + "Retry"
	headerDeadDigest = headerDead + "Digest"
)

// permitSubject returns the subject of the permit to retry an entity's letter. Like the subjects
// of the entity's letters, only operators and its workers may publish to it. It belongs to no
// task's id, so that no letter displaces the permit.
func (d *Dead) permitSubject(entity string, seq uint64) (string, error) {
	all, err := d.m.DeadOf(entity)
	return strings.TrimSuffix(all, "*") + "=retry-" + strconv.FormatUint(seq, 10), err
}

// permit stores the permit to retry a letter's task; with digest "" it stores that the permit is
// used up. If last is not 0, it replaces the message with that sequence.
func (d *Dead) permit(ctx context.Context, entity string, seq uint64, digest string, last uint64) error {
	subj, err := d.permitSubject(entity, seq)
	if err != nil {
		return fmt.Errorf("permit to retry dead letter %d: %w", seq, err)
	}
	msg := &nats.Msg{Subject: subj, Header: nats.Header{
		headerDeadRetry: {strconv.FormatUint(seq, 10)}, headerDeadDigest: {digest}, natsjs.ExpectedStreamHeader: {d.name()},
	}}
	if last > 0 {
		msg.Header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
	}
	_, err = api.Publish(ctx, d.js, msg)
	return api.Uncertain(api.Explain(d.js.Conn(), err, "permit to retry dead letter %d", seq))
}

// permits reports whether a message is the permit to retry the letter seq with these bytes.
func permits(msg Message, seq uint64, data []byte) bool {
	return msg.Header.Get(headerDeadRetry) == strconv.FormatUint(seq, 10) && msg.Header.Get(headerDeadDigest) == api.Digest(data)
}

// usePermit uses up the permit to retry the letter that a new letter's message was the retry of. A
// message that was refused before its run was claimed was no retry, whatever its header says.
func (d *Dead) usePermit(ctx context.Context, letter DeadLetter) error {
	seq := retried(letter.Header.Get(HeaderRetry))
	if seq == 0 || letter.Run == "" {
		return nil
	}
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		yes, last, err := d.permitted(ctx, letter.Entity, seq, letter.Data)
		if err == nil && yes {
			err = d.permit(ctx, letter.Entity, seq, "", last)
		}
		// Another worker has used the permit up, or there is a newer one that a replica may not
		// have yet.
		if !api.IsWrongSequence(err) || wait > time.Second || !pause.For(ctx, wait) {
			return err
		}
	}
}

// retried returns the sequence that the header [HeaderRetry] names; 0 if it names none.
func retried(header string) uint64 {
	seq, err := strconv.ParseUint(header, 10, 64)
	if err != nil || strconv.FormatUint(seq, 10) != header {
		return 0
	}
	return seq
}

// Retrying reports whether a task with the header [HeaderRetry] is a dead letter that an
// operator retries: the newest permit for that letter must be for these bytes.
func (d *Dead) Retrying(ctx context.Context, entity, header string, data []byte) (bool, error) {
	seq := retried(header)
	if _, err := d.permitSubject(entity, seq); err != nil || seq == 0 {
		return false, nil // there is no such letter
	}
	yes, _, err := d.permitted(ctx, entity, seq, data)
	return yes, err
}

// permitted reports whether the newest permit for a letter is for these bytes, and returns the
// last sequence of its subject. A replica may have an older permit. If the newest one were missed,
// its retry would be acked without effect and its letter lost, or a used permit would count again.
// So permitted asks the leader whether there is a later message. For a user without permission to
// ask, the answer of any replica counts.
func (d *Dead) permitted(ctx context.Context, entity string, seq uint64, data []byte) (yes bool, last uint64, err error) {
	subj, err := d.permitSubject(entity, seq)
	if err != nil {
		return false, 0, err
	}
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		newest, msg, err := api.LastAndPublished(ctx, d.js, d.name(), subj)
		if err == nil || errors.Is(err, natsjs.ErrMsgNotFound) {
			last, err = api.LastOfLeader(ctx, d.js, d.name(), subj, subj)
			if errors.Is(err, ErrDenied) || err == nil && last <= newest {
				return permits(msg, seq, data), newest, nil
			}
		}
		if err == nil && (wait > time.Second || !pause.For(ctx, wait)) {
			err = fmt.Errorf("%w: a replica lags behind", ErrUnavailable)
		}
		if err != nil {
			return false, 0, api.Explain(d.js.Conn(), err, "look for a permit to retry dead letter %d of %s", seq, entity)
		}
	}
}
