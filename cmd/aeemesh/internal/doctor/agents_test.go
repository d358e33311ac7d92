package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// manyAgents serves 45 agents, and returns their entities in order.
func manyAgents(t *testing.T, srv *natsd.Server, opts ...nats.Option) (entities []string) {
	t.Helper()
	node, err := mesh.New(natstest.Conn(t, srv, opts...), mesh.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ready, all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	for i := range 45 {
		entities = append(entities, fmt.Sprintf("agent.n%02d", i))
		ready.Add(1)
		all.Go(func() {
			if err := node.Serve(ctx, mesh.Agent{Entity: entities[i], Ready: ready.Done, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) {
				return json.RawMessage(`{}`), nil
			})}); err != nil {
				t.Error(err)
				ready.Done()
			}
		})
	}
	ready.Wait()
	return entities
}

// saysOfAgents returns the lines of doctor about all agents.
func saysOfAgents(t *testing.T, d *doctor, wait time.Duration) (string, bool) {
	t.Helper()
	var out bytes.Buffer
	d.app = printingTo(&out)
	d.app.Env = func(string) string { return "" }
	d.app.Sign.Kid = "none"
	d.app.Conn.Timeout = wait
	_, ok := d.agents(t.Context())
	return out.String(), ok
}

// Which agents are asked does not change from one run to the next.
func TestDoctorAsksAllAgentsInOrder(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	entities := manyAgents(t, srv)
	got, ok := saysOfAgents(t, &doctor{conn: natstest.Conn(t, srv), role: roleOperator, all: true}, 0)
	var asked []string
	for _, m := range regexp.MustCompile(`that of (agent\.\S+) differs`).FindAllStringSubmatch(got, -1) {
		asked = append(asked, m[1])
	}
	if !ok || !slices.Equal(asked, entities) || strings.Contains(got, "were asked") {
		t.Errorf("ok: %v, asked %v, want %v:\n%s", ok, asked, entities, got)
	}
}

// Agents that do not answer in time do not hold it up for long.
func TestDoctorSaysHowManyAgentsItHasAsked(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	manyAgents(t, srv)
	got, _ := saysOfAgents(t, &doctor{conn: natstest.Conn(t, srv), role: roleOperator}, time.Nanosecond)
	if !regexp.MustCompile(`warn agents       (0|20) of 45 agents were asked: many do not answer\n`).MatchString(got) {
		t.Error(got)
	}
}

// Each request that the server refuses is a line in its log.
func TestDoctorOfAWorkerTriesFewAgentsThatItMayNotAsk(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{Users: []natsd.User{{Name: "all", Password: "a"}, {Name: "worker", Password: "w", Permissions: &natsd.Permissions{
		Publish: natsd.Subjects{Allow: []string{"$SRV.>"}}, Subscribe: natsd.Subjects{Allow: []string{"_INBOX.>"}},
	}}}})
	entities := manyAgents(t, srv, nats.UserInfo("all", "a"))
	got, ok := saysOfAgents(t, &doctor{conn: natstest.Conn(t, srv, nats.UserInfo("worker", "w")), role: roleWorker}, 0)
	for _, want := range []string{
		"ok   agents       entities: 45, workers: 45\n",
		"ok   agents       not asked, because this user may not send to them: " + strings.Join(entities[:20], ", ") + "; 25 more were not tried\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	if !ok || strings.Contains(got, "does not answer") {
		t.Errorf("ok: %v\n%s", ok, got)
	}
}
