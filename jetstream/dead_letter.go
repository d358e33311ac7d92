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
	headerDeadBefore   = headerDead + "Before" // the earlier letters of the subject, one in each value: see earlierLetter
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

// maxEarlier bounds the earlier letters of its subject that a letter names.
const maxEarlier = 16

// An earlierLetter identifies a letter in a later letter of its subject.
type earlierLetter struct {
	seq, work uint64
	stored    time.Time // zero: not known
	code      string
}

func (e earlierLetter) String() string {
	text := strconv.FormatUint(e.seq, 10) + " " + strconv.FormatUint(e.work, 10) + " "
	if !e.stored.IsZero() {
		text += e.stored.UTC().Format(time.RFC3339Nano) + " "
	}
	return text + e.code
}

// is reports whether a letter is the same: about the same message, with the same code. A queue
// that was recreated, or restored from an older copy, gives another message the same sequence.
func (e earlierLetter) is(l DeadLetter) bool {
	other := !e.stored.IsZero() && !l.Stored.IsZero() && !e.stored.Equal(l.Stored)
	return e.work == l.Work && e.code == headerText(l.Code) && !other
}

// earlier returns a letter and those that it names, the last one first.
func (d *Dead) earlier(msg Message) (all []earlierLetter) {
	l, err := d.decode(msg)
	if err != nil {
		return nil // not written by the mesh
	}
	if l.Work != 0 {
		all = append(all, earlierLetter{l.Seq, l.Work, l.Stored, l.Code})
	}
	for _, text := range msg.Header[headerDeadBefore] {
		seq, rest, _ := strings.Cut(text, " ")
		work, code, _ := strings.Cut(rest, " ")
		stored, err := time.Parse(time.RFC3339Nano, code[:max(0, strings.IndexByte(code, ' '))])
		if err == nil {
			_, code, _ = strings.Cut(code, " ")
		}
		e := earlierLetter{stored: stored, code: code}
		e.seq, _ = strconv.ParseUint(seq, 10, 64)
		e.work, _ = strconv.ParseUint(work, 10, 64)
		if e.seq != 0 && e.work != 0 && len(all) < maxEarlier {
			all = append(all, e)
		}
	}
	return all
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
