package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/queues"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/jetstream/inspect"
	"github.com/aeemesh/aeemesh/jetstream/quorum"
	"github.com/aeemesh/aeemesh/mesh"
)

// durable reports what the durable lane may lose if a process, a machine or a
// disk fails: that depends on its replicas and fsync.
func (d *doctor) durable(ctx context.Context, js natsjs.JetStream, f inspect.Fsync) {
	replicas, memory, mayLose := 0, false, 0
	missing := ""
	for _, name := range []string{jetstream.StreamWork, jetstream.StreamReply, "KV_" + jetstream.BucketState} {
		stream, err := js.Stream(ctx, name+d.subjects.Suffix())
		if err != nil {
			return // reported above
		}
		cfg, group := stream.CachedInfo().Config, quorum.Of(stream.CachedInfo())
		if replicas == 0 || cfg.Replicas < replicas {
			replicas = cfg.Replicas
		}
		if group.Replicated() && !group.Quorum() {
			return // reported above
		}
		if lose := group.MayLose(); missing == "" || lose < mayLose {
			mayLose, missing = lose, cmp.Or(group.Trouble(), missing)
		}
		memory = memory || cfg.Storage == natsjs.MemoryStorage
	}
	const name = "durable"
	switch {
	case memory:
		d.tell(name, "warn", "Make the streams anew with file storage.", "not against a restart of the server: what it stores is in memory (%s)", term.Counted(replicas, "replica", "replicas"))
	case replicas > 1 && missing != "":
		d.tell(name, "warn", "Start what is down. Until then less may fail.", "against the death of workers, and of %d of %d servers now: %s", mayLose, replicas, missing)
	case replicas > 1:
		d.tell(name, "ok", "", "against the death of workers, and of %d of %d servers", (replicas-1)/2, replicas)
	case f.Class == inspect.FsyncAlways:
		d.tell(name, "ok", "", "against the death of workers and a crash of the machine, not against the loss of its disk: there is one replica")
	default:
		since := "of up to two minutes"
		if f.Class == inspect.FsyncInterval {
			since = fmt.Sprintf("of up to %v", f.Interval)
		}
		d.tell(name, "warn", "Against that: \"aeemesh up --sync always\", or three replicas on three machines (\"aeemesh apply --replicas 3\").",
			"against the death of workers and of the server's process, not of its machine: there is one replica, and its crash can lose what was acknowledged %s", since)
	}
}

// queues reports the tasks that wait, and for which agents.
func (d *doctor) queues(ctx context.Context, js natsjs.JetStream, found []mesh.Instance) {
	ctx, cancel := context.WithTimeout(ctx, d.app.Conn.Wait())
	defer cancel()
	queue := jetstream.NewQueue(js, d.subjects)
	list, err := queue.Backlog(ctx)
	if errors.Is(err, jetstream.ErrNotFound) || jetstream.Off(err) || errors.Is(err, jetstream.ErrDenied) {
		return // there is no durable lane; reported above
	}
	if err != nil {
		d.tell("queues", "warn", outcome.Hint(err), "%s", outcome.Text(err))
		return
	}
	takers := workers.TakersOf(found)
	var waiting, inWork, dead int
	var problems []string
	for _, b := range list {
		v := queues.ViewOf(b, cmp.Or(takers[b.Entity], &workers.Takers{}))
		waiting, inWork, dead = waiting+v.Waiting, inWork+v.InWork, dead+v.Dead
		if v.Problem != "" {
			problems = append(problems, v.Entity+": "+v.Problem)
		}
	}
	outcome, hint := "ok", ""
	if dead > 0 {
		hint = "\"aeemesh dead list\" lists what could not be done."
	}
	if len(problems) > 0 {
		outcome, hint = "warn", "\"aeemesh queues\" shows them."
	}
	text := fmt.Sprintf("%s, workers have %d, %s", term.Counted(waiting, "durable task waits", "durable tasks wait"), inWork, term.Counted(dead, "dead letter", "dead letters"))
	if len(problems) > 0 {
		text += "; " + strings.Join(problems[:min(5, len(problems))], "; ")
	}
	d.tell("queues", outcome, hint, "%s", text)
	d.undrawn(ctx, queue)
}

// undrawn reports messages of the work queue that no worker will ever take, such as those with an
// unknown priority, which the queue accepted before topology 9.
func (d *doctor) undrawn(ctx context.Context, queue *jetstream.Queue) {
	subjects, err := queue.Undrawn(ctx)
	if err != nil || len(subjects) == 0 {
		return // it has just been asked for the others
	}
	messages := 0
	for _, n := range subjects {
		messages += n
	}
	work := jetstream.StreamWork + d.subjects.Suffix()
	d.tell("queues", "warn", fmt.Sprintf("\"nats stream purge %s --subject SUBJECT\" removes them.", work), "%s holds %s on subjects of no agent and priority, which no worker takes: %s",
		work, term.Counted(messages, "message", "messages"), fewNames(slices.Sorted(maps.Keys(subjects))))
}

// health reports an agent that is unhealthy, and why: for example because it
// does not receive durable tasks or cannot store its runs.
func (d *doctor) health(a *answer) {
	if a.health == nil {
		return
	}
	if lane, ok := workers.LaneOf(a.health); ok && lane.Reason != "" {
		d.tell("lane", "warn", laneHint(lane.Reason), "durable tasks of %s: %s", a.entity, lane)
	} else if a.health.Status != intents.Healthy {
		reason, _ := a.health.Details["reason"].(string)
		d.tell("agent", "warn", laneHint(reason), "%s is %s: %s", a.entity, a.health.Status, cmp.Or(reason, "it does not say why"))
	}
}

// laneHint says what to do about an agent that reports this reason.
func laneHint(reason string) string {
	if strings.Contains(reason, "Priority Group missing") {
		return "Update this worker: a newer aeemesh made the streams, and the server refuses the requests of older workers. docs/operations.md, Upgrades."
	}
	if strings.Contains(reason, "is ahead of its stream") {
		return "It may be so after a full disk and a kill -9 of the server. docs/operations.md, A full disk."
	}
	return "The worker keeps trying; its log says more."
}
