package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// durableStream is what the sender of a durable task was told in stream envelopes. They
// go to the task's reply subject, numbered on from the checkpoint, so that who
// reads them later, or joins in the middle, has all of them once.
//
// After a crash the text of an unfinished turn has been told that no checkpoint
// knows: it is read from the reply subject. A handler that asks for it ([Run.Told])
// goes on from there. For any other the mesh compares: what comes again is not
// told again, and where the new text differs an envelope with "restart": true
// says that the text of the turn begins anew.
type durableStream struct {
	r *Run

	mu       sync.Mutex
	seq      int    // of the last stream envelope
	text     string // of the turn that is not finished
	expected string // of text, what is still compared with what comes again
	repeated string // what has come again so far

	unconfirmed []chunk // sent, and not known to be stored; in order
	foreign     bool    // a worker that had lost the run told something in between
	gap         bool    // text of the turn was told that this worker may not read
	sealed      bool
}

// chunk is a stream envelope on its way.
type chunk struct {
	reply jetstream.Reply
	sent  *jetstream.Sent // nil: it has to be sent again
}

// maxUnconfirmed is how many stream envelopes may be on their way. Beyond it who
// emits waits for the oldest.
const maxUnconfirmed = 256

// Told is the text of the unfinished turn that the sender of a streamed task has
// been sent already: by the owner before, as far as it came, and by this one. A
// handler that asks continues from there, and does not send that text again.
func (r *Run) Told() string {
	d := &r.stream
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expected, d.repeated = "", ""
	return d.text
}

// emit sends a stream envelope of a durable task. t.mu is not needed: told has a
// lock of its own.
func (d *durableStream) emit(payload json.RawMessage) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sealed {
		return envelope.Errorf(envelope.CodeCancelled, "the task has ended")
	}
	var members struct {
		Text    *string `json:"text"`
		Restart bool    `json:"restart"`
	}
	if json.Unmarshal(payload, &members) == nil && members.Text != nil {
		if members.Restart {
			d.expected, d.repeated, d.text = "", "", *members.Text
			return d.send(payload)
		}
		return d.append(*members.Text, payload)
	}
	return d.send(payload)
}

// append tells more text, unless it was told before. Payload is what to send where
// nothing is to be compared; nil makes one.
func (d *durableStream) append(text string, payload json.RawMessage) error {
	if d.foreign || d.gap {
		d.foreign, d.gap = false, false
		d.text += text
		return d.send(restart(d.text))
	}
	if d.expected == "" {
		d.text += text
		if payload == nil {
			payload = textPayload(text)
		}
		return d.send(payload)
	}
	d.repeated += text
	switch {
	case strings.HasPrefix(d.expected, d.repeated):
		if d.expected == d.repeated {
			d.expected, d.repeated = "", ""
		}
		return nil
	case strings.HasPrefix(d.repeated, d.expected):
		rest := d.repeated[len(d.expected):]
		d.text, d.expected, d.repeated = d.repeated, "", ""
		return d.send(textPayload(rest))
	}
	return d.sendRestart()
}

// sendRestart says that the text of the turn begins anew with what has come again.
func (d *durableStream) sendRestart() error {
	d.text, d.expected, d.repeated, d.foreign, d.gap = d.repeated, "", "", false, false
	return d.send(restart(d.text))
}

func textPayload(text string) json.RawMessage {
	return append(envelope.AppendString(append(make([]byte, 0, len(text)+16), `{"text":`...), text), '}')
}

func restart(text string) json.RawMessage {
	return append(envelope.AppendString([]byte(`{"restart":true,"text":`), text), '}')
}

// send numbers, signs and publishes one stream envelope. d.mu is held.
func (d *durableStream) send(payload json.RawMessage) error {
	t, l := d.r.task, d.r.lane
	numbered, err := withSeq(payload, d.seq+1)
	if err != nil {
		return err
	}
	e := t.answer(envelope.TypeStream, numbered)
	e.From = l.host.Entity
	t.span.inject(e)
	if s := l.host.Signer; s != nil {
		if err := s.Sign(e); err != nil {
			return err
		}
	}
	entity, taskID := t.answered()
	reply, err := storedReply{
		env: e, cbor: t.cbor, entity: entity, taskID: taskID, msgID: d.msgID(d.seq + 1), handed: t.handed,
		seq: d.seq + 1, epoch: t.handed.epoch(d.r.Epoch()),
	}.message()
	if err != nil {
		return fmt.Errorf("encode stream envelope: %w", err)
	}
	d.seq++
	sent, _ := l.cfg.Replies.PublishAsync(reply) // flush sends it again if it could not be sent
	d.unconfirmed = append(d.unconfirmed, chunk{reply, sent})
	if len(d.unconfirmed) > maxUnconfirmed {
		return d.confirm(l.ctx, 1)
	}
	return nil
}

// msgID is the Nats-Msg-Id of a stream envelope: the same for all owners of the run, who
// share its record, and for nobody else. Who may publish other replies could else keep
// this one out of the stream, since a stream knows an id whatever the subject is.
func (d *durableStream) msgID(seq int) string {
	m := &d.r.cp.Load().Mesh
	mark := sha256.New()
	fmt.Fprintf(mark, "%d %s ", m.StoredAt.UnixNano(), d.r.id.Run)
	mark.Write(m.Task)
	return d.r.id.Run + "." + strconv.Itoa(seq) + "." + hex.EncodeToString(mark.Sum(nil)[:8])
}

// flush waits until all that was told is stored.
func (d *durableStream) flush(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.confirm(ctx, len(d.unconfirmed))
}

// confirm waits until the oldest n are stored, and sends again what was not:
// that and all behind it, one after the other, so that the order stays. d.mu is
// held.
func (d *durableStream) confirm(ctx context.Context, n int) error {
	l := d.r.lane
	again := false
	for wait := 50 * time.Millisecond; n > 0; {
		c := &d.unconfirmed[0]
		err := errNotSent
		first := !again && c.sent != nil
		if first {
			var duplicate bool
			if duplicate, err = c.sent.Wait(ctx); duplicate {
				d.foreign = true
			}
			c.sent = nil
		} else if again = true; true {
			n = len(d.unconfirmed)
			err = l.cfg.Replies.Publish(ctx, c.reply)
		}
		switch {
		case err == nil:
			d.unconfirmed = d.unconfirmed[1:]
			n--
			wait = 50 * time.Millisecond
			continue
		case ctx.Err() != nil:
			return fmt.Errorf("stream of run %s: %d envelopes are not stored: %w", d.r.id.Run, len(d.unconfirmed), context.Cause(ctx))
		case first:
			continue // now again
		case !l.passing(err):
			return fmt.Errorf("stream of run %s: %w", d.r.id.Run, err)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, 2*time.Second)
	}
	return nil
}

// errNotSent stands for a stream envelope that could not be handed to the
// connection.
var errNotSent = errors.New("not sent")

// save writes into a checkpoint how far the telling has come.
func (d *durableStream) save(c *state.Checkpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gap { // the next owner would not see it
		d.repeated = d.text
		if err := d.sendRestart(); err != nil {
			d.r.lane.host.log.Warn("text not withdrawn", "run", d.r.id.Run, "err", err)
		}
	}
	c.Mesh.Stream, c.Mesh.Told = d.seq, d.text
}

// resume takes over from a checkpoint how far the telling has come.
func (d *durableStream) resume(c *state.Checkpoint) { d.seq, d.text = c.Mesh.Stream, c.Mesh.Told }

// saved hears what of that was stored: an empty Told means that the turn is
// finished, and its text in the conversation.
func (d *durableStream) saved(before, after string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if after == "" {
		d.text = strings.TrimPrefix(d.text, before)
	}
}

// endTurn ends the turn: what was to come again and did not is taken back.
func (d *durableStream) endTurn(seal bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sealed {
		return nil
	}
	var err error
	if d.expected != "" || d.foreign && d.text != "" || d.gap {
		if d.expected == "" {
			d.repeated = d.text
		}
		err = d.sendRestart()
	}
	d.sealed = d.sealed || seal
	return err
}

// readStream reads from the reply subject what the owners before have told since
// the checkpoint c. A worker that may read the last reply only knows by it how far
// they have come; the text of the turn then begins anew.
func (r *Run) readStream(ctx context.Context, c *state.Checkpoint) error {
	l := r.lane
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	seq, text, gap := c.Mesh.Stream, c.Mesh.Told, false
	entity, taskID := r.task.answered()
	for msg, err := range l.cfg.Replies.Read(ctx, entity, taskID, 0) {
		if err != nil {
			return fmt.Errorf("read the stream of run %s: %w", r.id.Run, err)
		}
		e, _, err := l.host.node.decode(&nats.Msg{Data: msg.Data, Header: msg.Header})
		if err != nil || e.Type != envelope.TypeStream || e.From != l.host.Entity {
			continue
		}
		var p struct {
			Seq     int    `json:"seq"`
			Text    string `json:"text"`
			Restart bool   `json:"restart"`
		}
		if json.Unmarshal(e.Payload, &p) != nil || p.Seq <= seq {
			continue
		}
		gap = gap || p.Seq > seq+1
		if p.Restart {
			text, gap = "", false
		}
		seq = p.Seq
		text += p.Text
	}
	if gap {
		text = ""
	}
	d := &r.stream
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq, d.text, d.expected, d.gap = seq, text, text, gap
	return nil
}
