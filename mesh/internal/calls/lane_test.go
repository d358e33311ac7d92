package calls

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// What a node knew of an agent's lane before it lost the permission to look is not remembered on.
func TestALookThatIsDeniedSaysNothingOfTheLane(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "x", Password: "x", Permissions: &natsd.Permissions{Publish: natsd.Subjects{Allow: []string{"_INBOX.>"}}, Subscribe: natsd.Subjects{Allow: []string{"_INBOX.>"}}}},
	}})
	js, err := natsjs.New(natstest.Conn(t, srv, nats.UserInfo("x", "x"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})))
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{Stores: &client.Stores{Available: func() bool { return true }, Queue: jetstream.NewQueue(js, subject.Map{})}}
	n.lanes.known = map[string]cachedLane{"agent.helper": {durable: true, until: time.Now().Add(-time.Second)}}
	if durable, err := n.hasLane(t.Context(), "agent.helper"); durable || !errors.Is(err, jetstream.ErrDenied) {
		t.Errorf("the look says %v, %v", durable, err)
	}
	if durable, err := n.hasLane(t.Context(), "agent.helper"); durable || err != nil {
		t.Errorf("what is remembered says %v, %v", durable, err)
	}
}
