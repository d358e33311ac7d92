package run_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/state/run"
)

// broken says what is wrong with a change from one world to the next.
func broken(from, to *world) string {
	for i, x := range to.w {
		if x.phase != running && x.phase != halted {
			continue
		}
		// A worker whose claim is not written has no revision to compare with yet.
		if x.rev > 0 && x.rev == to.rev && (to.rec.Mesh.Owner != name(i) || to.rec.Mesh.Epoch != x.cp.Mesh.Epoch) {
			return "two owners: " + name(i) + " can write, and does not own the run"
		}
		was, other := from.w[i], from.w[1-i]
		if was.phase == claiming && other.phase == running && from.rec != nil && run.Owns(from.rec, name(1-i), other.cp.Mesh.Epoch) && x.seq == other.seq && x.times < other.times {
			return "an older delivery takes the run from its owner"
		}
		if x.phase == halted {
			continue
		}
		if begins := was.phase != running || was.cp.Doc.Iteration != x.cp.Doc.Iteration; begins && from.rec != nil && steps(x.cp) < steps(from.rec) {
			return "a finished step runs again"
		}
	}
	if a, b := from.rec, to.rec; a != nil && a.Terminal() && b.Terminal() && string(a.Mesh.Reply) != string(b.Mesh.Reply) {
		return fmt.Sprintf("two replies are stored: %s, then %s", a.Mesh.Reply, b.Mesh.Reply)
	}
	if from.reply != "" && to.reply != from.reply {
		return fmt.Sprintf("two replies: %s, then %s", from.reply, to.reply)
	}
	if to.reply != "" && (to.rec == nil || !to.rec.Terminal() || string(to.rec.Mesh.Reply) != to.reply) {
		return "a reply that the record does not have"
	}
	if to.replied && !to.rec.Terminal() || from.replied && from.rev != to.rev {
		return "something follows the reply"
	}
	if why := cmp.Or(brokenCall(from, to), brokenMove(from, to)); why != "" {
		return why
	}
	if from.rec == nil || from.rev == to.rev {
		return ""
	}
	a, b := from.rec, to.rec
	switch {
	case a.Terminal() && (a != b || !to.replied):
		return "something follows the end"
	case steps(b) < steps(a):
		return "a committed step is lost"
	case steps(b) > steps(a)+1:
		return "a step is left out"
	case b.Mesh.Epoch < a.Mesh.Epoch:
		return "the epoch goes back"
	case b.Mesh.Owner != a.Mesh.Owner && b.Mesh.Owner != "" && b.Mesh.Epoch == a.Mesh.Epoch:
		return "a new owner under an old epoch"
	}
	return ""
}

func TestEveryOrderOfEventsEndsOnce(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]world{
		"crashes and redeliveries":   {crashes: 2, redeliveries: 2},
		"late deliveries":            {crashes: 1, redeliveries: 1, lates: 1},
		"a guardian that errs":       {crashes: 1, redeliveries: 1, falseDeaths: 1},
		"a pause and a crash":        {crashes: 1, redeliveries: 1, pauses: 1, resumes: 1},
		"a cancel and two crashes":   {crashes: 2, redeliveries: 1, cancels: 1},
		"a cancel and a guardian":    {falseDeaths: 1, cancels: 1, pauses: 1, resumes: 1},
		"all of these, a cancel":     {crashes: 1, redeliveries: 1, falseDeaths: 1, cancels: 1},
		"one step":                   {short: true, crashes: 2, redeliveries: 2},
		"one step and a guardian":    {short: true, crashes: 1, redeliveries: 1, falseDeaths: 1},
		"one step, all, a cancel":    {short: true, crashes: 1, redeliveries: 1, falseDeaths: 1, cancels: 1},
		"one step and commands":      {short: true, crashes: 1, redeliveries: 1, cancels: 1, pauses: 1, resumes: 1},
		"a call":                     {crashes: 2, redeliveries: 1, calls: calls{tool: true, settles: 1}},
		"an approval":                {crashes: 1, redeliveries: 1, resumes: 1, calls: calls{asks: true}},
		"a move":                     {crashes: 1, redeliveries: 1, transfers: transfers{moves: 1}},
		"a move and an abort":        {crashes: 1, transfers: transfers{moves: 1, aborts: 1}},
		"a move and a pause":         {crashes: 1, pauses: 1, resumes: 1, transfers: transfers{moves: 1}},
		"a platform and a pause":     {pauses: 1, resumes: 1, transfers: transfers{leaves: 1}},
		"a platform and approval":    {crashes: 1, resumes: 1, calls: calls{asks: true}, transfers: transfers{leaves: 1}},
		"a move to a platform":       {crashes: 1, redeliveries: 1, transfers: transfers{leaves: 1}},
		"a platform and a steer":     {crashes: 1, transfers: transfers{leaves: 1, steers: 1}},
		"a platform and an abort":    {crashes: 1, transfers: transfers{leaves: 1, aborts: 1}},
		"a platform and a cancel":    {crashes: 1, cancels: 1, transfers: transfers{leaves: 1}},
		"a platform, commands there": {crashes: 1, transfers: transfers{leaves: 1, early: 1}},
		"a platform and a call":      {crashes: 1, calls: calls{tool: true}, transfers: transfers{leaves: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && (start.falseDeaths > 0 && !start.short || start.transfers.leaves > 0 && start.crashes > 0 && start.calls == calls{}) {
				t.Skip("it takes seconds")
			}
			problem, worlds, ends := explore(start)
			if problem != "" {
				t.Fatal(problem)
			}
			t.Logf("%d worlds, %d ends", worlds, len(ends))
		})
	}
}

// A fault is what workers do wrong, so that a rule is broken.
type fault string

const (
	ownsAnything  fault = "two owners"                         // a worker takes any record for its own
	cancelsEnded  fault = "two replies"                        // a cancel ends a run that has ended
	forgetsSteps  fault = "a finished step runs again"         // a claim forgets the steps
	noSweep       fault = "the run is stuck"                   // a run whose message is lost is not looked for
	callsAgain    fault = "a call is made again"               // a worker makes the call of a lost worker again
	settlesAgain  fault = "an outcome is stated twice"         // a person may settle a call that has an outcome
	wakesUnasked  fault = "a run goes on without its approval" // the sweep wakes a run that waits for a person
	takesBack     fault = "active in two systems"              // the source takes a run back whose target does not answer
	sendsOld      fault = "an old version is moved"            // the source releases a run that has changed since it was sent
	obeysEarly    fault = "changed before it is accepted"      // the other platform obeys a command before it has accepted the run
	countsNothing fault = "an older delivery takes the run"    // a worker does not count deliveries
	acceptsLate   fault = "something follows the end"          // a worker takes a run that is not as it was offered
)

// Each rule finds the fault that breaks it.
func TestEveryRuleFindsItsFault(t *testing.T) {
	t.Parallel()
	for fault, start := range map[fault]world{
		ownsAnything:  {redeliveries: 1},
		countsNothing: {redeliveries: 1, lates: 1},
		cancelsEnded:  {cancels: 1},
		forgetsSteps:  {redeliveries: 1},
		noSweep:       {crashes: 1, pauses: 1, resumes: 1},
		callsAgain:    {crashes: 1, calls: calls{tool: true}},
		settlesAgain:  {crashes: 1, calls: calls{tool: true}},
		wakesUnasked:  {resumes: 1, calls: calls{asks: true}},
		takesBack:     {transfers: transfers{leaves: 1}},
		sendsOld:      {transfers: transfers{leaves: 1, steers: 1}},
		obeysEarly:    {transfers: transfers{leaves: 1, early: 1}},
		acceptsLate:   {transfers: transfers{moves: 1}},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			if problem, _, _ := explore(start); problem != "" {
				t.Fatalf("without it: %s", problem)
			}
			start.fault = fault
			if problem, _, _ := explore(start); !strings.HasPrefix(problem, string(fault)) {
				t.Errorf("found: %.200q", problem)
			}
		})
	}
}

// The exploration reaches each way in which a transfer can go out, and a call and an approval.
func TestEveryOutcomeIsReached(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		start world
		want  []string
	}{
		{world{crashes: 1, calls: calls{tool: true, settles: 1}}, []string{"done by human.ann", "done by the worker"}},
		{world{resumes: 1, calls: calls{asks: true}}, []string{"approved"}},
		{world{transfers: transfers{moves: 1}}, []string{"aborted", "asked", "moved"}},
		{world{transfers: transfers{leaves: 1}}, []string{"aborted", "asked", "relaying"}},
	} {
		problem, _, ends := explore(c.start)
		if problem != "" {
			t.Fatal(problem)
		}
		got := map[string]bool{}
		for _, w := range ends {
			switch status, by := effect(w.rec); {
			case status != "":
				got[string(status)+" by "+cmp.Or(by, "the worker")] = true
			case w.rec.Mesh.Migration != nil:
				got[string(w.rec.Mesh.Migration.Phase)] = true
			case w.calls.approved > 0:
				got["approved"] = true
			}
		}
		if all := slices.Sorted(maps.Keys(got)); !slices.Equal(all, c.want) {
			t.Errorf("the ends are %q, want %q", all, c.want)
		}
	}
}

// tooMany worlds are a run that goes round and round.
const tooMany = 600_000

// explore visits every reachable world, and then those from which the end can be reached.
func explore(first world) (problem string, worlds int, ends []*world) {
	start := &first
	start.next, start.msgs = 1, []message{{seq: 1, holder: -1}}
	type node struct {
		w    *world
		from int
		by   string
	}
	nodes := []node{{w: start, from: -1}}
	index := map[string]int{string(start.key(nil)): 0}
	var back [][]int // who leads to a node
	back = append(back, nil)
	path := func(i int) string {
		var steps []string
		for ; i > 0; i = nodes[i].from {
			steps = append(steps, nodes[i].by)
		}
		slices.Reverse(steps)
		return strings.Join(steps, "\n  ")
	}
	to, key := new(world), []byte(nil)
	for i := 0; i < len(nodes) && problem == ""; i++ {
		if i > tooMany {
			return "too many worlds", len(nodes), nil
		}
		from := nodes[i].w
		from.moves(func(what string, change func(*world) bool) {
			msgs := append(to.msgs[:0], from.msgs...)
			*to = *from
			if to.msgs = msgs; !change(to) || problem != "" {
				return
			}
			if why := broken(from, to); why != "" {
				problem = fmt.Sprintf("%s after\n  %s\n  %s", why, path(i), what)
			}
			key = to.key(key[:0])
			j, known := index[string(key)]
			if !known {
				j = len(nodes)
				index[string(key)] = j
				nodes, back = append(nodes, node{to, i, what}), append(back, nil)
				to = new(world) // a world that is known is overwritten by the next
			}
			back[j] = append(back[j], i)
		})
	}
	if problem != "" {
		return problem, len(nodes), nil
	}
	good := make([]bool, len(nodes))
	var todo []int
	for i := range nodes {
		if nodes[i].w.done() {
			good[i], todo, ends = true, append(todo, i), append(ends, nodes[i].w)
		}
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, j := range back[i] {
			if !good[j] {
				good[j], todo = true, append(todo, j)
			}
		}
	}
	if i := slices.Index(good, false); i >= 0 {
		return fmt.Sprintf("the run is stuck after\n  %s\nrecord %+v\nqueue %v", path(i), nodes[i].w.rec.Mesh, nodes[i].w.msgs), len(nodes), ends
	}
	return "", len(nodes), ends
}
