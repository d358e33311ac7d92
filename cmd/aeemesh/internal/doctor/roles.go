package doctor

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// The roles of a NATS user that doctor can check.
const (
	roleWorker   = "worker"
	roleSender   = "sender"
	roleOperator = "operator"
)

// needs returns the permissions of the role, and what the user would do with
// them.
func (d *doctor) needs() (need perms.Permissions, as, hint string, err error) {
	switch d.role {
	case roleSender:
		inbox := d.conn.Opts.InboxPrefix
		if inbox == "" {
			inbox = strings.TrimSuffix(nats.InboxPrefix, ".")
		}
		need, err = perms.Client(d.subjects, inbox, d.entity)
		return need, "send to " + d.entity, fmt.Sprintf("\"aeemesh auth perms %s --sender\" prints what a sender needs.", d.entity), err
	case roleOperator:
		return operatorNeeds(d.subjects, d.entity), "operate the mesh", "\"aeemesh auth perms --operator --from ENTITY\" prints what an operator needs.", nil
	}
	need, err = perms.Worker(d.subjects, d.entity)
	return need, "serve " + d.entity, fmt.Sprintf("\"aeemesh auth perms %s\" prints what it needs. If this user only sends, or operates: --role sender, --role operator.", d.entity), err
}

// operatorNeeds returns the permissions for operators' commands: listing
// agents, reading streams, queues and runs, commanding runs of an entity,
// removing tasks from the queue and delayed ones that are due, apply, and backups.
func operatorNeeds(m subject.Map, entity string) perms.Permissions {
	p := perms.Permissions{Publish: []string{
		micro.APIPrefix + "." + micro.InfoVerb.String(), micro.APIPrefix + "." + micro.StatsVerb.String(),
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST",
	}}
	work, runs := jetstream.StreamWork+m.Suffix(), "KV_"+jetstream.BucketState+m.Suffix()
	for _, s := range jetstream.Topology() {
		for _, verb := range []string{"INFO", "CREATE", "UPDATE", "SNAPSHOT", "RESTORE"} {
			p.Publish = append(p.Publish, "$JS.API.STREAM."+verb+"."+s.StreamName(m))
		}
	}
	for _, subject := range []func(string) (string, error){m.Ctl, func(e string) (string, error) { return m.Work("urgent", e) }} {
		if to, err := subject(entity); err == nil {
			p.Publish = append(p.Publish, to)
		}
	}
	return perms.Permissions{Publish: append(p.Publish, "$JS.API.CONSUMER.LIST."+work, "$JS.API.DIRECT.GET."+work, "$JS.API.STREAM.MSG.DELETE."+work,
		"$JS.API.STREAM.MSG.DELETE."+jetstream.StreamSchedule+m.Suffix(), "$JS.API.DIRECT.GET."+runs, "$JS.API.STREAM.MSG.GET."+runs,
		"$JS.SNAPSHOT.ACK.>", "$JS.SNAPSHOT.RESTORE.>")}
}
