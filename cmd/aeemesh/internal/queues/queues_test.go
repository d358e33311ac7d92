package queues

import (
	"testing"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/jetstream"
)

func TestAViewSaysWhyTasksWait(t *testing.T) {
	t.Parallel()
	normal := func(waiting, drawn int, paused bool) jetstream.Backlog {
		return jetstream.Backlog{Priorities: []jetstream.PriorityBacklog{{Priority: "high"}, {Priority: "normal", Pending: waiting, Unacked: drawn, Paused: paused}}}
	}
	for _, c := range []struct {
		name             string
		backlog          jetstream.Backlog
		takers           *workers.Takers
		workers, problem string
		queues           int
	}{
		{"idle", normal(0, 0, false), &workers.Takers{}, "0", "", 0},
		{"not known who answers", normal(2, 0, false), nil, "?", "", 1},
		{"no worker", normal(2, 1, false), &workers.Takers{}, "0", "3 tasks and no worker that answers", 1},
		{"one live worker", normal(1, 0, false), &workers.Takers{Workers: 1}, "0 of 1", "1 task waits and its only worker takes no durable tasks", 1},
		{"live workers", normal(2, 0, false), &workers.Takers{Workers: 2}, "0 of 2", "2 tasks wait and none of its 2 workers takes durable tasks", 1},
		{"some take them", normal(2, 0, false), &workers.Takers{Workers: 3, Durable: 1}, "1 of 3", "", 1},
		{"due, and moved by no worker", jetstream.Backlog{Due: 1}, &workers.Takers{}, "0", "1 task and no worker that answers", 0},
		{"scheduled for later", jetstream.Backlog{Scheduled: 4}, &workers.Takers{}, "0", "", 0},
		{"paused", normal(0, 0, true), &workers.Takers{Workers: 1, Durable: 1}, "1", "paused are the consumers of priority normal", 0},
	} {
		v := ViewOf(c.backlog, c.takers)
		if v.Problem != c.problem || v.workers() != c.workers || len(v.Queues) != c.queues {
			t.Errorf("%s: problem %q, workers %q, queues %v; want %q, %q, %d", c.name, v.Problem, v.workers(), v.Queues, c.problem, c.workers, c.queues)
		}
	}
}
