package jetstream

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/nats-io/nats.go"
)

// The headers of a dead letter, in addition to those of the task.
const (
	headerDead         = "Aee-Dead-" // the prefix of all of them
	headerDeadCode     = headerDead + "Code"
	headerDeadCause    = headerDead + "Cause"
	headerDeadAttempts = headerDead + "Attempts"
	headerDeadWorker   = headerDead + "Worker"
	headerDeadRun      = headerDead + "Run"
	headerDeadSubject  = headerDead + "Subject"
	headerDeadWork     = headerDead + "Work"
	headerDeadStored   = headerDead + "Stored"
	headerDeadOmitted  = headerDead + "Omitted"
)

// maxCause is the most bytes of a cause, which may quote a peer.
const maxCause = 1024

func encodeDead(subj string, l DeadLetter) *nats.Msg {
	msg := &nats.Msg{Subject: subj, Data: l.Data, Header: api.PlainHeader(l.Header)}
	for k := range msg.Header {
		if strings.HasPrefix(k, headerDead) {
			delete(msg.Header, k)
		}
	}
	set := func(key, value string) {
		if value != "" {
			msg.Header.Set(key, headerText(value))
		}
	}
	number := func(key string, n uint64) {
		if n != 0 {
			set(key, strconv.FormatUint(n, 10))
		}
	}
	set(headerDeadCode, l.Code)
	set(headerDeadCause, clip.Cut(l.Cause, maxCause))
	number(headerDeadAttempts, uint64(max(l.Attempts, 0)))
	set(headerDeadWorker, l.Worker)
	set(headerDeadRun, l.Run)
	set(headerDeadSubject, l.Subject)
	number(headerDeadWork, l.Work)
	if !l.Stored.IsZero() {
		set(headerDeadStored, l.Stored.UTC().Format(time.RFC3339Nano))
	}
	number(headerDeadOmitted, uint64(max(l.Omitted, 0)))
	return msg
}

// decode decodes a dead letter. Other programs may have written to the stream, so headers
// that cannot be decoded are treated as missing; the subject must be valid.
func (d *Dead) decode(msg Message) (DeadLetter, error) {
	h := msg.Header
	if h.Get(headerDeadRetry) != "" {
		return DeadLetter{}, fmt.Errorf("decode dead letter %d: it is the permit to retry another one: %w", msg.Seq, ErrNotFound)
	}
	a, err := d.m.Parse(msg.Subject)
	if err != nil || a.Kind != subject.Dead {
		return DeadLetter{}, fmt.Errorf("decode dead letter %d: %q is no subject of one", msg.Seq, msg.Subject)
	}
	number := func(key string, bits int) uint64 {
		n, _ := strconv.ParseUint(h.Get(key), 10, bits)
		return n
	}
	stored, _ := time.Parse(time.RFC3339Nano, h.Get(headerDeadStored))
	l := DeadLetter{
		Entity: a.Entity, TaskID: a.ID,
		Code: h.Get(headerDeadCode), Cause: h.Get(headerDeadCause), Attempts: int(number(headerDeadAttempts, 31)),
		Worker: h.Get(headerDeadWorker), Run: h.Get(headerDeadRun),
		Subject: h.Get(headerDeadSubject), Work: number(headerDeadWork, 64), Stored: stored.UTC(),
		Omitted: int(number(headerDeadOmitted, 31)), Data: msg.Data, Seq: msg.Seq, Died: msg.Time,
	}
	for k, v := range api.PlainHeader(h) {
		if !strings.HasPrefix(k, headerDead) {
			if l.Header == nil {
				l.Header = nats.Header{}
			}
			l.Header[k] = v
		}
	}
	return l, nil
}

// headerText makes a text fit for a header: a single line.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
}
