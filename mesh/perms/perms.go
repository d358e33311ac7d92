package perms

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
)

// Permissions are what a NATS user may do, in the words of the server's
// configuration.
type Permissions struct {
	Publish        []string       `json:"publish"`
	Subscribe      []string       `json:"subscribe"`
	AllowResponses AllowResponses `json:"allow_responses"`
}

// AllowResponses lets a user publish to the reply subjects of what it was
// sent. The server's own defaults, 1 message within 2 minutes, would cut
// streams and slow tasks off.
type AllowResponses struct {
	Max     int           `json:"max"` // messages to one reply subject; -1: any number
	Expires time.Duration `json:"expires"`
}

// answerTime is how long after its end the longest task may still be answered, as with E_TIMEOUT.
const answerTime = time.Minute

// InboxPrefix is the prefix of reply subjects of a connection that speaks as an
// entity. Each user has its own: who may subscribe to _INBOX.> reads the replies to
// everybody else, and may answer in their place.
func InboxPrefix(entity string) string { return "_INBOX." + subject.Escape(entity) }

// Worker are the least that a worker of the entity needs: to hear
// its lanes and the questions of NATS micro, to answer for as long as a task
// may take, into people's inboxes too, and to tell the bus about itself.
func Worker(m subject.Map, entity string, maxTimeout time.Duration) (Permissions, error) {
	live, ask, ctl, err := m.Lanes(entity)
	if err != nil {
		return Permissions{}, err
	}
	p := Permissions{
		// "subject queue" allows the queue group only, as the server writes it.
		Subscribe:      []string{live + " " + mesh.QueueGroup, ask + " " + mesh.QueueGroup, ctl},
		AllowResponses: AllowResponses{Max: -1, Expires: max(maxTimeout, mesh.DefaultMaxTimeout) + answerTime},
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

// alive is where a user asks whether a worker of the entity that has its task lives.
func alive(entity string) string {
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
		p.Publish = append(p.Publish, live, ask, ctl, alive(entity))
	}
	return p, nil
}
