package mesh_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// A server with allow_responses lets a user publish to each reply subject that it was sent.
// A worker that may publish to a subject which it also hears, or has a friend who may send it
// something, chooses that reply subject: so no permission of a worker may depend on it.
func TestAttackAWorkerLiftsNoPermissionsByAskingItself(t *testing.T) {
	t.Parallel()
	a := newAttack(t)
	a.furnish(victim, private)
	before := a.stored()
	inbox := perms.InboxPrefix(attacker)
	a.listen(inbox + ".>")
	own := []string{"aee.ctl." + attacker, "$SRV.PING." + subject.ServiceName(attacker) + ".x"}
	for _, subj := range own {
		a.listen(subj)
	}
	if _, err := a.x.QueueSubscribe(attacker, "q", func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	a.heard()
	for _, target := range []string{
		"$KV." + jetstream.BucketState + "." + victim + ".small", "aee.reply." + victim + ".task", "aee.ctl." + victim, victim,
		"$JS.API.STREAM.MSG.GET.KV_" + jetstream.BucketState, "$JS.API.STREAM.PURGE.KV_" + jetstream.BucketState,
	} {
		for _, subj := range own {
			if err := a.x.PublishRequest(subj, target, nil); err != nil {
				t.Fatal(err)
			}
		}
		settle(t, a.x)
		if err := a.nc.PublishRequest(attacker, target, nil); err != nil { // a friend of the attacker's
			t.Fatal(err)
		}
		settle(t, a.nc)
		settle(t, a.x)
		if err := a.x.PublishMsg(&nats.Msg{Subject: target, Reply: inbox + ".answer", Data: []byte(`{"seq":1}`)}); err != nil {
			t.Fatal(err)
		}
		settle(t, a.x)
	}
	a.unharmed("asking itself", before, a.stored())
}
