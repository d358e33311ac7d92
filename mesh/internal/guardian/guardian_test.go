package guardian

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/mesh/internal/probe"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// crew is some workers of one agent, on one connection. A request reaches each of them.
type crew struct {
	t      *testing.T
	conn   *nats.Conn
	prober *probe.Prober

	mu      sync.Mutex
	workers map[string]*Guardian
	asked   []Request // that one worker answered
	busy    map[string]bool
	pings   map[string]*nats.Subscription
	dead    chan [2]string // who reports whom
}

func newCrew(t *testing.T, ids ...string) *crew {
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	c := &crew{
		t: t, conn: conn, prober: probe.New(conn), workers: map[string]*Guardian{},
		busy: map[string]bool{}, pings: map[string]*nats.Subscription{}, dead: make(chan [2]string, 100),
	}
	for _, id := range ids {
		to, err := probe.Subject("agent.x", id)
		if err != nil {
			t.Fatal(err)
		}
		if c.pings[id], err = conn.Subscribe(to, func(msg *nats.Msg) {
			if string(msg.Data) == probe.PingBody {
				msg.Respond(nil)
			}
		}); err != nil {
			t.Fatal(err)
		}
		c.workers[id] = New(Config{
			Entity: "agent.x", Instance: id, Prober: c.prober, Ask: c.ask,
			HasRuns: func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.busy[id] },
			Dead:    func(_ context.Context, other string) { c.dead <- [2]string{id, other} },
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	for _, g := range c.workers {
		g.Start(ctx)
		t.Cleanup(g.Wait)
	}
	t.Cleanup(stop)
	return c
}

func (c *crew) ask(_ context.Context, r Request) string {
	for _, id := range slices.Sorted(maps.Keys(c.workers)) {
		if c.workers[id].Asked(r) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.asked = append(c.asked, r)
			return id
		}
	}
	return ""
}

// runs gives a worker runs, and returns when it has asked for guardians.
func (c *crew) runs(id string, requests int) []Request {
	c.mu.Lock()
	c.busy[id] = true
	c.mu.Unlock()
	c.workers[id].Need()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		c.mu.Lock()
		asked := slices.Clone(c.asked)
		c.mu.Unlock()
		if len(asked) >= requests {
			return asked
		}
		<-tick.C
	}
	c.t.Fatal("no guardian was asked")
	return nil
}

func (c *crew) reported() [2]string {
	select {
	case d := <-c.dead:
		return d
	case <-time.After(time.Minute):
		c.t.Fatal("no death was reported")
		return [2]string{}
	}
}

func TestAWorkerWithRunsHasTwoGuardiansThatReportItsDeath(t *testing.T) {
	t.Parallel()
	c := newCrew(t, "a", "b", "c")
	back := c.prober.BackAfter().Milliseconds()
	got := c.runs("a", 4)
	want := []Request{
		{From: "a", Back: back},
		{From: "a", To: "b", Back: back},
		{From: "a", Not: "b", Back: back},
		{From: "a", To: "c", Back: back, Every: 1000},
	}
	if !slices.Equal(got, want) {
		t.Errorf("asked %+v, want %+v", got, want)
	}
	c.pings["a"].Unsubscribe()
	by := []string{c.reported()[0], c.reported()[0]}
	if slices.Sort(by); !slices.Equal(by, []string{"b", "c"}) {
		t.Errorf("reported by %v", by)
	}
}

// A worker that watches another one asks that one first: two that watch each other cost the
// fewest probes.
func TestAWorkerThatIsWatchedIsAskedFirst(t *testing.T) {
	t.Parallel()
	c := newCrew(t, "a", "c")
	if got := c.runs("c", 2)[1]; got.To != "a" {
		t.Fatalf("c asks %+v", got)
	}
	if got := c.runs("a", 3)[2]; got.From != "a" || got.To != "c" {
		t.Errorf("a asks %+v", got)
	}
}

func TestTheOwnerOfRunsIsLookedAfterOnlyIfItDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := newCrew(t, "a", "b")
	a := c.workers["a"]
	a.LookAfter(t.Context(), "b", 0)
	if a.guards() {
		t.Error("a living worker is watched")
	}
	a.LookAfter(t.Context(), "gone", 0)
	if got := c.reported(); got != [2]string{"a", "gone"} {
		t.Errorf("reported %v", got)
	}
}

// A second guardian is asked to probe once a second, and does. The first probe may come sooner.
func TestAWorkerIsProbedAsSeldomAsItAskedFor(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	c := newCrew(t, "a")
	to, err := probe.Subject("agent.x", "x")
	if err != nil {
		t.Fatal(err)
	}
	probes := make(chan *nats.Msg, 100)
	if _, err := c.conn.ChanSubscribe(to, probes); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	if !c.workers["a"].Asked(Request{From: "x", To: "a", Every: 1000}) {
		t.Fatal("the request is not answered")
	}
	for range 4 {
		natstest.Within(t, "a probe", probes)
	}
	if d := time.Since(asked); d < 2*time.Second {
		t.Errorf("four probes in %v", d)
	}
}

// A worker that needs some time to connect again is not dead before that.
func TestAWorkerHasTheTimeToConnectAgainThatItAskedFor(t *testing.T) {
	t.Parallel()
	c := newCrew(t, "a")
	const back = 500 * time.Millisecond
	asked := time.Now()
	if !c.workers["a"].Asked(Request{From: "gone", To: "a", Back: back.Milliseconds()}) {
		t.Fatal("the request is not answered")
	}
	c.reported()
	if d := time.Since(asked); d < probeAgain+back {
		t.Errorf("dead after %v", d)
	}
}

func TestARequestThatIsNotForThisWorkerIsNotAnswered(t *testing.T) {
	t.Parallel()
	c := newCrew(t, "a")
	for _, r := range []Request{
		{}, {From: "a"}, {From: "*"}, {From: "b.c"}, {From: "b", To: "c"}, {From: "b", Not: "a"}, {From: "", To: "a"},
	} {
		if c.workers["a"].Asked(r) || c.workers["a"].guards() {
			t.Errorf("answered %+v", r)
		}
	}
	if !c.workers["a"].Asked(Request{From: "b", To: "a", Every: -1, Back: 1 << 60}) {
		t.Error("a request is not answered")
	}
}

// A run that is claimed while the worker finds that it has none has a guardian at once.
func TestARunThatIsClaimedMeanwhileIsGuarded(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	asked := make(chan struct{}, 1)
	looks := 0
	var g *Guardian
	g = New(Config{
		Entity: "agent.x", Instance: "a", Prober: probe.New(natstest.Conn(t, natstest.Run(t, natsd.Config{}))),
		HasRuns: func() bool {
			if looks++; looks != 2 { // the second time there is none, and one is claimed at once
				return true
			}
			g.Need()
			return false
		},
		Ask: func(context.Context, Request) string {
			if looks > 2 {
				select {
				case asked <- struct{}{}:
				default:
				}
			}
			return ""
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	g.Start(ctx)
	t.Cleanup(g.Wait)
	t.Cleanup(stop)
	g.Need()
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Error("the run has no guardian")
	}
}

// A worker knows how long those need to connect again that asked it to watch them, but not of its
// own guardians: it only asks others in their place.
func TestAWorkerThatOnlyWatchesItsGuardianReportsNoDeath(t *testing.T) {
	t.Parallel()
	c := newCrew(t, "a", "b", "c")
	c.runs("a", 4)
	c.pings["b"].Unsubscribe()
	c.runs("a", 5) // a has noticed that b is gone, and asks again
	c.pings["a"].Unsubscribe()
	if got := c.reported(); got[1] != "a" {
		t.Errorf("%s reports %s", got[0], got[1])
	}
}
