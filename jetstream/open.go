package jetstream

import (
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream/counter"
	"github.com/aeemesh/aeemesh/jetstream/internal/api"
	"github.com/aeemesh/aeemesh/jetstream/slot"
)

// New returns the JetStream of a connection, in a domain if it is not "". It does no I/O. A message
// that is published without waiting ([Replies.PublishAsync]) fails after 5 s without an
// acknowledgement: nats.go's own default is to remember it for ever, and to publish no further one
// without a delay when 4,000 are remembered.
func New(conn *nats.Conn, domain string) (natsjs.JetStream, error) {
	lost := natsjs.WithPublishAsyncTimeout(api.RequestTimeout)
	if domain != "" {
		return natsjs.NewWithDomain(conn, domain, lost)
	}
	return natsjs.New(conn, lost)
}

// Stores are the stores of one mesh. Whether their streams and buckets exist
// shows when a store is used; [LaneLacks] and [Plan] check that.
type Stores struct {
	// The durable lane.
	Queue   *Queue      // tasks
	Replies *Replies    // streamed text, and replies of others than runs
	Dead    *Dead       // tasks that failed for good
	States  *States     // checkpoints of runs
	Clock   *Clock      // the server's time
	Inbox   *Inbox      // tasks for people
	Slots   *slot.Store // limits across the mesh, with [slot.DefaultLease]

	Counters    *counter.Counters // rates and costs, counted for the whole mesh
	Journal     *Journal          // recent envelopes
	Refutations *Refutations      // refuted envelopes
	Handoffs    *States           // runs that arrive from other platforms
	Agents      *Agents           // the registry of agents
	Keys        *Records          // shared keys
}

// Open returns all stores of m's mesh except the replay window (package seen), whose length the
// caller chooses. It does no I/O. A node that serves agents passes a js from [Gather].
func Open(js natsjs.JetStream, m subject.Map) *Stores {
	return &Stores{
		Queue: NewQueue(js, m), Replies: NewReplies(js, m), Dead: NewDead(js, m),
		States: NewStates(js, m), Clock: NewClock(js, m), Inbox: NewInbox(js, m), Slots: slot.NewStore(js, m, 0),
		Counters: counter.New(js, m), Journal: NewJournal(js, m), Refutations: NewRefutations(js, m),
		Handoffs: NewHandoffs(js, m), Agents: NewAgents(js, m), Keys: NewKeys(js, m),
	}
}
