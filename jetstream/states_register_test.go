package jetstream

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// The last messages of a run's two subjects are one record: what each may claim of the run.
func TestARunIsWhatItsTwoSubjectsSayTogether(t *testing.T) {
	t.Parallel()
	doc := func(seq uint64, status string) Message {
		return Message{Seq: seq, Header: nats.Header{HeaderStatus: {status}}}
	}
	reply := func(seq uint64, end string) Message {
		return Message{Seq: seq, Header: nats.Header{HeaderStatus: {"completed"}, HeaderEnd: {end}}}
	}
	deleted := Message{Seq: 4, Header: nats.Header{"KV-Operation": {"PURGE"}}}
	stray := Message{Seq: 9, Data: []byte(`{"stream":"AEE","seq":9}`)}
	for name, c := range map[string]struct {
		doc, reply Message
		seq, last  uint64
		replied    bool
	}{
		"no record":                    {},
		"a document":                   {doc: doc(3, "running"), seq: 3, last: 3},
		"an end and its reply":         {doc(3, "failed"), reply(5, ""), 3, 5, true},
		"tried again after the reply":  {doc(7, "running"), reply(5, ""), 7, 7, false},
		"a reply, and the end unread":  {doc(3, "running"), reply(5, ""), 3, 5, false},
		"a reply alone":                {Message{}, reply(5, "{}"), 5, 5, true},
		"a reply alone over a marker":  {deleted, reply(5, "{}"), 5, 5, true},
		"a reply that ends no run":     {Message{}, reply(5, ""), 0, 5, false},
		"a stray instead of the reply": {doc(3, "failed"), stray, 3, 9, false},
		"a stray alone":                {Message{}, stray, 9, 9, false},
		"a stray as the document":      {Message{Seq: 3, Data: stray.Data}, reply(5, ""), 3, 5, false},
	} {
		got, err := register(c.doc, c.reply)
		if got.Seq != c.seq || got.last != c.last || got.replied != c.replied || (err != nil) != (c.seq == 0) {
			t.Errorf("%s: the message %d, last %d, replied %t, %v", name, got.Seq, got.last, got.replied, err)
		}
	}
}
