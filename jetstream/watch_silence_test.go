package jetstream_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// JetStream answers a watch no more, as where a cluster has no quorum: its request ends at
// the time-out that the whole read has, too. Finding D1 of the reliability review: where
// both came together, the error was lost, and the worker panicked. The watch goes on, and
// reports what changed meanwhile.
func TestWatchOutlastsAJetStreamThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	js := connect(t, srv)
	apply(t, js, jetstream.Options{})
	put(t, jetstream.NewKeys(js, subject.Map{}), "k", "before")
	o := natstest.NewOutage(t, srv)
	nc := natstest.Conn(t, srv)
	w := startWatch(t, jetstream.NewKeys(o.JetStream(t, nc), subject.Map{}))
	waitFor(t, "the record", w.is(map[string]string{"k": "before"}))
	o.Silence(true)
	put(t, jetstream.NewKeys(js, subject.Map{}), "k", "meanwhile")
	waitFor(t, "a request after one that ended without an answer", func() bool { return o.Ignored() >= 2 })
	o.Silence(false)
	waitFor(t, "what changed meanwhile", w.is(map[string]string{"k": "meanwhile"}))
}
