package mesh_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
)

// Finding 23 of the security review: made-up senders push no limiter out, which
// would give its quota back. Those that are new while all places are taken share one.
func TestMadeUpSendersGiveNobodyItsQuotaBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.serve(r.node(mesh.Config{Quotas: mesh.Quotas{
		Rate: 0.001, Burst: 2, UnknownRate: 0.001, UnknownBurst: 1000, Known: []string{"agent.known"},
	}}), mesh.Agent{Handler: echo, Concurrency: 8, Queue: 20000})
	answers := make(chan *nats.Msg, 65536)
	inbox := r.nc.NewInbox()
	if _, err := r.nc.ChanSubscribe(inbox, answers); err != nil {
		t.Fatal(err)
	}
	// told is what each of n tasks comes to.
	told := func(n int, from func(i int) string) (done int, refused []string) {
		t.Helper()
		for i := range n {
			task := newTask(reviewer, "code.review", `{}`)
			task.From = from(i)
			if err := r.nc.PublishRequest(task.To, inbox, encode(t, task)); err != nil {
				t.Fatal(err)
			}
		}
		for range n {
			e := parse(t, within(t, "an answer", answers).Data)
			if e.Type == envelope.TypeResult {
				done++
				continue
			}
			if problem := envelope.ErrorOf(e); problem.Code == envelope.CodeRateLimited {
				refused = append(refused, problem.Message)
			} else {
				t.Fatal(problem)
			}
		}
		return done, refused
	}
	one := func(name string) func(int) string { return func(int) string { return name } }
	many := func(prefix string) func(int) string {
		return func(i int) string { return fmt.Sprintf("agent.%s-%d", prefix, i) }
	}
	done, _ := told(3, one("agent.known"))
	equal(t, "the known sender's tasks that were done", done, 2)
	done, _ = told(1005, one("agent.eve"))
	equal(t, "the unknown sender's tasks that were done", done, 1000)

	told(8192+100, many("a"))
	for _, name := range []string{"agent.known", "agent.eve"} {
		done, refused := told(1, one(name))
		if done != 0 || !strings.HasPrefix(refused[0], "sender "+name+" is over its quota") {
			t.Errorf("%s after 8,292 made-up senders: done %d, %q", name, done, refused)
		}
	}
	// One name more than there are places: the new ones have one quota together.
	done, refused := told(1100, many("b"))
	if len(refused) == 0 || !strings.Contains(refused[len(refused)-1], "with all others that are new") {
		t.Errorf("new senders: %d done, %d refused, the last with %q", done, len(refused), refused[len(refused)-1:])
	}
}
