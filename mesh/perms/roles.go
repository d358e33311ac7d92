package perms

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
)

// everything are patterns of all subjects of a mesh.
func everything(m subject.Map) []string {
	all := append(m.AllLive(), m.AllBus(), m.AllHuman())
	return append(all, strings.TrimSuffix(m.AllWork(), "work.>")+">")
}

// inJetStream are what a user publishes who may do everything with JetStream in an account. The
// last three answer the server: the flow control of consumers, and the chunks of a stream's backup
// and restore.
var inJetStream = []string{"$JS.API.>", "$JS.ACK.>", "$KV.>", "$O.>", "$JS.FC.>", "$JS.SNAPSHOT.ACK.>", "$JS.SNAPSHOT.RESTORE.>"}

// Operator returns the permissions of an operator: all subjects of the mesh, all of JetStream in
// the account, and the request for the user's own permissions. Without that request, doctor would
// try each permission, and each missing one would be a line in the server's log. Other roles lack
// it: a user who may send it can have the server send its answer to any subject of the account.
func Operator(m subject.Map, inboxPrefix string) Permissions {
	all := everything(m)
	return Permissions{
		Publish:   slices.Concat(all, []string{micro.APIPrefix + ".>"}, inJetStream, []string{"$SYS.REQ.USER.INFO"}, answers([]string{inboxPrefix})),
		Subscribe: append(slices.Clone(all), micro.APIPrefix+".>", "$KV.>", inboxPrefix+".>"),
	}
}

// Viewer are what a user needs who looks and changes nothing: the bus, who
// serves, queues, runs, dead letters, results, and durable tasks and replies as they
// come. A viewer reads what tasks and runs hold, of all agents. Live subjects are not
// among it: the server gives a task to one subscription of a queue group, and a user who
// may listen there may join the group of the workers and take tasks away from them.
func Viewer(m subject.Map, inboxPrefix string) Permissions {
	g := &grant{m: m}
	g.subscribe(m.AllBus(), m.AllWork(), m.AllReplies(), inboxPrefix+".>")
	for _, verb := range []micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb} {
		all := micro.APIPrefix + "." + verb.String()
		g.publish(all, all+".>")
	}
	g.publish(jsAPI+"INFO", jsAPI+"STREAM.INFO.*", jsAPI+"STREAM.LIST", jsAPI+"STREAM.NAMES")
	work := g.stream(jetstream.StreamWork)
	g.publish(jsAPI+"CONSUMER.LIST."+work, jsAPI+"CONSUMER.INFO."+work+".*")
	for _, spec := range jetstream.Topology() {
		switch spec.Name {
		case jetstream.StreamBus, jetstream.StreamWork, jetstream.StreamSchedule, jetstream.StreamReply, jetstream.StreamDead, jetstream.BucketAgents, jetstream.BucketSDSI:
			g.publish(jsAPI + "DIRECT.GET." + spec.StreamName(m))
			g.read(spec.StreamName(m), ">")
		case jetstream.BucketState, jetstream.ObjectsState:
			g.publish(jsAPI+"DIRECT.GET."+spec.StreamName(m), jsAPI+"STREAM.MSG.GET."+spec.StreamName(m))
			g.read(spec.StreamName(m), ">")
		}
	}
	return g.Permissions
}
