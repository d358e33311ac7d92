package perms

import (
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// Call returns the least permissions with which a worker can send tasks to the given
// entities, as a team and an agent that delegates do, in addition to [Worker]: to send
// live tasks, and to cancel them. With durable, and in addition to [DurableWorker]: to
// queue tasks, to see whether the entities have the durable lane, and to receive their
// replies. A worker that calls people needs [PeopleCall].
func Call(m subject.Map, durable bool, entities ...string) (Permissions, error) {
	g := &grant{m: m}
	for _, entity := range entities {
		live, _, ctl, err := m.Lanes(entity)
		if err != nil {
			return Permissions{}, err
		}
		if subject.IsPerson(entity) {
			continue
		}
		g.publish(live, ctl, pingSubject(entity))
		if !durable {
			continue
		}
		replies := g.of(m.RepliesTo(entity))
		g.publish(g.of(m.WorkOf(entity)))
		g.read(g.stream(jetstream.StreamReply), replies)
		g.read(g.bucket(jetstream.BucketState), jetstream.ReplySubjects(m, entity))
		g.read(g.bucket(jetstream.BucketLanes), g.key(jetstream.BucketLanes, subject.Escape(entity)))
		g.subscribe(replies)
	}
	return g.done()
}

// Takeover are what a worker needs to answer durable tasks that were
// sent to the given entities and handed over from there, besides
// [DurableWorker]: the answer goes where the task's sender waits for
// it, also after further hand-overs. Over the live lane it needs nothing.
func Takeover(m subject.Map, from ...string) (Permissions, error) {
	g := &grant{m: m}
	for _, entity := range from {
		g.publish(g.of(m.RepliesTo(entity)))
	}
	return g.done()
}
