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
	"github.com/aeemesh/aeemesh/mesh/internal/answers"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// durableStream sends the stream envelopes of a durable task and records what was
// sent. The envelopes go to the task's reply subject. Their numbers continue those of the
// checkpoint, so that a reader that begins later gets each envelope once.
//
// After a crash, text of an unfinished turn may have been sent that is in no checkpoint:
// it is read from the reply subject. A handler that calls [Run.SentText] continues after that
// text. For other handlers the mesh compares: replayed text is not sent again, and if the
// new text differs, an envelope with "restart": true says that the text of the turn
// begins anew.
type durableStream struct {
	r *Run

	mu       sync.Mutex
	seq      int    // of the last stream envelope
	text     string // of the turn that is not finished
	expected string // the part of text that a replay is still compared with
	repeated string // the text replayed so far

	unconfirmed []chunk // sent, not confirmed; in order
	foreign     bool    // a worker that had lost the run sent text in between
	gap         bool    // text of the turn is missing: this worker has no permission to read all replies
	sealed      bool
}

// chunk is a stream envelope whose storage is not confirmed.
type chunk struct {
	reply jetstream.Reply
	sent  *jetstream.Sent // nil: it has to be sent again
}

// maxUnconfirmed bounds the stream envelopes that are not confirmed. Beyond it a
// sender waits for the oldest.
const maxUnconfirmed = 256

// SentText returns the text of the unfinished turn that was already sent to the sender of
// a streamed task, by this owner or an earlier one. A handler that calls it continues
// from there, and does not send that text again.
func (r *Run) SentText() string {
	d := &r.stream
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expected, d.repeated = "", ""
	return d.text
}

// emit sends a stream envelope of a durable task. It does not need t.mu: the stream
// has its own lock.
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

// append sends more text, unless it replays text that was sent before. If there is no
// text to compare, append sends payload unchanged, or makes a payload if it is nil.
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

// sendRestart says that the text of the turn begins anew with the replayed text.
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
	entity, taskID := t.originalTask()
	chain, digest := t.handed.proof()
	reply, err := answers.Stored{
		Env: e, CBOR: t.cbor, Entity: entity, TaskID: taskID, MsgID: d.msgID(d.seq + 1), Chain: chain, ChainDigest: digest,
		Seq: d.seq + 1, Epoch: t.handed.epoch(d.r.Epoch()),
	}.Message()
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

// msgID returns the Nats-Msg-Id of a stream envelope. All owners of the run compute
// the same one from its record, and no other client can: a stream remembers an id for
// all subjects, so a client that guessed the id could keep this envelope out by
// publishing another reply with it.
func (d *durableStream) msgID(seq int) string {
	m := &d.r.cp.Load().Mesh
	mark := sha256.New()
	fmt.Fprintf(mark, "%d %s ", m.StoredAt.UnixNano(), d.r.id.Run)
	mark.Write(m.Task)
	return d.r.id.Run + "." + strconv.Itoa(seq) + "." + hex.EncodeToString(mark.Sum(nil)[:8])
}

// flush waits until all sent envelopes are stored.
func (d *durableStream) flush(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.confirm(ctx, len(d.unconfirmed))
}

// confirm waits until the oldest n envelopes are stored. If one was not stored, it
// sends that one and all later ones again, one by one, which keeps their order. d.mu
// is held.
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
			continue // send it again in the next pass
		case !l.records.temporary(err):
			return fmt.Errorf("stream of run %s: %w", d.r.id.Run, err)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, 2*time.Second)
	}
	return nil
}

// errNotSent stands for a stream envelope that the connection did not accept.
var errNotSent = errors.New("not sent")

// save writes the stream's position and the text of the turn into a checkpoint.
func (d *durableStream) save(c *state.Checkpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gap { // the next owner could not read it
		d.repeated = d.text
		if err := d.sendRestart(); err != nil {
			d.r.lane.host.log.Warn("text not withdrawn", "run", d.r.id.Run, "err", err)
		}
	}
	c.Mesh.Stream, c.Mesh.Told = d.seq, d.text
}

// resume sets the stream's position and text from a checkpoint.
func (d *durableStream) resume(c *state.Checkpoint) { d.seq, d.text = c.Mesh.Stream, c.Mesh.Told }

// saved is called after a checkpoint was stored: an empty SentText means that the turn is
// finished and its text is in the conversation.
func (d *durableStream) saved(before, after string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if after == "" {
		d.text = strings.TrimPrefix(d.text, before)
	}
}

// endTurn ends the turn. If expected text was not replayed, it sends a restart with
// the text that was. With seal it accepts no more envelopes.
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

// readStream reads from the reply subject what earlier owners have sent since the
// checkpoint c. A worker that may read the last reply only learns the last number from
// it; the text of the turn then begins anew.
func (r *Run) readStream(ctx context.Context, c *state.Checkpoint) error {
	l := r.lane
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	seq, text, gap := c.Mesh.Stream, c.Mesh.Told, false
	entity, taskID := r.task.originalTask()
	for msg, err := range l.cfg.Replies.Read(ctx, entity, taskID, 0) {
		if err != nil {
			return fmt.Errorf("read the stream of run %s: %w", r.id.Run, err)
		}
		e, _, err := wire.Decode(&nats.Msg{Data: msg.Data, Header: msg.Header}, l.host.node.limits)
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
