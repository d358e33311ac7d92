package perms

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// jsAPI is where JetStream is asked, outside of a domain.
const jsAPI = "$JS.API."

// A grant collects permissions, and what kept it from naming one.
type grant struct {
	Permissions
	m    subject.Map
	errs []error
}

func (g *grant) publish(subjects ...string)   { g.Publish = append(g.Publish, subjects...) }
func (g *grant) subscribe(subjects ...string) { g.Subscribe = append(g.Subscribe, subjects...) }

// of is a pattern that a map of subjects makes.
func (g *grant) of(pattern string, err error) string {
	g.errs = append(g.errs, err)
	return pattern
}

// read permits to read the last message on each subject that a pattern matches. The
// stream's other requests, such as STREAM.MSG.GET, read all of it.
func (g *grant) read(stream, pattern string) {
	g.publish(jsAPI + "DIRECT.GET." + stream + "." + pattern)
}

// look permits to ask for a stream's numbers and the names of its subjects, which are
// ids, and nothing of what it holds.
func (g *grant) look(streams ...string) {
	for _, s := range streams {
		g.publish(jsAPI + "STREAM.INFO." + s)
	}
}

func (g *grant) done() (Permissions, error) { return g.Permissions, errors.Join(g.errs...) }

// stream, bucket and key add the mesh's suffix to a name.
func (g *grant) stream(name string) string { return name + g.m.Suffix() }
func (g *grant) bucket(name string) string { return "KV_" + name + g.m.Suffix() }
func (g *grant) key(bucket, key string) string {
	return "$KV." + bucket + g.m.Suffix() + "." + key
}

// DurableWorker are what a worker of the entity needs for the
// durable lane, besides [Worker]: to draw its tasks, keep its runs,
// answer, bury, and to hear what JetStream says under its inbox prefix. All of it is
// below the entity: with these permissions a worker reads and changes nothing of other
// agents. An operator makes the entity's consumers (see [Consumer]), takes
// ended runs away and purges.
func DurableWorker(m subject.Map, entity, inboxPrefix string) (Permissions, error) {
	consumers, err := jetstream.Consumers(m, entity, 0)
	if err != nil {
		return Permissions{}, err
	}
	g := &grant{m: m}
	g.subscribe(inboxPrefix+".>", g.of(m.RepliesTo(subject.TypeHuman+".x"))) // of people, see below
	g.Subscribe[1] = strings.TrimSuffix(g.Subscribe[1], "x.*") + ">"

	var streams []string
	for _, c := range consumers {
		at := c.StreamName(m) + "." + c.Config.Durable
		g.publish(jsAPI+"CONSUMER.MSG.NEXT."+at, "$JS.ACK."+at+".>")
		if !slices.Contains(streams, c.StreamName(m)) {
			streams = append(streams, c.StreamName(m))
			g.publish(jsAPI + "CONSUMER.INFO." + c.StreamName(m) + ".*") // numbers, of all entities
		}
	}
	replies, dead := g.stream(jetstream.StreamReply), g.stream(jetstream.StreamDead)
	g.publish(g.of(m.WorkOf(entity)), g.of(m.Ctl(entity))) // to queue a run again, and to move one to another worker
	g.look(append(streams, g.bucket(jetstream.BucketState), g.bucket(jetstream.BucketSlots), "OBJ_"+g.stream(jetstream.ObjectsState))...)
	g.read(g.stream(jetstream.StreamWork), g.of(m.WorkOf(entity)))
	for stream, pattern := range map[string]string{replies: g.of(m.RepliesTo(entity)), dead: g.of(m.DeadOf(entity))} {
		g.publish(pattern)
		g.read(stream, pattern)
	}
	g.read(g.stream(jetstream.StreamSchedule), g.of(m.ScheduleOf(entity)))
	g.publish(g.of(m.CountsOf(entity)), m.CountsOfTrees())

	token := subject.Escape(entity)
	runs, slots := jetstream.RunSubjects(m, entity), g.key(jetstream.BucketSlots, token+".*")
	ends := jetstream.ReplySubjects(m, entity)
	g.publish(runs, ends, slots)
	g.read(g.bucket(jetstream.BucketState), runs)
	g.read(g.bucket(jetstream.BucketState), ends)
	g.read(g.bucket(jetstream.BucketSlots), slots)
	g.subscribe(slots)
	objects := jetstream.DocumentSubjects(m, entity)
	g.publish(objects)
	g.read("OBJ_"+g.stream(jetstream.ObjectsState), objects)

	g.publish(pingSubject(entity)) // the owner of a run
	slices.Sort(g.Publish)
	return g.done()
}

// PeopleCall are what a worker of the durable lane needs whose agent asks
// people: to read the last answer of each of them.
func PeopleCall(m subject.Map) (Permissions, error) {
	g := &grant{m: m}
	answers := g.of(m.RepliesTo(subject.TypeHuman + ".x"))
	g.read(g.stream(jetstream.StreamReply), strings.TrimSuffix(answers, "x.*")+">")
	return g.done()
}

// Consumer returns the permissions with which a worker makes the consumers of its entity, and
// resets one that is ahead of its stream. They give it an operator's power: a push consumer
// delivers the messages of its stream to any subject, also to one that its maker may not publish
// to.
func Consumer(m subject.Map, entity string) (Permissions, error) {
	consumers, err := jetstream.Consumers(m, entity, 0)
	var p Permissions
	for _, c := range consumers {
		at := c.StreamName(m) + "." + c.Config.Durable
		p.Publish = append(p.Publish, jsAPI+"CONSUMER.CREATE."+at+"."+c.Config.FilterSubject, jsAPI+"CONSUMER.RESET."+at)
	}
	return p, err
}

// Seen are what a worker of the entity needs to remember ids in the mesh's
// replay window.
func Seen(m subject.Map, entity string) (Permissions, error) {
	g := &grant{m: m}
	ids := g.key(jetstream.BucketSeen, subject.Escape(entity)+".*")
	g.publish(ids)
	g.read(g.bucket(jetstream.BucketSeen), ids)
	g.look(g.bucket(jetstream.BucketSeen))
	return g.done()
}

// SharedKeys are what a worker needs that trusts the keys in the mesh's
// bucket: to read all of it, and to ask whether it is there.
func SharedKeys(m subject.Map) Permissions {
	g := &grant{m: m}
	g.publish(jsAPI + "DIRECT.GET." + g.bucket(jetstream.BucketKeys))
	g.read(g.bucket(jetstream.BucketKeys), ">")
	g.look(g.bucket(jetstream.BucketKeys))
	return g.Permissions
}

// Journal are what a worker of the entity needs that keeps its envelopes,
// and what was said against them, in JetStream.
func Journal(m subject.Map, entity string) (Permissions, error) {
	g := &grant{m: m}
	envelopes, refuted := g.of(m.JournalOf(entity)), g.key(jetstream.BucketRefuted, subject.Escape(entity)+".*")
	g.publish(envelopes, refuted)
	g.read(g.stream(jetstream.StreamJournal), envelopes)
	g.read(g.bucket(jetstream.BucketRefuted), refuted)
	g.look(g.stream(jetstream.StreamJournal), g.bucket(jetstream.BucketRefuted))
	return g.done()
}

// DurableClient are what a sender needs that submits durable tasks to
// the given entities, follows their replies and commands them, besides
// [Client]. The worker of an agent that calls others needs both for
// these. They read the last reply to any task of these entities, also to those of other
// senders.
func DurableClient(m subject.Map, entities ...string) (Permissions, error) {
	g := &grant{m: m}
	for _, entity := range entities {
		replies := g.of(m.RepliesTo(entity))
		g.publish(g.of(m.WorkOf(entity)))
		g.subscribe(replies)
		g.read(g.stream(jetstream.StreamReply), replies)
		g.read(g.bucket(jetstream.BucketState), jetstream.ReplySubjects(m, entity))
	}
	g.look(g.stream(jetstream.StreamWork))
	return g.done()
}

// Look let a sender see who takes its tasks: the workers of the given
// entities, and with durable whether they have a durable lane. The commands of a sender
// look for both; without leave each look is a line in the server's log.
func Look(m subject.Map, durable bool, entities ...string) (Permissions, error) {
	g := &grant{m: m}
	for _, entity := range entities {
		g.publish(micro.APIPrefix + "." + micro.InfoVerb.String() + "." + subject.ServiceName(entity))
		if !durable {
			continue
		}
		c, err := jetstream.WorkConsumer(m, "normal", entity, 0)
		if err != nil {
			return Permissions{}, err
		}
		g.publish(jsAPI + "CONSUMER.INFO." + c.StreamName(m) + "." + c.Config.Durable)
		g.read(g.bucket(jetstream.BucketLanes), g.key(jetstream.BucketLanes, subject.Escape(entity)))
	}
	return g.done()
}

// Delay let a sender have JetStream keep its delayed tasks until they are
// due, in place of the queue. The stream of schedules has no fences inside: who may
// publish to one of its subjects may purge all of it, and schedule for any other.
func Delay(m subject.Map, entities ...string) (Permissions, error) {
	g := &grant{m: m}
	for _, entity := range entities {
		later := g.of(m.ScheduleOf(entity))
		g.publish(later)
		g.read(g.stream(jetstream.StreamSchedule), later)
	}
	g.look(g.stream(jetstream.StreamSchedule))
	return g.done()
}

// Replay let a client read all replies to durable tasks that are stored, of
// all agents and to all senders: what a task has streamed, after it was missed.
func Replay(m subject.Map) Permissions {
	g := &grant{m: m}
	g.publish(jsAPI + "DIRECT.GET." + g.stream(jetstream.StreamReply))
	return g.Permissions
}

// Registry are what a user needs who looks agents up in the mesh's
// registry of definitions, and asks who runs: a worker of a team, besides
// [Worker]. With write it may also register them: that is to say of
// any agent who it is, so it is for operators, and for workers that register
// their own.
func Registry(m subject.Map, inboxPrefix string, write bool) Permissions {
	g := &grant{m: m}
	g.subscribe(inboxPrefix + ".>")
	g.publish(jsAPI+"DIRECT.GET."+g.bucket(jetstream.BucketAgents),
		micro.APIPrefix+"."+micro.InfoVerb.String(), micro.APIPrefix+"."+micro.StatsVerb.String())
	g.read(g.bucket(jetstream.BucketAgents), ">")
	if write {
		g.publish(g.key(jetstream.BucketAgents, ">"))
	}
	return g.Permissions
}

// Person are what a person needs to see what agents ask of them, and to
// answer it, under an inbox prefix of their own. The server keeps the inboxes of
// all people in one stream, so who may read one may read all.
func Person(m subject.Map, person, inboxPrefix string) (Permissions, error) {
	if !subject.IsPerson(person) {
		return Permissions{}, fmt.Errorf("%s is no person", person)
	}
	g := &grant{m: m}
	answers := g.of(m.RepliesTo(person))
	g.subscribe(g.of(m.Live(person)), inboxPrefix+".>")
	g.publish(answers, jsAPI+"DIRECT.GET."+g.stream(jetstream.StreamHuman))
	g.read(g.stream(jetstream.StreamReply), answers)
	g.look(g.stream(jetstream.StreamWork))
	return g.done()
}
