package jetstream_test

import (
	"errors"
	"strings"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A hub and a leaf node with JetStream domains of their own share the subjects of an account: with
// two work queues each task would be done twice. So the second is not made, and neither is the
// rest of the mesh. Meshes of different prefixes may be in different domains.
func TestApplyMakesNoSecondMeshInAnotherDomain(t *testing.T) {
	t.Parallel()
	hub, leaf := natstest.Leaf(t, 4<<30)
	atHub, atLeaf := connect(t, hub), connect(t, leaf)
	apply(t, atHub, jetstream.Options{})
	natstest.Eventually(t, "the leaf node refuses", func() bool {
		_, err := jetstream.Apply(testContext(t), atLeaf, jetstream.Options{Only: []string{jetstream.StreamWork}})
		if err == nil { // the link is not up yet
			err = atLeaf.DeleteStream(testContext(t), jetstream.StreamWork)
		}
		return errors.Is(err, jetstream.ErrElsewhere)
	})
	if report, err := jetstream.Apply(testContext(t), atLeaf, jetstream.Options{}); !errors.Is(err, jetstream.ErrElsewhere) || len(report) > 0 || len(configs(t, atLeaf)) > 0 {
		t.Errorf("%v, made %q, there are %v", err, words(report), configs(t, atLeaf))
	}
	inHub, err := natsjs.NewWithDomain(atLeaf.Conn(), "hub")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range apply(t, inHub, jetstream.Options{}) {
		if c.Action != jetstream.ActionNone {
			t.Errorf("by the name of the domain: %s", c)
		}
	}
	acme, err := subject.New("acme")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, atLeaf, jetstream.Options{Map: acme})
	apply(t, atLeaf, jetstream.Options{Map: acme, Replicas: 1})
}

// A leaf node that stands alone says whether there is room, as every server that does: it names
// itself as its cluster.
func TestApplyOnASmallLeafNode(t *testing.T) {
	t.Parallel()
	_, leaf := natstest.Leaf(t, 700<<20)
	js := connect(t, leaf)
	report, err := jetstream.Apply(testContext(t), js, jetstream.Options{})
	if !errors.Is(err, jetstream.ErrNoRoom) || !strings.HasPrefix(err.Error(), "the server has room for 699 MiB more of storage, and 2200 MiB are needed: nothing was done") {
		t.Errorf("got %v", err)
	}
	if len(report) > 0 || len(configs(t, js)) > 0 {
		t.Errorf("made %q, there are %v", words(report), configs(t, js))
	}
}
