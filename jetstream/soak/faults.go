package soak

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Kind is one way in which something breaks.
type Kind string

// The kinds of faults.
const (
	WorkerKill    Kind = "worker killed"               // kill -9; restarted soon
	WorkerStop    Kind = "worker stopped past lease"   // SIGSTOP, longer than the lease, then SIGCONT: a zombie
	WorkerBlink   Kind = "worker stopped within lease" // SIGSTOP, shorter than the lease
	WorkerRestart Kind = "worker restarted"            // SIGTERM: it drains
	WorkerHold    Kind = "worker partitioned"          // no bytes arrive, without an error, longer than the lease
	WorkerCut     Kind = "worker disconnected"         // connections reset and refused for a while
	WorkerDelay   Kind = "worker's network slow"       // each packet late
	ClientCut     Kind = "client disconnected"         // the client that submits
	ClientHold    Kind = "client partitioned"          //
	ServerKill    Kind = "server killed"               // kill -9, restarted at once
	ServerStop    Kind = "server stopped"              // SIGSTOP for a while
	ServerRestart Kind = "server restarted"            // SIGTERM
	ServerFull    Kind = "server's disk full"          // for a while; then SIGTERM and a start, as an operator does
	NodePart      Kind = "node parted from its peers"  // its clients still reach it
	NodeIsolate   Kind = "node isolated"               // from peers and clients
	NodeKill      Kind = "node killed"                 // kill -9 of one of the cluster
	NodeStop      Kind = "node stopped"                //
	NodeRestart   Kind = "node restarted"              //

	SecondWorkerKill    Kind = "second system's worker killed"             // in the system that runs are transferred to
	SecondWorkerStop    Kind = "second system's worker stopped past lease" //
	SecondServerKill    Kind = "second system's server killed"             //
	SecondServerStop    Kind = "second system's server stopped"            //
	SecondServerRestart Kind = "second system's server restarted"          //
	ReceiverKill        Kind = "receiver killed"                           // of the second system
	WayCut              Kind = "way between the systems cut"               // connections reset and refused
	WayHold             Kind = "way between the systems held"              // no bytes arrive, without an error
)

// target returns what a kind breaks.
func (k Kind) target() string {
	switch k {
	case SecondWorkerKill, SecondWorkerStop:
		return "second worker"
	case SecondServerKill, SecondServerStop, SecondServerRestart:
		return "second server"
	case ReceiverKill:
		return "receiver"
	case WayCut, WayHold:
		return "way"
	case WorkerKill, WorkerStop, WorkerBlink, WorkerRestart, WorkerHold, WorkerCut, WorkerDelay:
		return "worker"
	case ClientCut, ClientHold:
		return "client"
	}
	return "server"
}

// does returns the kind that does the same in the first system.
func (k Kind) does() Kind {
	switch k {
	case SecondWorkerKill, ReceiverKill:
		return WorkerKill
	case SecondWorkerStop:
		return WorkerStop
	case SecondServerKill:
		return ServerKill
	case SecondServerStop:
		return ServerStop
	case SecondServerRestart:
		return ServerRestart
	case WayCut:
		return WorkerCut
	case WayHold:
		return WorkerHold
	}
	return k
}

// A Fault is one planned fault.
type Fault struct {
	N      int           `json:"n"` // from 1
	Kind   Kind          `json:"kind"`
	Target int           `json:"target"`          // which worker or server
	Point  Point         `json:"point,omitempty"` // where in the commit order; empty: at any time
	After  time.Duration `json:"after"`           // since the previous fault
	For    time.Duration `json:"for"`             // how long it lasts, or until the process is restarted
}

// weighted is a kind and its frequency.
type weighted struct {
	kind   Kind
	weight int
}

// kindsFor returns the kinds for a soak of n servers, with or without disks of their own and
// a second system.
func kindsFor(n int, disks, second bool) []weighted {
	kinds := []weighted{
		{WorkerKill, 30}, {WorkerStop, 10}, {WorkerBlink, 4}, {WorkerRestart, 6}, {WorkerHold, 8}, {WorkerCut, 6}, {WorkerDelay, 4},
		{ClientCut, 2}, {ClientHold, 2},
	}
	if n == 1 {
		kinds = append(kinds, []weighted{{ServerKill, 6}, {ServerStop, 3}, {ServerRestart, 2}}...)
	} else {
		kinds = append(kinds, []weighted{{NodeKill, 8}, {NodeStop, 4}, {NodeRestart, 3}, {NodePart, 4}, {NodeIsolate, 6}}...)
	}
	if disks {
		kinds = append(kinds, weighted{ServerFull, 4})
	}
	if second {
		kinds = append(kinds, []weighted{{SecondWorkerKill, 9}, {SecondWorkerStop, 3}, {SecondServerKill, 4}, {SecondServerStop, 2}, {SecondServerRestart, 2},
			{ReceiverKill, 6}, {WayCut, 6}, {WayHold, 4}}...)
	}
	if !canFreeze {
		for i, k := range kinds {
			if does := k.kind.does(); does == WorkerStop || does == WorkerBlink || does == ServerStop || does == NodeStop {
				kinds[i].weight = 0
			}
		}
	}
	return kinds
}

// points returns the points at which a kind can strike; nil if it strikes at any time.
func (k Kind) points(second bool) []Point {
	switch k {
	case WorkerKill, WorkerStop, WorkerHold, WorkerCut, ServerKill, ServerFull, NodeKill, NodeIsolate:
		if second {
			return slices.Concat(Points, LeavePoints)
		}
		return Points
	case SecondWorkerKill, SecondWorkerStop:
		return slices.DeleteFunc(slices.Clone(Points), func(p Point) bool { return strings.HasPrefix(string(p), "move-") })
	case SecondServerKill, SecondServerStop, SecondServerRestart:
		return slices.Concat(LeavePoints, TakePoints)
	case WayCut, WayHold: // the receiver's answer is lost
		return slices.Concat(TakePoints, LeavePoints)
	case ReceiverKill:
		return TakePoints
	}
	return nil
}

// plan draws the faults from the seed: the same options give the same faults.
func plan(o Options) []Fault {
	rng := rand.New(rand.NewPCG(o.Seed, 0x5eed))
	second, lease := o.Second > 0, o.Lease
	kinds := kindsFor(o.Servers, o.Disk > 0, second)
	if len(o.Only) > 0 {
		kinds = slices.DeleteFunc(kinds, func(k weighted) bool { return !slices.Contains(o.Only, k.kind) })
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from)+1)) }
	faults := make([]Fault, o.Faults)
	turn := map[Point]int{} // by the first of the points
	for i := range faults {
		f := Fault{N: i + 1, After: between(0, 2*o.Pace)}
		pick := rng.IntN(total)
		for _, k := range kinds {
			if pick -= k.weight; pick < 0 {
				f.Kind = k.kind
				break
			}
		}
		switch f.Kind.target() {
		case "worker":
			f.Target = rng.IntN(o.Workers)
		case "second worker":
			f.Target = rng.IntN(o.Second)
		case "server":
			f.Target = rng.IntN(o.Servers)
		}
		// Two of three faults strike at a point of the commit order, and the points take
		// turns.
		points := f.Kind.points(second)
		if len(o.At) > 0 {
			points = slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return !slices.Contains(o.At, p) })
		}
		if len(points) > 0 && rng.IntN(3) > 0 {
			f.Point = points[turn[points[0]]%len(points)]
			turn[points[0]]++
		}
		switch f.Kind.does() {
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
