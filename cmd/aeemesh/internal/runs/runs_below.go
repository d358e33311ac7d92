package runs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh/canceltree"
)

// commandOutput is the JSON output of a command about a run.
type commandOutput struct {
	intents.CommandResult
	Below *canceltree.Below `json:"below,omitempty"` // of a cancel
}

// toldBelow reports which tasks of a run's tree a cancel could not end.
func toldBelow(a *session.App, b *canceltree.Below) {
	if a.Term.JSON {
		return
	}
	for _, line := range belowWords(b) {
		a.Term.Warn("%s", line)
	}
}

func belowWords(b *canceltree.Below) (out []string) {
	say := func(tasks []canceltree.Task, one, many, format string) {
		if len(tasks) == 0 {
			return
		}
		count := "1 " + one
		if len(tasks) > 1 {
			count = fmt.Sprintf("%d %s", len(tasks), many)
		}
		out = append(out, count+" "+fmt.Sprintf(format, agentsOf(tasks)))
	}
	say(b.Waiting, "task below waits", "tasks below wait", "for a worker of %s, which has not answered or cannot obey yet: the cancel is queued, and the deadline holds in any case.")
	if b.Asked > 0 {
		out = append(out, fmt.Sprintf("What is asked of people there stays open until then: %d in all.", b.Asked))
	}
	say(b.Failed, "task below", "tasks below", "of %s: the cancel could not be queued, or that is not known. Cancel again; the deadline holds in any case.")
	say(b.Silent, "live task below", "live tasks below", "of %s: no worker answered the cancel. It has ended, or ends at its deadline.")
	say(b.Refused, "task below", "tasks below", "of %s: you are no operator there, or the task is of another caller. The cancel goes down worker by worker.")
	say(b.Unread, "record", "records", "of %s cannot be read here: the cancel goes down from there worker by worker.")
	if b.More {
		out = append(out, "The tree goes on beyond what was looked at: from there the cancel goes down worker by worker.")
	}
	return out
}

// agentsOf lists the agents of tasks, up to a few.
func agentsOf(tasks []canceltree.Task) string {
	var names []string
	for _, t := range tasks {
		if !slices.Contains(names, t.Entity) {
			names = append(names, t.Entity)
		}
	}
	slices.Sort(names)
	const most = 5
	if n := len(names); n > most {
		names = append(names[:most], fmt.Sprintf("%d more", n-most))
	}
	return strings.Join(names, ", ")
}
