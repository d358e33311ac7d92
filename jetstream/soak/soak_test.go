package soak

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// crash runs a soak to its end.
func crash(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := soakShortly(t.Context(), t, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// short returns the options of a soak with short leases, in which faults follow one another
// so soon that several are in force at most times.
func short(o Options) Options {
	o.Lease = cmp.Or(o.Lease, 600*time.Millisecond)
	o.Pace = cmp.Or(o.Pace, o.Lease/6)
	return o
}

// soakShortly runs a soak of a few seconds that holds many faults.
func soakShortly(ctx context.Context, t *testing.T, o Options) (*Report, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("it kills for half a minute")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o = short(o)
	o.Self, o.Dir = []string{self, "role"}, natstest.StoreDir(t)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	r, err := Run(ctx, o)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	return r, nil
}

// finds runs a soak until it finds a violation of one of the rules, and reports whether it
// did.
func finds(t *testing.T, o Options, rules []Rule) bool {
	t.Helper()
	asked := func(v Violation) bool { return slices.Contains(rules, v.Rule) }
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	early := false
	o.Progress = func(p Progress) {
		if slices.ContainsFunc(p.Found, asked) {
			early = true
			enough()
		}
	}
	r, err := soakShortly(ctx, t, o)
	if err != nil && !early {
		t.Fatal(err)
	}
	return early || slices.ContainsFunc(r.Violations, asked)
}

// tries is how many soaks a test may make. What the tasks of one soak do when its faults
// strike differs from run to run, so one of a few faults may miss a rare pair.
const tries = 4

// everyKind returns the options with the first seed, from theirs on, whose faults are of
// every kind that such a soak knows.
func everyKind(o Options) Options {
	planned, _ := short(o).normal() // its folder is missing
	for ; ; planned.Seed++ {
		faults := plan(planned)
		if !slices.ContainsFunc(kindsFor(planned.Servers, planned.Disk > 0, planned.Second > 0), func(k weighted) bool {
			return k.weight > 0 && !slices.ContainsFunc(faults, func(f Fault) bool { return f.Kind == k.kind })
		}) {
			o.Seed = planned.Seed
			return o
		}
	}
}

// sound checks that no promise was broken in any soak, and that enough was tried in one of
// them.
func sound(t *testing.T, o Options) {
	t.Helper()
	for range tries {
		r := crash(t, o)
		if n := len(r.Violations); n > 0 {
			t.Errorf("%d promises were broken", n) // the log says which
		}
		if r.Struck() != o.Faults || r.Tasks.Answered != r.Tasks.Accepted {
			t.Errorf("%d of %d faults struck, %d tasks were accepted, %d answered", r.Struck(), o.Faults, r.Tasks.Accepted, r.Tasks.Answered)
		}
		missed := untried(r, o.Faults)
		if t.Failed() || len(missed) == 0 {
			return
		}
		t.Logf("seed %d did not try enough: %s", o.Seed, strings.Join(missed, "; "))
		o.Seed += 100
	}
	t.Errorf("in %d soaks the faults strike nothing", tries)
}

// untried lists what a sound soak did not do.
func untried(r *Report, faults int) (missed []string) {
	for _, entity := range asked {
		if r.Tasks.By[entity] == 0 {
			missed = append(missed, "no task was for "+entity)
		}
	}
	if r.Tasks.Early < r.Workers || r.Tasks.Members == 0 || r.Tasks.Heeded["answer of a person"] == 0 {
		missed = append(missed, fmt.Sprintf("%d workers began without their lane, teams gave %d tasks, obeyed: %v", r.Tasks.Early, r.Tasks.Members, r.Tasks.Heeded))
	}
	if r.Second > 0 && r.Tasks.Moved == 0 {
		missed = append(missed, fmt.Sprintf("of %d runs that set out none ended in the second system", r.Tasks.Departed))
	}
	// With few faults of many kinds, hardly any worker is killed in the middle of a run.
	after := ""
	if faults >= 60 {
		after = string(WorkerKill)
	}
	if !slices.ContainsFunc(r.Back, func(b RecoveryRow) bool { return b.Runs > 0 && strings.HasPrefix(b.After, after) }) {
		missed = append(missed, fmt.Sprintf("no run was taken over after %q", after))
	}
	return missed
}

func TestCrashOneServer(t *testing.T) {
	t.Parallel()
	sound(t, everyKind(Options{Seed: 1, Faults: 60, Clients: 8}))
}

func TestCrashClusterOfThree(t *testing.T) {
	t.Parallel()
	sound(t, Options{Seed: 2, Faults: 30, Servers: 3, Second: -1, Clients: 8, Pace: 200 * time.Millisecond})
}

// Many runs that are transferred at once are neither lost nor run twice, whatever is killed.
func TestCrashManyMovesAtOnce(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 4, Faults: 12, Moves: 40, Pace: 400 * time.Millisecond}
	for range tries {
		r := crash(t, o)
		c := r.Tasks
		if len(r.Violations) > 0 || r.Struck() != o.Faults || c.Accepted%o.Moves != 0 || c.Answered != c.Accepted {
			t.Fatalf("%d promises were broken by %d of %d faults; %d tasks were accepted, %d answered", len(r.Violations), r.Struck(), o.Faults, c.Accepted, c.Answered)
		}
		for failure := range c.Failed { // on a busy machine the workers of one task may be killed so often
			if !strings.Contains(failure, "the task was begun 5 times and its worker was lost each time") {
				t.Fatal(failure)
			}
		}
		if c.Relocated > 0 && c.Moved > 0 && slices.ContainsFunc(r.Back, func(b RecoveryRow) bool { return b.Runs > 0 }) {
			return
		}
		t.Logf("seed %d did not try enough", o.Seed)
		o.Seed += 100
	}
	t.Errorf("in %d soaks nothing moved, or the faults struck nothing", tries)
}

// The soak must be able to find violations: it finds workers that break a promise.
func TestCrashFindsBrokenPromises(t *testing.T) {
	t.Parallel()
	for promise, by := range map[string]struct {
		rules []Rule
		lost  bool // the soak finds it at its end, when no more faults strike: each task that was lost
	}{
		BreakFence:    {rules: []Rule{RuleOneOwner, RuleOrder}},
		BreakAckFirst: {rules: []Rule{RuleLost}, lost: true},
		BreakForget:   {rules: []Rule{RuleEffectOnce}},
		BreakLetGo:    {rules: []Rule{RuleOneOwner}},
		BreakReceipt:  {rules: []Rule{RuleReceipt}},
		BreakParked:   {rules: []Rule{RuleParked}},
		BreakReply:    {rules: []Rule{RuleOneReply}},
		BreakEnd:      {rules: []Rule{RuleOrder}},
		BreakSweep:    {rules: []Rule{RuleLost}, lost: true},
		BreakOlder:    {rules: []Rule{RuleDelivery}},
	} {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			second := -1
			if promise == BreakLetGo {
				second = 1
			}
			var only []Kind
			if _, aimed := aims[promise]; !aimed {
				only = []Kind{WorkerKill, WorkerStop}
			}
			faults := 15
			if by.lost {
				faults = 8
			}
			for try := range tries {
				if finds(t, Options{Seed: 3 + uint64(100*try), Faults: faults, Only: only, Clients: 8, Second: second, Break: promise, Patience: 5 * time.Second}, by.rules) {
					return
				}
			}
			t.Errorf("workers that break the promise %q were not found out in %d soaks", promise, tries)
		})
	}
}

// The only worker of an agent that is a program stands still for longer than its lease,
// again and again, and gets messages that it has once more, before it goes on with what it
// did. Each task ends once, none with an error, and the program gets none twice. Finding D4
// of the reliability review: one of six ended with E_REPLAY, after its effect. Without the
// list of runs that are drawn and not claimed the program gets tasks twice; if it does not
// wait for the first one either, they end with E_REPLAY.
func TestCrashAProgramsWorkerStandsStill(t *testing.T) {
	t.Parallel()
	if !canFreeze {
		t.Skip("processes cannot be stopped here")
	}
	r := crash(t, Options{Seed: 4, Faults: 30, Workers: 1, Lease: 300 * time.Millisecond, Late: 600 * time.Millisecond, Second: -1, To: []string{ProgramEntity}, Only: []Kind{WorkerStop},
		At: []Point{Point(mesh.PointDelivered), Point(mesh.PointClaimed), Point(mesh.PointBeforeTerminal)}})
	if n := len(r.Violations); n > 0 {
		t.Errorf("%d promises were broken", n) // the log says which
	}
	if n := r.Tasks.By[ProgramEntity]; n < 20 || r.Tasks.Answered != n || r.Tasks.Repeats > 0 {
		t.Errorf("%d tasks were accepted, %d answered, %d given to the program twice", n, r.Tasks.Answered, r.Tasks.Repeats)
	}
}

// The disk of the server is full for a while, again and again, in the middle of whatever the
// workers write. What was accepted is answered once there is room and the server was
// restarted.
func TestCrashFullDisk(t *testing.T) {
	t.Parallel()
	try, err := newDisk(t.TempDir(), 1<<20)
	if err != nil {
		t.Skip(err)
	}
	if err := try.close(); err != nil {
		t.Fatal(err)
	}
	r := crash(t, Options{Seed: 6, Faults: 6, Pace: 400 * time.Millisecond, Second: -1, Only: []Kind{ServerFull}, Disk: 64 << 20, Clients: 8})
	if len(r.Violations) > 0 || r.Struck() != 6 || r.Tasks.Answered != r.Tasks.Accepted {
		t.Errorf("%d promises were broken by %d faults; %d tasks were accepted, %d answered", len(r.Violations), r.Struck(), r.Tasks.Accepted, r.Tasks.Answered)
	}
}
