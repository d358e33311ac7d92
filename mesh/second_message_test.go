package mesh

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/jetstream"
)

// While a worker has a run, a second message of it is acked only if the queue has the first one:
// where the first may be gone, the second may be all that brings the run back.
func TestASecondMessageIsAckedIfTheFirstIsThere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fenced  bool // the worker may not read messages by their sequence
		another bool // the message has another task
		said    string
	}{
		"the first is there":     {said: "+ACK"},
		"the first may be there": {fenced: true, said: "-NAK"},
		"of another task":        {another: true, said: "+ACK"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, ctx, _, r := begunRun(t)
			l := r.lane
			task := r.task.Envelope.Clone()
			if test.another {
				task.Payload = json.RawMessage(`{"another":true}`)
			}
			data, err := task.AppendJSON(nil)
			if err != nil {
				t.Fatal(err)
			}
			acks := make(chan *nats.Msg, 100)
			sub, err := node.conn.ChanSubscribe("$JS.ACK."+jetstream.StreamWork+".>", acks)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
			if test.fenced {
				l.cfg.Queue.Fence()
			}
			seq := r.hold.Seq + 1
			ack := strings.Split(r.hold.AckSubject, ".")
			ack[5], ack[6] = fmt.Sprint(seq), fmt.Sprint(seq)
			delivery, err := l.cfg.Queue.Adopt("agent.x", strings.Join(ack, "."))
			if err != nil {
				t.Fatal(err)
			}
			delivery.Data, delivery.Stored = data, time.Now()
			hold := l.hold(delivery)
			l.deliveries.second(newRun(l, &Task{Envelope: task, host: l.host}, hold))
			hold.tally.add(-1) // see lane.deliver
			if err := node.conn.FlushWithContext(ctx); err != nil {
				t.Fatal(err)
			}
			said := ""
			for len(acks) > 0 {
				if verb := string((<-acks).Data[:4]); verb != "+WPI" {
					said += verb
				}
			}
			if said != test.said {
				t.Errorf("of the second message it says %q, not %q", said, test.said)
			}
		})
	}
}
