package soak

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A Kind is one way in which something breaks.
type Kind string

// The kinds of faults.
const (
	WorkerKill    Kind = "worker killed"                // kill -9; another life begins soon
	WorkerStop    Kind = "worker stopped past lease"    // SIGSTOP, longer than the lease, then SIGCONT: a zombie
	WorkerBlink   Kind = "worker stopped within lease"  // SIGSTOP, shorter than the lease
	WorkerRestart Kind = "worker restarted"             // SIGTERM: it drains
	WorkerHold    Kind = "worker partitioned"           // nothing arrives and nobody is told, longer than the lease
	WorkerCut     Kind = "worker disconnected"          // connections reset and refused for a while
	WorkerDelay   Kind = "worker's network slow"        // each packet late
	ClientCut     Kind = "client disconnected"          // the one that submits
	ClientHold    Kind = "client partitioned"           //
	ServerKill    Kind = "server killed"                // kill -9, started again at once
	ServerStop    Kind = "server stopped"               // SIGSTOP for a while
	ServerRestart Kind = "server restarted"             // SIGTERM
	NodePart      Kind = "node parted from its peers"   // its clients still reach it
	NodeIsolate   Kind = "node isolated"                // from peers and clients
	NodeKill      Kind = "node killed"                  // kill -9 of one of the cluster
	NodeStop      Kind = "node stopped"                 //
	NodeRestart   Kind = "node restarted"               //
	MigrateKill   Kind = "worker killed in a migration" // at a phase
)

// target is what a kind breaks.
func (k Kind) target() string {
	switch k {
	case WorkerKill, WorkerStop, WorkerBlink, WorkerRestart, WorkerHold, WorkerCut, WorkerDelay:
		return "worker"
	case ClientCut, ClientHold:
		return "client"
	}
	return "server"
}

// A Fault is one thing that breaks, as the seed chose it.
type Fault struct {
	N      int           `json:"n"` // from 1
	Kind   Kind          `json:"kind"`
	Target int           `json:"target"`          // which worker or server
	Point  Point         `json:"point,omitempty"` // where in the commit order; empty: whenever
	After  time.Duration `json:"after"`           // from the fault before it
	For    time.Duration `json:"for"`             // how long it lasts, or until the next life begins
}

// weighted are kinds with how often each comes.
type weighted struct {
	kind   Kind
	weight int
}

// kindsFor are the kinds for a soak of n servers.
func kindsFor(n int) []weighted {
	kinds := []weighted{
		{WorkerKill, 30}, {WorkerStop, 10}, {WorkerBlink, 4}, {WorkerRestart, 6}, {WorkerHold, 8}, {WorkerCut, 6}, {WorkerDelay, 4},
		{ClientCut, 2}, {ClientHold, 2},
	}
	if n == 1 {
		kinds = append(kinds, []weighted{{ServerKill, 6}, {ServerStop, 3}, {ServerRestart, 2}}...)
	} else {
		kinds = append(kinds, []weighted{{NodeKill, 8}, {NodeStop, 4}, {NodeRestart, 3}, {NodePart, 4}, {NodeIsolate, 6}}...)
	}
	if !canFreeze {
		for i, k := range kinds {
			if k.kind == WorkerStop || k.kind == WorkerBlink || k.kind == ServerStop || k.kind == NodeStop {
				kinds[i].weight = 0
			}
		}
	}
	return kinds
}

// atPoints are the kinds that are also timed by the commit order.
func (k Kind) atPoints() bool {
	switch k {
	case WorkerKill, WorkerStop, WorkerHold, WorkerCut, ServerKill, NodeKill, NodeIsolate:
		return true
	}
	return false
}

// plan draws faults from a seed: the same seed, servers, workers and lease give
// the same faults in the same order. What they hit is up to the machine.
func plan(seed uint64, n int, workers, nodes int, points []Point, only []Kind, lease, pace time.Duration) []Fault {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	kinds := kindsFor(nodes)
	if len(only) > 0 {
		kinds = slices.DeleteFunc(kinds, func(k weighted) bool { return !slices.Contains(only, k.kind) })
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from)+1)) }
	faults := make([]Fault, n)
	point := 0
	for i := range faults {
		f := Fault{N: i + 1, After: between(0, 2*pace)}
		pick := rng.IntN(total)
		for _, k := range kinds {
			if pick -= k.weight; pick < 0 {
				f.Kind = k.kind
				break
			}
		}
		switch f.Kind.target() {
		case "worker":
			f.Target = rng.IntN(workers)
		case "server":
			f.Target = rng.IntN(nodes)
		}
		// Two of three faults are timed by the commit order, and every point has
		// its turn.
		if f.Kind.atPoints() && len(points) > 0 && rng.IntN(3) > 0 {
			f.Point = points[point%len(points)]
			point++
		}
		switch f.Kind {
		case WorkerKill, ServerKill, NodeKill, WorkerRestart, ServerRestart, NodeRestart:
			f.For = between(0, lease/3)
		case WorkerStop, WorkerHold, NodeStop, NodePart, NodeIsolate:
			f.For = between(lease+lease/5, 2*lease)
		case WorkerBlink:
			f.For = between(lease/10, lease/2)
		default:
			f.For = between(lease/10, lease)
		}
		faults[i] = f
	}
	return faults
}
