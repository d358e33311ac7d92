package mesh

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/subject"
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

// WorkerPermissions are the least that a worker of the entity needs: to hear
// its lanes and the questions of NATS micro, to answer for as long as a task
// may take, into people's inboxes too, and to tell the bus about itself.
func WorkerPermissions(m subject.Map, entity string, maxTimeout time.Duration) (Permissions, error) {
	live, ask, ctl, err := lanes(m, entity)
	if err != nil {
		return Permissions{}, err
	}
	p := Permissions{
		// "subject queue" allows the queue group only, as the server writes it.
		Subscribe:      []string{live + " " + QueueGroup, ask + " " + QueueGroup, ctl},
		AllowResponses: AllowResponses{Max: -1, Expires: max(maxTimeout, DefaultMaxTimeout)},
	}
	name := subject.ServiceName(entity)
	for _, verb := range []micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb} {
		all := micro.APIPrefix + "." + verb.String()
		p.Subscribe = append(p.Subscribe, all, all+"."+name, all+"."+name+".*")
	}
	for _, topic := range []string{BusAgent, BusTask, BusRun, BusAlert} {
		to, err := m.Bus(topic)
		if err != nil {
			return Permissions{}, err
		}
		p.Publish = append(p.Publish, to)
	}
	// People's inboxes: the answers to tasks that came without a reply subject.
	anyone, err := m.Human("x")
	if err != nil {
		return Permissions{}, err
	}
	p.Publish = append(p.Publish, strings.TrimSuffix(anyone, "x")+">")
	return p, nil
}

// ClientPermissions are the least that a sender needs which talks to the
// given entities, under an inbox prefix of its own.
func ClientPermissions(m subject.Map, inboxPrefix string, entities ...string) (Permissions, error) {
	p := Permissions{Subscribe: []string{inboxPrefix + ".>"}}
	for _, entity := range entities {
		live, ask, ctl, err := lanes(m, entity)
		if err != nil {
			return Permissions{}, err
		}
		p.Publish = append(p.Publish, live, ask, ctl)
	}
	return p, nil
}

// lanes are the subjects on which an entity is talked to.
func lanes(m subject.Map, entity string) (live, ask, ctl string, err error) {
	if live, err = m.Live(entity); err != nil {
		return "", "", "", err
	}
	if ask, err = m.Ask(entity); err != nil {
		return "", "", "", err
	}
	ctl, err = m.Ctl(entity)
	return live, ask, ctl, err
}

// DurableWorkerPermissions are what a worker of the entity needs for the
// durable lane, besides [WorkerPermissions]: to draw its tasks, keep its runs,
// answer, bury, and to hear what JetStream says under its inbox prefix, such as
// _INBOX. With create it may also make the consumers of its entity.
func DurableWorkerPermissions(m subject.Map, entity, inboxPrefix string, create bool) (Permissions, error) {
	consumers, err := jetstream.Consumers(m, entity, 0)
	if err != nil {
		return Permissions{}, err
	}
	p := Permissions{Subscribe: []string{inboxPrefix + ".>"}}
	for _, c := range consumers {
		at := c.StreamName(m) + "." + c.Config.Durable
		p.Publish = append(p.Publish, jsAPI+"CONSUMER.INFO."+at, jsAPI+"CONSUMER.MSG.NEXT."+at, "$JS.ACK."+at+".>")
		if create {
			p.Publish = append(p.Publish, jsAPI+"CONSUMER.CREATE."+at+"."+c.Config.FilterSubject)
		}
	}
	var errs []error
	subj := func(s string, err error) {
		errs = append(errs, err)
		p.Publish = append(p.Publish, s)
	}
	subj(m.WorkOf(entity))
	subj(m.ScheduleOf(entity)) // to put off what came too early
	subj(m.RepliesTo(entity))
	subj(m.DeadOf(entity))
	subj(m.Ctl(entity)) // to move a run to another worker
	p.Publish = append(p.Publish, m.AllCounts())
	runs, slots := jetstream.BucketState+m.Suffix(), jetstream.BucketSlots+m.Suffix()
	p.Publish = append(p.Publish, "$KV."+runs+"."+entity+".>", "$KV."+slots+"."+subject.Escape(entity)+".>")
	objects := jetstream.ObjectsState + m.Suffix()
	p.Publish = append(p.Publish, "$O."+objects+".>")
	for _, s := range []struct {
		stream string
		verbs  []string
	}{
		{jetstream.StreamWork + m.Suffix(), []string{"STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET"}},
		// The command looks whether all of them are there before it serves the lane.
		{jetstream.StreamReply + m.Suffix(), []string{"STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET"}},
		{jetstream.StreamDead + m.Suffix(), []string{"STREAM.INFO", "STREAM.MSG.GET"}},
		{jetstream.StreamSchedule + m.Suffix(), []string{"STREAM.INFO", "DIRECT.GET", "STREAM.PURGE"}}, // the last to cancel what waits
		{jetstream.StreamHuman + m.Suffix(), []string{"STREAM.MSG.GET"}},                               // whether a task is in a person's inbox
		// Listing runs, watching slots, and making room.
		{"KV_" + runs, []string{"STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET", "STREAM.PURGE", "CONSUMER.CREATE", "CONSUMER.MSG.NEXT", "CONSUMER.DELETE"}},
		{"KV_" + slots, []string{"STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET", "CONSUMER.CREATE", "CONSUMER.DELETE"}},
		{"OBJ_" + objects, []string{"STREAM.INFO", "DIRECT.GET", "STREAM.PURGE"}},
	} {
		for _, verb := range s.verbs {
			line := jsAPI + verb + "." + s.stream
			if strings.HasPrefix(verb, "CONSUMER.") {
				line += ".>"
			}
			p.Publish = append(p.Publish, line)
		}
	}
	// People's answers.
	answers, err := m.RepliesTo(subject.TypeHuman + ".x")
	errs = append(errs, err)
	p.Subscribe = append(p.Subscribe, strings.TrimSuffix(answers, "x.*")+">")
	p.Publish = append(p.Publish, "$JS.FC.KV_"+slots+".>", "$SRV.PING."+subject.ServiceName(entity)+".*")
	return p, errors.Join(errs...)
}

// DurableClientPermissions are what somebody needs who submits durable tasks to
// the given entities, follows their replies and commands them, besides
// [ClientPermissions]. The worker of an agent that calls others needs both for
// these.
func DurableClientPermissions(m subject.Map, entities ...string) (Permissions, error) {
	var p Permissions
	for _, entity := range entities {
		work, err := m.WorkOf(entity)
		if err != nil {
			return Permissions{}, err
		}
		later, err := m.ScheduleOf(entity)
		if err != nil {
			return Permissions{}, err
		}
		replies, err := m.RepliesTo(entity)
		if err != nil {
			return Permissions{}, err
		}
		c, err := jetstream.WorkConsumer(m, "normal", entity, 0) // whether it takes durable tasks
		if err != nil {
			return Permissions{}, err
		}
		p.Publish = append(p.Publish, work, later, jsAPI+"CONSUMER.INFO."+c.StreamName(m)+"."+c.Config.Durable)
		p.Subscribe = append(p.Subscribe, replies)
	}
	reply := jetstream.StreamReply + m.Suffix()
	p.Publish = append(p.Publish, jsAPI+"DIRECT.GET."+reply, jsAPI+"STREAM.INFO."+jetstream.StreamWork+m.Suffix(), jsAPI+"STREAM.INFO."+jetstream.StreamSchedule+m.Suffix())
	return p, nil
}

// RegistryPermissions are what somebody needs who looks agents up in the mesh's
// registry of definitions, and asks who runs: a worker of a team, besides
// [WorkerPermissions]. With write he may also register them: that is to say of
// any agent who it is, so it is for operators, and for workers that register
// their own.
func RegistryPermissions(m subject.Map, inboxPrefix string, write bool) Permissions {
	bucket := jetstream.BucketAgents + m.Suffix()
	stream := "KV_" + bucket
	p := Permissions{Subscribe: []string{inboxPrefix + ".>"}, Publish: []string{
		jsAPI + "STREAM.INFO." + stream, jsAPI + "STREAM.MSG.GET." + stream, jsAPI + "DIRECT.GET." + stream, jsAPI + "DIRECT.GET." + stream + ".>",
		jsAPI + "CONSUMER.CREATE." + stream + ".>", jsAPI + "CONSUMER.DELETE." + stream + ".>", "$JS.FC." + stream + ".>",
		micro.APIPrefix + "." + micro.InfoVerb.String(), micro.APIPrefix + "." + micro.StatsVerb.String(),
	}}
	if write {
		p.Publish = append(p.Publish, "$KV."+bucket+".>")
	}
	return p
}

// PersonPermissions are what a person needs to see what agents ask of them, and to
// answer it, under an inbox prefix of their own. The server keeps the inboxes of
// all people in one stream, so who may read one may read all.
func PersonPermissions(m subject.Map, person, inboxPrefix string) (Permissions, error) {
	if !isPerson(person) {
		return Permissions{}, fmt.Errorf("%s is no person", person)
	}
	live, err := m.Live(person)
	if err != nil {
		return Permissions{}, err
	}
	answers, err := m.RepliesTo(person)
	if err != nil {
		return Permissions{}, err
	}
	human, reply := jetstream.StreamHuman+m.Suffix(), jetstream.StreamReply+m.Suffix()
	return Permissions{
		Subscribe: []string{live, inboxPrefix + ".>"},
		Publish: []string{answers, jsAPI + "STREAM.MSG.GET." + reply, jsAPI + "STREAM.INFO." + jetstream.StreamWork + m.Suffix(),
			jsAPI + "DIRECT.GET." + human, jsAPI + "STREAM.INFO." + human, jsAPI + "CONSUMER.CREATE." + human + ".>", jsAPI + "CONSUMER.MSG.NEXT." + human + ".>", jsAPI + "CONSUMER.DELETE." + human + ".>"},
	}, nil
}

// jsAPI is where JetStream is asked, outside of a domain.
const jsAPI = "$JS.API."
