package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/state"
)

// A Lane is what the streams of one agent's runs have in common.
type Lane struct {
	Entity    string          // the agent
	Context   context.Context // ends when nothing more may be sent
	Replies   *jetstream.Replies
	Limits    envelope.Limits
	Verifier  sign.Verifier    // of what earlier owners have sent
	Temporary func(error) bool // a retry of a publish may succeed
	Log       *slog.Logger
}

// A Task makes the stream envelopes of one task.
type Task interface {
	// Encode makes the stream envelope with the number seq, as it is stored.
	Encode(seq int, payload json.RawMessage) (jetstream.Reply, error)
	// RunID is the id of the task's run, for errors and the log.
	RunID() string
}

// Stream is the stream of one run while this worker owns it. Its methods may be called
// from many goroutines.
type Stream struct {
	lane *Lane
	task Task

	mu       sync.Mutex
	seq      int    // of the last stream envelope
	text     string // of the turn that is not finished
	expected string // the part of text that a replay is still compared with
	repeated string // the text replayed so far

	unconfirmed []chunk   // sent, not confirmed; in order
	again       time.Time // when Emit may try again to send what is held back
	mangled     bool      // the stored text is not that of the turn: it has to be sent anew
	gap         bool      // text of the turn is missing: this worker has no permission to read all replies
	sealed      bool
}

// Init sets the lane and the task of the stream. It is called before the first use.
func (d *Stream) Init(lane *Lane, task Task) { d.lane, d.task = lane, task }

// chunk is a stream envelope whose storage is not confirmed.
type chunk struct {
	reply jetstream.Reply
	event json.RawMessage // the payload, unless it is text
	conn  uint64          // the connection over which it was sent
	sent  *jetstream.Sent // nil: it is held back, or has to be sent again
	tried bool            // this worker has sent it, so it may be stored
	seq   uint64          // its sequence in the stream, once sendAgain knows it
	taken bool            // another envelope with its number is stored there
}

// maxUnconfirmed bounds the stream envelopes that are not confirmed. Beyond it a
// sender waits for the oldest.
const maxUnconfirmed = 256

// SentText returns the text of the unfinished turn that was already sent, by this owner of
// the run or an earlier one. A handler that calls it continues from there, so that text is
// not expected again.
func (d *Stream) SentText() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expected, d.repeated = "", ""
	return d.text
}

// Emit sends a stream envelope with the payload, a JSON object. It fails with
// [jetstream.ErrTooLarge], and sends nothing, if the envelope is larger than a message may be.
func (d *Stream) Emit(payload json.RawMessage) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sealed {
		return envelope.Errorf(envelope.CodeCancelled, "the task has ended")
	}
	d.catchUp()
	var members struct {
		Text    *string `json:"text"`
		Restart bool    `json:"restart"`
	}
	if json.Unmarshal(payload, &members) == nil && members.Text != nil {
		if members.Restart {
			return d.sendText(*members.Text, payload)
		}
		return d.append(*members.Text, payload)
	}
	return d.send(payload, slices.Clone(payload))
}

// append sends more text, unless it replays text that was sent before. If there is no
// text to compare, append sends payload unchanged.
func (d *Stream) append(text string, payload json.RawMessage) error {
	switch {
	case d.mangled && d.expected == "" || d.gap:
		return d.sendRestart(d.text + text)
	case d.expected == "":
		return d.sendText(d.text+text, payload)
	}
	repeated := d.repeated + text
	switch {
	case d.expected == repeated:
		d.expected, d.repeated = "", ""
		return nil
	case strings.HasPrefix(d.expected, repeated):
		d.repeated = repeated
		return nil
	case strings.HasPrefix(repeated, d.expected):
		return d.sendText(repeated, textPayload(repeated[len(d.expected):]))
	}
	return d.sendRestart(repeated)
}

// sendText sends payload, after which text is the text of the turn.
func (d *Stream) sendText(text string, payload json.RawMessage) error {
	if err := d.send(payload, nil); err != nil {
		return err
	}
	d.text, d.expected, d.repeated = text, "", ""
	return nil
}

// sendRestart says that the text of the turn begins anew with text.
func (d *Stream) sendRestart(text string) error {
	if err := d.sendParts(text, restart); err != nil {
		return err
	}
	d.text, d.expected, d.repeated, d.mangled, d.gap = text, "", "", false, false
	return nil
}

// sendParts sends the payload of a text. If it is too large for a message, it sends that of the
// first half, and the rest of the text after it.
func (d *Stream) sendParts(text string, payload func(string) json.RawMessage) error {
	err := d.send(payload(text), nil)
	half := clip.Cut(text, len(text)/2)
	if !errors.Is(err, jetstream.ErrTooLarge) || half == "" {
		return err
	}
	if err := d.sendParts(half, payload); err != nil {
		return err
	}
	return d.sendParts(text[len(half):], textPayload)
}

func textPayload(text string) json.RawMessage {
	return append(envelope.AppendString(append(make([]byte, 0, len(text)+16), `{"text":`...), text), '}')
}

func restart(text string) json.RawMessage {
	return append(envelope.AppendString([]byte(`{"restart":true,"text":`), text), '}')
}

// send numbers and publishes one stream envelope; event is its payload unless that is text. The
// envelope is held back if it could be stored before an earlier one. d.mu is held.
func (d *Stream) send(payload, event json.RawMessage) error {
	if len(d.unconfirmed) >= maxUnconfirmed {
		if err := d.confirm(d.lane.Context, 1); err != nil {
			return err
		}
	}
	reply, err := d.task.Encode(d.seq+1, payload)
	if err != nil {
		return err
	}
	c := chunk{reply: reply, event: event, conn: d.lane.Replies.Connection()}
	if d.overtakes(c.conn) {
		err = d.lane.Replies.Fits(reply)
	} else {
		c.sent, err = d.lane.Replies.PublishAsync(reply)
	}
	if errors.Is(err, jetstream.ErrTooLarge) {
		return fmt.Errorf("stream of run %s: %w", d.task.RunID(), err)
	}
	d.seq++
	c.tried = c.sent != nil
	d.unconfirmed = append(d.unconfirmed, c)
	return nil
}

// overtakes reports whether an envelope that is sent over a connection now could be stored before
// an earlier one, because that one is held back or may be lost.
func (d *Stream) overtakes(conn uint64) bool {
	n := len(d.unconfirmed)
	if n == 0 || conn == 0 {
		return conn == 0
	}
	last := d.unconfirmed[n-1]
	return last.sent == nil || last.conn != conn || last.sent.Failed()
}

// catchUp sends what is held back, once there is a connection. While the server does not store it,
// Emit goes on without it: catchUp tries for a second, and not again in the next one.
func (d *Stream) catchUp() {
	conn := d.lane.Replies.Connection()
	if conn == 0 || !d.overtakes(conn) || time.Now().Before(d.again) {
		return
	}
	ctx, cancel := context.WithTimeout(d.lane.Context, time.Second)
	defer cancel()
	if d.confirm(ctx, len(d.unconfirmed)) != nil { // Flush will say why
		d.again = time.Now().Add(time.Second)
	}
}

// Flush waits until all sent envelopes are stored. It withdraws text that this worker could
// not read, because the next owner could not read it either.
func (d *Stream) Flush(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flush(ctx)
}

func (d *Stream) flush(ctx context.Context) error {
	if d.gap {
		if err := d.sendRestart(d.text); err != nil {
			return err
		}
	}
	for len(d.unconfirmed) > 0 || d.mangled && d.text != "" {
		if d.mangled && d.text != "" {
			if err := d.sendParts(d.text, restart); err != nil {
				return err
			}
			d.mangled = false
		}
		if err := d.confirm(ctx, len(d.unconfirmed)); err != nil {
			return err
		}
	}
	return nil
}

// confirm waits until the oldest n envelopes are stored. If one may not be stored, it sends that
// one and all later ones again. Sending one again may do that, too: then fewer than n are left. d.mu
// is held.
func (d *Stream) confirm(ctx context.Context, n int) error {
	for ; n > 0 && len(d.unconfirmed) > 0; n-- {
		c := d.unconfirmed[0]
		if c.sent == nil {
			return d.sendAgain(ctx)
		}
		var err error
		if c.taken, err = c.sent.Wait(ctx); err != nil {
			return d.sendAgain(ctx)
		}
		d.unconfirmed = d.unconfirmed[1:]
		if c.taken {
			if err := d.replace(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendAgain sends the envelopes that are not confirmed again, one by one, until all are stored. One
// that is stored after a later one is replaced.
func (d *Stream) sendAgain(ctx context.Context) error {
	for i := range d.unconfirmed {
		d.unconfirmed[i].sent = nil // so that no other overtakes them
	}
	for i := range d.unconfirmed {
		if err := d.store(ctx, &d.unconfirmed[i]); err != nil {
			return err
		}
	}
	stored := d.unconfirmed
	d.unconfirmed = nil
	for i, c := range stored {
		if c.taken || slices.ContainsFunc(stored[i:], func(later chunk) bool { return later.seq < c.seq }) {
			if err := d.replace(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// store sends an envelope, again and again until it is stored.
func (d *Stream) store(ctx context.Context, c *chunk) (err error) {
	for wait := 50 * time.Millisecond; c.seq == 0; wait = min(2*wait, 2*time.Second) {
		var duplicate bool
		c.seq, duplicate, err = d.lane.Replies.Store(ctx, c.reply)
		c.taken = duplicate && !c.tried
		c.tried = true
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return fmt.Errorf("stream of run %s: %d envelopes are not stored: %w", d.task.RunID(), len(d.unconfirmed), context.Cause(ctx))
		case !d.lane.Temporary(err):
			return fmt.Errorf("stream of run %s: %w", d.task.RunID(), err)
		case !pause.For(ctx, wait):
			return context.Cause(ctx)
		}
	}
	return nil
}

// replace sends the payload of an envelope again that readers drop, because an envelope with a
// later number, or another one with the same number, is stored before it. Text is sent with the
// next restart, any other payload at once.
func (d *Stream) replace(c chunk) error {
	d.mangled = d.mangled || c.taken || c.event == nil
	if c.event == nil {
		return nil
	}
	return d.send(c.event, c.event)
}

// Save writes the stream's position and the text of the turn into a checkpoint.
func (d *Stream) Save(c *state.Checkpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.Mesh.Stream, c.Mesh.Told = d.seq, d.text
}

// Resume sets the stream's position and text from a checkpoint.
func (d *Stream) Resume(c *state.Checkpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq, d.text = c.Mesh.Stream, c.Mesh.Told
}

// Continue sets the number of the last stream envelope that an agent sent before it delegated the
// task: the next envelope gets the next number.
func (d *Stream) Continue(seq int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq = seq
}

// Saved is called after a checkpoint was stored: an empty SentText means that the turn is
// finished and its text is in the conversation.
func (d *Stream) Saved(before, after string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if after == "" {
		d.text = strings.TrimPrefix(d.text, before)
	}
}

// EndTurn ends the turn. If expected text was not replayed, it sends a restart with
// the text that was. With seal it accepts no more envelopes.
func (d *Stream) EndTurn(seal bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sealed {
		return nil
	}
	var err error
	switch {
	case d.expected != "":
		err = d.sendRestart(d.repeated)
	case d.mangled && d.text != "" || d.gap:
		err = d.sendRestart(d.text)
	}
	d.sealed = d.sealed || seal
	return err
}

// Seal ends the stream of this worker, and waits until all of it is stored: the next
// owner continues its numbers.
func (d *Stream) Seal(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sealed = true
	return d.flush(ctx)
}
