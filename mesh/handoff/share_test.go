package handoff_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// refuseAs asks for the refusal of a handoff in an entity's name.
func (p *platform) refuseAs(id, issuer string, s *sign.Signer) error {
	p.t.Helper()
	request, err := transfer.Request{Handoff: id, Issuer: issuer, Target: here, Action: handoff.ActionRefuse, Issued: p.now}.Sign(s)
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = p.client.Refuse(context.Background(), id, request)
	return err
}

// kept is how many records there are.
func (p *platform) kept() int {
	if all := p.records(); all != "" {
		return len(strings.Split(all, ", "))
	}
	return 0
}

// Finding 13 of the security review: who may hand nothing over leaves nothing.
func TestARefusalByAStrangerLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for kid, who := range map[string]string{"bob-1": "human.bob", "y-1": "agent.y"} {
		s := p.trust(kid, who)
		for range 50 {
			if err := p.refuseAs(newID(t), who, s); !errors.Is(err, transfer.ErrTokenKey) {
				t.Fatalf("%s: %v", who, err)
			}
		}
	}
	equal(t, "records", p.records(), "")
	// The agent's own, and who may hand over for all, can refuse what never came.
	q := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) { c.Issuers = []string{"service.>"} })
	if err := q.refuseAs(newID(t), "service.berlin", q.trust("svc-1", "service.berlin")); err != nil {
		t.Error(err)
	}
	if _, err := q.refuse(newID(t)); err != nil {
		t.Error(err)
	}
	equal(t, "records", q.records(), "refused small, refused small")
}

// However often an issuer asks, what is kept for it is bounded, and another one has
// its room.
func TestOneIssuerDoesNotFillTheStore(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) {
		c.Pending, c.Share = 5, 200_000 // a parcel has 60,000 bytes and a little
		c.Issuers = []string{"service.>"}
	})
	var refused int
	for range 20 {
		switch _, err := p.refuse(newID(t)); {
		case errors.Is(err, handoff.ErrBusy):
			refused++
		case err != nil:
			t.Fatal(err)
		}
	}
	equal(t, "refused", refused, 15)
	equal(t, "records", p.kept(), 5)
	if _, err := p.send(p.pack()); !errors.Is(err, handoff.ErrBusy) {
		t.Errorf("a stream beyond the bound: %v", err)
	}
	equal(t, "records", p.kept(), 5)

	// Documents, of another issuer.
	s := p.trust("svc-1", "service.berlin")
	ours := p.signer
	pack := func() parcel {
		p.signer = s
		defer func() { p.signer = ours }()
		return p.pack(func(_ *state.Checkpoint, g *transfer.Grant) { g.Issuer = "service.berlin" })
	}
	var staged []parcel
	for range 6 {
		x := pack()
		switch _, err := p.send(x); {
		case err == nil:
			staged = append(staged, x)
		case !errors.Is(err, handoff.ErrBusy):
			t.Fatal(err)
		}
	}
	equal(t, "staged", len(staged), 3)
	equal(t, "large records", strings.Count(p.records(), "staged large"), 3)
	// A run that is started makes room: its document is with the others then.
	if _, err := p.client.Commit(context.Background(), staged[0].id, func() string {
		r, err := transfer.Request{Handoff: staged[0].id, Issuer: "service.berlin", Target: here, Action: handoff.ActionCommit, Issued: p.now}.Sign(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(pack()); err != nil {
		t.Errorf("after one has gone: %v", err)
	}
	// What there is can be refused, however full it is.
	if err := p.refuseAs(staged[1].id, "service.berlin", s); err != nil {
		t.Error(err)
	}
	// Another receiver on the same store finds what is there.
	cfg := p.config()
	cfg.Pending = 5
	other, err := handoff.NewReceiver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Refuse(context.Background(), newID(t), entity, "no"); !errors.Is(err, handoff.ErrBusy) {
		t.Errorf("at another receiver: %v", err)
	}
	// When the records have expired there is room again.
	for rec, err := range p.handoffs.List(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := p.handoffs.Delete(context.Background(), rec.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := other.Collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Refuse(context.Background(), newID(t), entity, "no"); err != nil {
		t.Error(err)
	}
}

// Many streams at once are held to the bound as well.
func TestStreamsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) { c.Share = 200_000 })
	parcels := make([]parcel, 12)
	for i := range parcels {
		parcels[i] = p.pack()
	}
	var all sync.WaitGroup
	for _, x := range parcels {
		all.Go(func() {
			if _, err := p.send(x); err != nil && !errors.Is(err, handoff.ErrBusy) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := strings.Count(p.records(), "large"); n < 1 || n > 3 {
		t.Errorf("%d documents are kept", n)
	}
}

// A client that opens a stream and sends no token takes no place: the receiver accepts another
// stream meanwhile.
func TestStreamsWithoutATokenTakeNoPlace(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) { c.Open = 1 })
	stream, stranger := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := p.receiver.Receive(t.Context(), stream)
		done <- err
	}()
	if _, err := stranger.Write([]byte("{")); err != nil { // it is read: the stream is open
		t.Fatal(err)
	}
	if _, err := p.send(p.pack()); err != nil {
		t.Error(err)
	}
	_ = stranger.CloseWithError(errors.New("gone"))
	if err := <-done; err == nil {
		t.Error("a stream without a token is accepted")
	}
}

// A source with a valid token that sends a byte now and then, so that it is never silent, keeps its
// place for a bounded time only.
func TestAStreamThatDripsLosesItsPlace(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", http2), func(t *testing.T) {
			t.Parallel()
			p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) {
				c.Open, c.Idle, c.Whole = 1, 10*time.Second, 500*time.Millisecond
			})
			begun := make(chan struct{}, 8)
			p.fail = func(phase state.Phase, done bool) {
				if phase == state.PhaseReceiving && done {
					begun <- struct{}{}
				}
			}
			server := httptest.NewUnstartedServer(handoff.Handler(p.receiver, handoff.HandlerOptions{}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			x := p.pack()
			var whole bytes.Buffer
			if err := transfer.Write(t.Context(), &whole, x.token, x.doc); err != nil {
				t.Fatal(err)
			}
			init, rest, _ := strings.Cut(whole.String(), "\n")
			r, w := io.Pipe()
			defer w.Close()
			go func() {
				_, _ = io.WriteString(w, init+"\n")
				drip := time.NewTicker(50 * time.Millisecond)
				defer drip.Stop()
				for i := range len(rest) {
					<-drip.C
					if _, err := io.WriteString(w, rest[i:i+1]); err != nil {
						return
					}
				}
			}()
			go func() { // the connection may end before it reads an answer
				if resp, err := server.Client().Post(server.URL+handoff.Path, transfer.MediaType, r); err == nil {
					resp.Body.Close()
				}
				r.Close()
			}()
			within := time.After(10 * time.Second)
			select {
			case <-begun:
			case <-within:
				t.Fatal("the stream does not begin")
			}
			for again := time.NewTicker(20 * time.Millisecond); ; {
				_, err := p.send(p.pack())
				if err == nil {
					break
				}
				select {
				case <-again.C:
				case <-within:
					t.Fatalf("the next stream: %v", err)
				}
			}
			status, err := p.receiver.Get(t.Context(), x.id)
			if err != nil || status.Phase != state.PhaseRefused || !strings.HasSuffix(status.Reason, transfer.ErrTimeout.Error()) {
				t.Errorf("its handoff: %+v, %v", status, err)
			}
		})
	}
}

// One issuer does not take all places: those of another are still read.
func TestOneIssuerDoesNotTakeAllPlaces(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) {
		c.Open, c.Issuers = 4, []string{"service.berlin"}
	})
	begun := make(chan struct{}, 8)
	p.fail = func(phase state.Phase, done bool) {
		if phase == state.PhaseReceiving && done {
			begun <- struct{}{}
		}
	}
	ended := make(chan error, 8)
	var sources []*io.PipeWriter
	for range 3 {
		x := p.pack()
		var whole bytes.Buffer
		if err := transfer.Write(t.Context(), &whole, x.token, x.doc); err != nil {
			t.Fatal(err)
		}
		init, _, _ := strings.Cut(whole.String(), "\n")
		r, w := io.Pipe()
		sources = append(sources, w)
		go func() {
			_, err := p.receiver.Receive(t.Context(), r)
			ended <- err
		}()
		if _, err := io.WriteString(w, init+"\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-begun:
		case err := <-ended:
			t.Fatal(err)
		}
	}
	if _, err := p.send(p.pack()); !errors.Is(err, handoff.ErrBusy) {
		t.Errorf("a fourth of one issuer: %v", err)
	}
	ours := p.signer
	p.signer = p.trust("berlin-2", "service.berlin")
	other := p.pack(func(_ *state.Checkpoint, g *transfer.Grant) { g.Issuer = "service.berlin" })
	p.signer = ours
	if _, err := p.send(other); err != nil {
		t.Errorf("another issuer: %v", err)
	}
	for _, w := range sources {
		_ = w.CloseWithError(errors.New("gone"))
	}
	for range sources {
		<-ended
	}
	if _, err := p.send(p.pack()); err != nil {
		t.Errorf("after they have gone: %v", err)
	}
}

// mortal notes for how long records are to be kept.
type mortal struct {
	state.Mem
	mu    sync.Mutex
	lives map[string][]time.Duration // by phase
}

func (m *mortal) PutFor(ctx context.Context, id state.ID, prev uint64, data []byte, life time.Duration) (uint64, error) {
	c, err := state.Codec{}.Decode(data)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	phase := string(c.Mesh.Migration.Phase)
	m.lives[phase] = append(m.lives[phase], life)
	m.mu.Unlock()
	return m.Mem.Put(ctx, id, prev, data)
}

// Nothing of a handoff that was not accepted stays for long; and no revision of a
// record outlives a later one, or what was refused would be staged again.
func TestRecordsOfHandoffsThatWereNotAcceptedExpire(t *testing.T) {
	t.Parallel()
	store := &mortal{lives: map[string][]time.Duration{}}
	p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) { c.Handoffs = store })
	p.handoffs = store
	x, y := p.pack(), p.pack()
	for _, one := range []parcel{x, y} {
		if _, err := p.send(one); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.commit(x.id); err != nil {
		t.Fatal(err)
	}
	if _, err := p.refuse(y.id); err != nil {
		t.Fatal(err)
	}
	if _, err := p.refuse(newID(t)); err != nil { // it never came
		t.Fatal(err)
	}
	const long = 2 * handoff.Stay
	for phase, want := range map[string][]time.Duration{
		"receiving": {long, long}, "staged": {long, long}, "refused": {long, 20 * time.Minute}, "accepted": nil, "running": nil,
	} {
		if got := store.lives[phase]; len(got) != len(want) || len(want) > 0 && (got[0] != want[0] || got[1] != want[1]) {
			t.Errorf("%s: %v, want %v", phase, got, want)
		}
	}
}

// A run that was prepared for a handoff whose record has expired was never accepted:
// it does not keep the run from being handed over again.
func TestAPreparedRunWithoutAHandoffMakesRoom(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	p.fail = func(phase state.Phase, done bool) {
		if phase == state.PhaseAccepted && !done {
			panic(died{})
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = p.receiver.Commit(context.Background(), x.id)
	}()
	p.fail = nil
	if c := p.run(x.run); c == nil || c.Doc.Status != aaif.RunMigrating {
		t.Fatalf("no run was prepared: %+v", c)
	}
	again := p.pack(func(c *state.Checkpoint, g *transfer.Grant) {
		first, err := state.Codec{}.Decode(x.doc)
		if err != nil {
			t.Fatal(err)
		}
		c.Mesh.Task, c.Mesh.TaskID, c.Doc.RunID, g.RunID = first.Mesh.Task, first.Mesh.TaskID, x.run, x.run
	})
	if _, err := p.send(again); !errors.Is(err, transfer.ErrRunExists) {
		t.Errorf("while its handoff is open: %v", err)
	}
	if err := p.handoffs.Delete(context.Background(), state.ID{Entity: "service.handoff", Run: x.id}); err != nil { // it expires
		t.Fatal(err)
	}
	if _, err := p.send(again); err != nil {
		t.Fatal(err)
	}
	if _, err := p.commit(again.id); err != nil {
		t.Fatal(err)
	}
	equal(t, "status", p.run(x.run).Doc.Status, aaif.RunRunning)
}
