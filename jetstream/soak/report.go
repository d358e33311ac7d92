package soak

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sorted"
)

// A Report is the result of a soak.
type Report struct {
	Seed    uint64        `json:"seed"`
	Servers int           `json:"servers"`
	Workers int           `json:"workers"`
	Second  int           `json:"second"` // workers of the second system; 0: there was none
	Lease   time.Duration `json:"lease_ns"`
	Sync    string        `json:"sync_interval"`
	Took    time.Duration `json:"took_ns"`
	Cores   int           `json:"cores"`

	Faults []FaultRow    `json:"faults"` // by kind
	Points []PointRow    `json:"points"` // by point in the commit order
	Tasks  Counts        `json:"tasks"`
	Back   []RecoveryRow `json:"recoveries"`

	Violations []Violation `json:"violations"`
	Dir        string      `json:"dir"` // where logs and traces are
}

// A FaultRow counts the faults of one kind.
type FaultRow struct {
	Kind    Kind `json:"kind"`
	Count   int  `json:"count"`
	AtPoint int  `json:"at_point"` // those that struck at a point of the commit order
}

// A PointRow counts the faults at one point.
type PointRow struct {
	Point Point `json:"point"`
	Count int   `json:"count"`
}

// A RecoveryRow says how long it took until another worker resumed a run, from the moment
// in which its owner was struck.
type RecoveryRow struct {
	After string        `json:"after"`
	Runs  int           `json:"runs"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// faults counts the faults that were carried out.
func (r *Report) faults(strikes []Strike) {
	kinds, at := map[Kind]*FaultRow{}, map[Point]int{}
	for _, s := range strikes {
		row := kinds[s.Kind]
		if row == nil {
			row = &FaultRow{Kind: s.Kind}
			kinds[s.Kind] = row
		}
		row.Count++
		if s.Point != "" && !s.Missed {
			row.AtPoint++
			at[s.Point]++
		}
	}
	for _, row := range kinds {
		r.Faults = append(r.Faults, *row)
	}
	sorted.By(r.Faults, func(a, b FaultRow) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.Kind, b.Kind)) })
	points := Points
	if r.Second > 0 {
		points = slices.Concat(Points, LeavePoints, TakePoints)
	}
	for _, p := range points {
		r.Points = append(r.Points, PointRow{Point: p, Count: at[p]})
	}
}

// Struck is the number of faults.
func (r *Report) Struck() int {
	n := 0
	for _, f := range r.Faults {
		n += f.Count
	}
	return n
}

// recoveries groups the recoveries by fault. A run of a struck worker that recovered
// while a server was broken as well is counted separately, because it had to wait for the
// server.
func (r *Report) recoveries(back []recovery, strikes []Strike, writes []time.Time) {
	took := map[string][]time.Duration{}
	for _, b := range back {
		name := string(b.kind)
		if slices.ContainsFunc(strikes, func(s Strike) bool {
			return s.Kind.target() == "server" && s.At.Before(b.at.Add(b.took)) && s.Ended.Add(r.Lease).After(b.at)
		}) {
			name += ", and a server with it"
		}
		took[name] = append(took[name], b.took)
	}
	// For a struck server: the time until the first write of any worker.
	sorted.By(writes, time.Time.Compare)
	for _, s := range strikes {
		if s.Kind.target() != "server" {
			continue
		}
		if i, _ := slices.BinarySearchFunc(writes, s.At, func(w, at time.Time) int { return w.Compare(at) }); i < len(writes) {
			took[string(s.Kind)] = append(took[string(s.Kind)], writes[i].Sub(s.At))
		}
	}
	for name, all := range took {
		slices.Sort(all)
		at := func(p float64) time.Duration { return all[min(len(all)-1, int(p*float64(len(all))))] }
		r.Back = append(r.Back, RecoveryRow{After: name, Runs: len(all), P50: at(0.50), P99: at(0.99), Max: all[len(all)-1]})
	}
	sorted.By(r.Back, func(a, b RecoveryRow) int { return cmp.Or(b.Runs-a.Runs, strings.Compare(a.After, b.After)) })
}

// Write prints the report as tables.
func (r *Report) Write(w io.Writer) error {
	servers := "one server"
	if r.Servers > 1 {
		servers = fmt.Sprintf("a cluster of %d, %d replicas", r.Servers, r.Servers)
	}
	if r.Second > 0 {
		servers += fmt.Sprintf(", and a second system with %d workers", r.Second)
	}
	fmt.Fprintf(w, "seed %d; %s, sync_interval %s; %d workers, lease %v; %d faults in %v on %d cores\n\n",
		r.Seed, servers, r.Sync, r.Workers, r.Lease, r.Struck(), r.Took.Round(time.Second), r.Cores)
	fmt.Fprintf(w, "%-48s %7s %10s\n", "faults", "count", "at a point")
	for _, f := range r.Faults {
		fmt.Fprintf(w, "  %-46s %7d %10d\n", f.Kind, f.Count, f.AtPoint)
	}
	fmt.Fprintf(w, "\n%-48s %7s\n", "points of the commit order", "faults")
	for _, p := range r.Points {
		fmt.Fprintf(w, "  %-46s %7d\n", p.Point, p.Count)
	}
	c := r.Tasks
	fmt.Fprintf(w, "\n%-48s %7s\n", "tasks", "count")
	for _, row := range []struct {
		what string
		n    int
	}{
		{"accepted", c.Accepted}, {"answered", c.Answered}, {"answered with an error", c.Errors}, {"commands, and answers of people", c.Commands}, {"of them obeyed", c.Obeyed},
		{"tasks that teams gave to agents", c.Members}, {"workers begun without the durable lane", c.Early},
		{"runs that moved to another worker of their system", c.Relocated}, {"runs that set out for the second system", c.Departed}, {"of them taken back, and gone on with at home", c.Returned}, {"of them ended there, and answered at home", c.Moved},
		{"checkpoints", c.Writes}, {"effects", c.Calls}, {"effects re-issued under the same key", c.Repeats},
	} {
		fmt.Fprintf(w, "  %-46s %7d\n", row.what, row.n)
	}
	for _, what := range slices.Sorted(maps.Keys(c.Heeded)) {
		fmt.Fprintf(w, "  %-46s %7d\n", "obeyed: "+what, c.Heeded[what])
	}
	for _, failure := range slices.Sorted(maps.Keys(c.Failed)) {
		fmt.Fprintf(w, "  %-46s %7d\n", "error "+failure, c.Failed[failure])
	}
	for _, entity := range slices.Sorted(maps.Keys(c.By)) {
		fmt.Fprintf(w, "  %-46s %7d\n", "accepted for "+entity, c.By[entity])
	}
	fmt.Fprintf(w, "\n%-48s %7s %9s %9s %9s\n", "from the fault until a worker goes on", "runs", "p50", "p99", "max")
	for _, b := range r.Back {
		fmt.Fprintf(w, "  %-46s %7d %9s %9s %9s\n", b.After, b.Runs, seconds(b.P50), seconds(b.P99), seconds(b.Max))
	}
	counts := map[Rule]int{}
	for _, v := range r.Violations {
		counts[v.Rule]++
	}
	fmt.Fprintf(w, "\n%-48s %7s\n", "violations", "count")
	for _, rule := range Rules {
		if _, err := fmt.Fprintf(w, "  %-46s %7d\n", rule, counts[rule]); err != nil {
			return err
		}
	}
	for i, v := range r.Violations {
		if i == 20 {
			fmt.Fprintf(w, "… and %d more, in %s\n", len(r.Violations)-i, r.Dir)
			break
		}
		if _, err := fmt.Fprintln(w, v); err != nil {
			return err
		}
	}
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
