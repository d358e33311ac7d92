package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// HeaderRetry is set on a task that is submitted again after it was a dead letter: the
// letter's sequence in [StreamDead]. The header alone permits nothing, because any
// submitter can set it: see [Dead.Retrying].
const HeaderRetry = "Aee-Retry"

// Dead stores the dead letters: durable tasks that could not be done, with the reason.
// They stay for as long as the limits of [StreamDead] allow. A value may be used by many
// goroutines at once.
type Dead struct {
	js natsjs.JetStream
	m  subject.Map
}

// NewDead returns the dead letters of m's mesh. It does no I/O.
func NewDead(js natsjs.JetStream, m subject.Map) *Dead { return &Dead{js: js, m: m} }

// A DeadLetter is a task that could not be done.
type DeadLetter struct {
	Entity string
	TaskID string // "": the envelope has no readable id; Put makes one, also in place of one that is too long for a subject

	Code     string // for programs: the error's code, or "poison", …
	Cause    string // for people; cut after 1,024 bytes
	Attempts int    // how often the task was started
	Worker   string // the worker that dead-lettered it
	Run      string // the run's id, if there is one

	Subject string    // of the task: aee.work.<priority>.<entity>
	Work    uint64    // its sequence in StreamWork
	Stored  time.Time // when it was stored there

	Data   []byte      // the envelope as it was received
	Header nats.Header // the task's, except headers that begin with Nats-

	// Omitted is the envelope's length if Put left it out because the letter would not
	// have fitted into a message. If the task's headers alone are too large, they are left
	// out, too.
	Omitted int

	Seq  uint64    // in StreamDead; Put returns it
	Died time.Time // when the letter was stored; set by the server
}

// Put stores a dead letter and returns its sequence. A letter about the same message of StreamWork
// with the same code is stored once: Put may be called again after [ErrUncertain], or by another
// worker. If the message was the retry of a letter, Put uses up its permit.
func (d *Dead) Put(ctx context.Context, letter DeadLetter) (uint64, error) {
	seq, err := d.put(ctx, letter)
	if err == nil {
		err = d.usePermit(ctx, letter)
	}
	if err != nil {
		return 0, err
	}
	return seq, nil
}

// put stores a letter by a compare-and-swap on its subject, whose last message also names the
// letters before it: a worker may read only that one. A Nats-Msg-Id does not prove that a letter
// is stored, because another user may have published with the same id before.
func (d *Dead) put(ctx context.Context, letter DeadLetter) (uint64, error) {
	if letter.TaskID == "" || len(subject.Escape(letter.TaskID)) > subject.MaxID {
		letter.TaskID = "work-" + strconv.FormatUint(letter.Work, 10)
	}
	subj, err := d.m.Dead(letter.Entity, letter.TaskID)
	if err != nil {
		return 0, fmt.Errorf("put a dead letter: %w", err)
	}
	nc := d.js.Conn()
	ctx, stop := api.UntilDenied(ctx, nc, subj+`"`)
	defer stop()
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		last, before, err := d.last(ctx, subj)
		if err != nil {
			return 0, api.Explain(nc, err, "put a dead letter to %s", subj)
		}
		if letter.Work != 0 {
			for _, b := range before {
				if b.is(letter) {
					return b.seq, nil
				}
			}
		}
		ack, err := api.Publish(ctx, d.js, d.message(subj, letter, last, before))
		switch {
		case err == nil:
			return ack.Sequence, nil
		case errors.Is(context.Cause(ctx), ErrDenied):
			return 0, api.Explain(nc, context.Cause(ctx), "put a dead letter to %s", subj)
		case !api.IsWrongSequence(err):
			return 0, api.Uncertain(api.Explain(nc, err, "put a dead letter to %s", subj))
		case wait > time.Second:
			return 0, fmt.Errorf("put a dead letter to %s: %w: a replica lags behind: %w", subj, ErrUnavailable, err)
		case !pause.For(ctx, wait):
			return 0, fmt.Errorf("put a dead letter to %s: %w", subj, context.Cause(ctx))
		}
	}
}

// maxDeadHeaders is the most bytes of headers and subject that a letter has. nats-server stores
// headers of 65,535 bytes at most.
const maxDeadHeaders = 60 << 10

// message returns the message of a letter over the last message on its subject. It has no body if
// that does not fit, and no headers of the task if these alone do not.
func (d *Dead) message(subj string, letter DeadLetter, last uint64, before []earlierLetter) *nats.Msg {
	encode := func() *nats.Msg {
		msg := encodeDead(subj, letter)
		for _, b := range before {
			msg.Header.Add(headerDeadBefore, b.String())
		}
		msg.Header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
		msg.Header.Set(natsjs.ExpectedStreamHeader, d.name())
		return msg
	}
	msg := encode()
	most := int(d.js.Conn().MaxPayload())
	over := func(size int) bool { return most > 0 && size > most }
	headers := msg.Size() - len(msg.Data)
	if many := headers > maxDeadHeaders || over(headers); many || over(msg.Size()) {
		letter.Omitted, letter.Data = len(letter.Data), nil
		if many {
			letter.Omitted, letter.Header = max(1, letter.Omitted), nil // without its headers it cannot be retried
		}
		msg = encode()
	}
	return msg
}

// last returns the sequence of the last message on a letter's subject, 0 if there is none, and
// the letters there that are known from it.
func (d *Dead) last(ctx context.Context, subj string) (uint64, []earlierLetter, error) {
	last, msg, err := api.LastAndPublished(ctx, d.js, d.name(), subj)
	if errors.Is(err, natsjs.ErrMsgNotFound) {
		return last, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	return last, d.earlier(msg), nil
}

// List yields the dead letters of one entity or, with "", of all, the oldest first. Any
// replica may answer, so a letter of a moment ago may be missing. After an error it
// yields nothing more.
func (d *Dead) List(ctx context.Context, entity string) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		filter := d.m.AllDead()
		if entity != "" {
			var err error
			if filter, err = d.m.DeadOf(entity); err != nil {
				yield(DeadLetter{}, fmt.Errorf("list dead letters: %w", err))
				return
			}
		}
		for msg, err := range api.Scan(ctx, d.js, d.name(), filter, 1) {
			if err != nil {
				yield(DeadLetter{}, err)
				return
			}
			letter, err := d.decode(msg)
			if err != nil {
				continue // not written by the mesh
			}
			if !yield(letter, nil) {
				return
			}
		}
	}
}

// Get returns the dead letter with a sequence, or [ErrNotFound].
func (d *Dead) Get(ctx context.Context, seq uint64) (DeadLetter, error) {
	if seq == 0 {
		return DeadLetter{}, fmt.Errorf("get dead letter 0: %w", ErrNotFound)
	}
	msg, err := api.LeaderGet(ctx, d.js, d.name(), map[string]any{"seq": seq})
	if err != nil {
		return DeadLetter{}, api.Explain(d.js.Conn(), err, "get dead letter %d", seq)
	}
	return d.decode(msg)
}

// Retry submits the task of a dead letter again, with the header [HeaderRetry], and
// deletes the letter once the task is stored. Before that it stores a permit. If
// another message with the same Nats-Msg-Id keeps the task from being stored, Retry
// submits it without that id. After a failure Retry may be called again: the task's run
// is retried once.
func (d *Dead) Retry(ctx context.Context, seq uint64) (Submitted, error) {
	letter, err := d.Get(ctx, seq)
	if err != nil {
		return Submitted{}, err
	}
	to, err := d.m.Parse(letter.Subject)
	switch {
	case err != nil || to.Kind != subject.Work || to.Entity != letter.Entity:
		return Submitted{}, fmt.Errorf("retry dead letter %d: it came on %q, which is no subject of %s's tasks", seq, letter.Subject, letter.Entity)
	case letter.Omitted == 0 && len(letter.Data) == 0:
		return Submitted{}, fmt.Errorf("retry dead letter %d: it has no envelope that could be submitted again", seq)
	case letter.Omitted > 0:
		return Submitted{}, fmt.Errorf("retry dead letter %d: its envelope of %d bytes was too large to be kept: %w", seq, letter.Omitted, ErrTooLarge)
	}
	if err := d.permit(ctx, letter.Entity, seq, api.Digest(letter.Data), 0); err != nil {
		return Submitted{}, err
	}
	header := api.PlainHeader(letter.Header)
	header.Set(HeaderRetry, strconv.FormatUint(seq, 10))
	done, err := NewQueue(d.js, d.m).Submit(ctx, Submission{
		Entity: to.Entity, Priority: to.Priority, ID: "retry." + strconv.FormatUint(seq, 10), Data: letter.Data, Header: header,
	})
	if err != nil {
		return Submitted{}, fmt.Errorf("retry dead letter %d: %w", seq, err)
	}
	if err := d.Drop(ctx, seq); err != nil && !errors.Is(err, ErrNotFound) {
		return done, fmt.Errorf("dead letter %d was submitted again, and is still listed: %w", seq, err)
	}
	return done, nil
}

// Drop deletes a dead letter, or fails with [ErrNotFound].
func (d *Dead) Drop(ctx context.Context, seq uint64) error {
	if seq == 0 {
		return fmt.Errorf("drop dead letter 0: %w", ErrNotFound)
	}
	return remove(ctx, d.js, d.name(), seq)
}

func (d *Dead) name() string { return StreamDead + d.m.Suffix() }
