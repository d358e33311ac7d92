package inspect_test

import (
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/inspect"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A hub and a leaf node with JetStream domains of their own share the subjects of one account. With
// the mesh's streams in one domain a task is stored once, with streams in both it is stored twice.
func TestCopiesCountsTheStreamsOfBothDomains(t *testing.T) {
	t.Parallel()
	hub, leaf := natstest.Leaf(t, 0)
	ctx := testContext(t)
	only := jetstream.Options{Only: []string{jetstream.StreamWork}}
	hubJS, leafJS := connect(t, hub), connect(t, leaf)
	copies := func(js natsjs.JetStream) int {
		n, err := inspect.Copies(ctx, js.Conn(), subject.Map{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := copies(leafJS); n != 0 {
		t.Errorf("%d without streams", n)
	}
	if _, err := jetstream.Apply(ctx, hubJS, only); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the leaf's client reaches the hub's stream", func() bool { return copies(leafJS) == 1 })
	// Apply refuses to make the second one.
	if _, err := leafJS.CreateStream(ctx, natsjs.StreamConfig{Name: jetstream.StreamWork, Subjects: []string{"aee.work.>"}}); err != nil {
		t.Fatal(err)
	}
	for name, js := range map[string]natsjs.JetStream{"hub": hubJS, "leaf": leafJS} {
		natstest.Eventually(t, "both streams answer the client of the "+name, func() bool { return copies(js) == 2 })
	}
	for _, js := range []natsjs.JetStream{hubJS, leafJS} {
		if s, err := js.Stream(ctx, jetstream.StreamWork); err != nil || s.CachedInfo().State.Msgs != 0 {
			t.Errorf("it stored something: %v", err)
		}
	}
}
