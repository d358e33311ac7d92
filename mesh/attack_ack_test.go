package mesh_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// consumers of the attacker's worker, by stream.
var consumers = map[string]string{
	jetstream.StreamWork:     "normal-" + subject.Escape(attacker),
	jetstream.StreamSchedule: "due-" + subject.Escape(attacker),
}

// acknowledge has the attacker say a word about a message of a stream to its own consumer. The
// server compares neither the reply subject with the attacker's permissions, nor the message
// with what it has delivered to the attacker.
func (a *attack) acknowledge(stream, word string, seq uint64, reply string) {
	a.t.Helper()
	m := &nats.Msg{Subject: fmt.Sprintf("$JS.ACK.%s.%s.1.%d.1.1.0", stream, consumers[stream], seq), Reply: reply, Data: []byte(word)}
	if err := a.x.PublishMsg(m); err != nil {
		a.t.Fatal(err)
	}
}

// acknowledged waits until the server has processed what the attacker has said to a consumer.
func (a *attack) acknowledged(stream string) {
	a.t.Helper()
	done := a.hears("done")
	a.acknowledge(stream, "+WPI", 1, done.Subject) // the server answers in order
	if _, err := done.NextMsg(patience); err != nil {
		a.t.Fatal(err)
	}
	if err := done.Unsubscribe(); err != nil {
		a.t.Fatal(err)
	}
}

func (a *attack) hears(name string) *nats.Subscription {
	a.t.Helper()
	sub, err := a.x.SubscribeSync(perms.InboxPrefix(attacker) + "." + name)
	if err != nil {
		a.t.Fatal(err)
	}
	return sub
}

// The server answers the acknowledgement of a delivery with a message that has neither body
// nor headers, on any subject that a worker names. Such a message hides nothing that another
// agent has stored.
func TestAttackAnEmptyAnswerHidesNothing(t *testing.T) {
	t.Parallel()
	a := newAttack(t)
	a.furnish(victim, private)
	a.furnish(attacker, "own")
	before := a.effective()
	for target := range a.targets() {
		a.acknowledge(jetstream.StreamWork, "+WPI", 1, target)
	}
	a.acknowledged(jetstream.StreamWork)
	s, err := a.admin.Stream(t.Context(), "KV_"+jetstream.BucketState)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.GetLastMsgForSubject(t.Context(), "$KV."+jetstream.BucketState+"."+victim+".small"); err != nil || len(m.Data) > 0 {
		t.Fatalf("the attacker has covered nothing: %v, %v", m, err)
	}
	a.unforged("empty answers", before)
}

// From a work queue, nats-server removes a message that a consumer is told to acknowledge,
// also one that it has not delivered, unless another consumer still needs the message. What a
// worker says to its own consumers removes no task of another agent.
func TestAttackAcknowledgingOthersTasksRemovesNone(t *testing.T) {
	t.Parallel()
	a := newAttack(t)
	a.furnish(victim, private)
	a.furnish(attacker, "own")
	due, err := a.m.Due("normal", attacker)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.admin.Publish(t.Context(), due, []byte("own")); err != nil { // a delayed task of a friend's
		t.Fatal(err)
	}
	before := a.stored()
	drawn := a.hears("drawn")
	for stream, consumer := range consumers {
		// The consumer must have delivered a message that was stored after the others.
		if err := a.x.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+consumer, drawn.Subject, []byte(`{"batch":9,"no_wait":true,"group":"topology-6"}`)); err != nil {
			t.Fatal(err)
		}
		var last uint64
		for {
			m, err := drawn.NextMsg(patience)
			if err != nil {
				t.Fatal(err)
			}
			meta, err := m.Metadata()
			if err != nil {
				break // the answer of the server that there are no more
			}
			last = meta.Sequence.Stream
		}
		if last < 3 {
			t.Fatalf("%s has delivered %d last", stream, last)
		}
		for seq := uint64(1); seq < last; seq++ {
			for _, word := range []string{"-NAK", "+TERM", "+ACK"} {
				a.acknowledge(stream, word, seq, "")
			}
		}
		a.acknowledged(stream)
	}
	a.unharmed("acknowledging", before, a.stored())
}
