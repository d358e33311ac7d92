package perms

import (
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
)

// Permissions are what a NATS user may do, in the words of the server's
// configuration.
//
// The server's allow_responses is not among them. It lifts a user's permissions for every
// reply subject that the user is sent, and the server does not hold reply subjects to the
// sender's permissions. A user who may send something to itself, or has a friend who may, so
// publishes anywhere, deny lists included.
type Permissions struct {
	Publish   []string `json:"publish"`
	Subscribe []string `json:"subscribe"`
}

// answers returns the subjects on which workers answer: all inboxes, and those of requests from
// other accounts. Inboxes are random, so a worker can answer only requests that it has received.
func answers(inboxPrefixes []string) []string {
	all := []string{strings.TrimSuffix(nats.InboxPrefix, ".") + ".>", "_R_.>"}
	for _, prefix := range inboxPrefixes {
		if p := prefix + ".>"; !subject.Covers(all[0], p) {
			all = append(all, p)
		}
	}
	return all
}

// InboxPrefix is the prefix of reply subjects of a connection that speaks as an entity. Each user
// has its own prefix: a user who may subscribe to _INBOX.> reads the replies to all others, and
// may answer in their place.
func InboxPrefix(entity string) string { return "_INBOX." + subject.Escape(entity) }

// Worker returns the smallest set of permissions for a worker of the entity: it subscribes to its
// lanes and to the requests of NATS micro, answers, publishes to people's inboxes, and publishes
// its events on the bus. inboxPrefixes are the inbox prefixes of senders that are not below
// _INBOX.
func Worker(m subject.Map, entity string, inboxPrefixes ...string) (Permissions, error) {
	live, ask, ctl, err := m.Lanes(entity)
	if err != nil {
		return Permissions{}, err
	}
	p := Permissions{
		// "subject queue" allows the queue group only, as the server writes it.
		Subscribe: []string{live + " " + mesh.QueueGroup, ask + " " + mesh.QueueGroup, ctl},
		Publish:   answers(inboxPrefixes),
	}
	name := subject.ServiceName(entity)
	all := micro.APIPrefix + ".*" // PING, INFO and STATS
	p.Subscribe = append(p.Subscribe, all, all+"."+name, all+"."+name+".*")
	events, err := m.Bus("mesh.x") // of agents, tasks, runs, and alerts
	if err != nil {
		return Permissions{}, err
	}
	p.Publish = append(p.Publish, strings.TrimSuffix(events, "x")+"*")
	// People's inboxes: tasks for them, and answers to tasks that came without a reply
	// subject.
	anyone, err := m.Human("x")
	if err != nil {
		return Permissions{}, err
	}
	p.Publish = append(p.Publish, strings.TrimSuffix(anyone, "x")+">")
	return p, nil
}

// pingSubject is where a user asks whether a worker of the entity that has its task lives.
func pingSubject(entity string) string {
	return micro.APIPrefix + "." + micro.PingVerb.String() + "." + subject.ServiceName(entity) + ".*"
}

// Client are the least that a sender needs which talks to the
// given entities, under an inbox prefix of its own.
func Client(m subject.Map, inboxPrefix string, entities ...string) (Permissions, error) {
	p := Permissions{Subscribe: []string{inboxPrefix + ".>"}}
	for _, entity := range entities {
		live, ask, ctl, err := m.Lanes(entity)
		if err != nil {
			return Permissions{}, err
		}
		p.Publish = append(p.Publish, live, ask, ctl, pingSubject(entity))
	}
	return p, nil
}
