package mesh_test

import (
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// A user may name any reply subject, JetStream's own requests too. A server before 2.14.10,
// and 2.15.0 to 2.15.2, takes its own answer for such a request: a user who may make one direct get can delete any
// stream there.
func TestAttackAnswersAreNoRequestsToJetStream(t *testing.T) {
	t.Parallel()
	a := newAttack(t)
	a.furnish(victim, private)
	a.furnish(attacker, "own")
	ctx := t.Context()
	inbox := perms.InboxPrefix(attacker)
	a.listen(inbox + ".>")
	var orders []string
	for info := range a.admin.ListStreams(ctx).Info() {
		s, err := a.admin.Stream(ctx, info.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for c := range s.ConsumerNames(ctx).Name() {
			names = append(names, c)
		}
		orders = append(orders, requests(info.Config.Name, names)...)
	}
	orders = append(orders, "$JS.API.STREAM.CREATE.MIRROR", "$JS.API.ACCOUNT.PURGE.$G")
	stored := a.stored()

	mine := "$KV." + jetstream.BucketState + "." + attacker + ".small"
	get := "$JS.API.DIRECT.GET.KV_aee_state." + mine
	for _, body := range []string{
		"", "{}", `{"seq":1}`, `{"deliver_subject":"` + inbox + `.snapshot"}`, `{"pause_until":"2099-01-01T00:00:00Z"}`,
		`{"name":"MIRROR","mirror":{"name":"KV_aee_state"},"storage":"memory","retention":"limits"}`,
		`{"stream_name":"KV_aee_state","config":{"ack_policy":"none","deliver_policy":"all","replay_policy":"instant","deliver_subject":"` + inbox + `.stolen"}}`,
	} {
		if _, err := a.x.Request(mine, []byte(body), 5*time.Second); err != nil {
			t.Fatalf("the attacker's own bucket: %v", err)
		}
		for _, order := range orders {
			if err := a.x.PublishRequest(get, order, nil); err != nil {
				t.Fatal(err)
			}
			a.acknowledge(jetstream.StreamWork, "+WPI", 1, order)
		}
		if _, err := a.x.Request(get, nil, 5*time.Second); err != nil { // it answers in order
			t.Fatalf("the attacker's own bucket: %v", err)
		}
	}
	for _, order := range orders { // the acknowledgement of a message that is stored, and an answer of the API
		for _, ask := range []string{mine, "$JS.API.STREAM.INFO.AEE_WORK"} {
			if err := a.x.PublishRequest(ask, order, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.acknowledged(jetstream.StreamWork)
	a.unharmed("answers", stored, a.stored())
}
