package stream

import (
	"context"
	"fmt"
	"math"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
)

// maxForged bounds the numbers that count of stream envelopes whose signature does not verify: the
// task continues with the next number.
const maxForged = math.MaxInt32

// Read reads from the reply subject of a task of an entity what earlier owners have sent since the
// checkpoint c. A worker that may read the last reply only learns the last number from it; the
// text of the turn then begins anew. Of an envelope whose signature does not verify only the
// number counts, so that the number is not used again.
func (d *Stream) Read(ctx context.Context, entity, taskID string, c *state.Checkpoint) error {
	seq, text, gap := c.Mesh.Stream, c.Mesh.Told, false
	used := seq // the highest number
	for msg, err := range d.lane.Replies.Streamed(ctx, entity, taskID) {
		if err != nil {
			return fmt.Errorf("read the stream of run %s: %w", d.task.RunID(), err)
		}
		e, _, err := wire.Decode(&nats.Msg{Data: msg.Data, Header: msg.Header}, d.lane.Limits)
		if err != nil || e.Type != envelope.TypeStream || e.From != d.lane.Entity {
			continue
		}
		var p struct {
			Seq int `json:"seq"`
		}
		var turn struct {
			Text    string `json:"text"`
			Restart bool   `json:"restart"`
		}
		if wire.ReadJSON(e.Payload, &p) != nil || p.Seq <= seq {
			continue
		}
		// Where signatures are optional, an unsigned envelope has any number. One that no record holds
		// counts only if it follows the highest before it.
		if int64(p.Seq) > wire.MaxCount && p.Seq > used+1 {
			continue
		}
		if _, err := d.lane.Verifier.Verify(e, msg.Time); err != nil {
			if p.Seq <= maxForged {
				used = max(used, p.Seq)
			}
			continue
		}
		used = max(used, p.Seq)
		gap = gap || p.Seq > seq+1
		seq = p.Seq
		if wire.ReadJSON(e.Payload, &turn) != nil {
			continue // a handler's own object
		}
		if turn.Restart {
			text, gap = "", false
		}
		text += turn.Text
	}
	if gap = gap || used > seq; gap {
		text = ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq, d.text, d.expected, d.gap, d.sealed = used, text, text, gap, false // sealed by a claim that was not stored
	return nil
}
