package handoff_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

// A platform is a receiver on stores in memory, behind TLS.
type platform struct {
	t        testing.TB
	ring     *sign.Ring
	signer   *sign.Signer
	handoffs state.Store
	states   state.Store
	receiver *handoff.Receiver
	server   *httptest.Server
	client   *handoff.Client
	replies  *memReplies

	mu     sync.Mutex
	now    time.Time
	kicked []string // run ids
	phases []string
	fail   func(phase state.Phase, done bool) // may panic: the process dies there
}

const (
	agentID = "11111111-1111-4111-8111-111111111111"
	entity  = "agent.x"
	here    = "paris"
	there   = "berlin"
)

func newPlatform(t testing.TB, change ...func(*handoff.ReceiverConfig, *handoff.HandlerOptions)) *platform {
	t.Helper()
	p := &platform{t: t, ring: new(sign.Ring), handoffs: new(state.Mem), states: new(state.Mem), replies: &memReplies{}, now: time.Now()}
	p.signer = p.trust("berlin-1", entity)
	opts := handoff.HandlerOptions{Version: "1.2.3", Beat: 5 * time.Millisecond}
	cfg := p.config()
	for _, f := range change {
		f(&cfg, &opts)
	}
	var err error
	if p.receiver, err = handoff.NewReceiver(cfg); err != nil {
		t.Fatal(err)
	}
	p.server = httptest.NewTLSServer(handoff.Handler(p.receiver, opts))
	t.Cleanup(p.server.Close)
	p.client = p.newClient(handoff.ClientOptions{TLS: p.trusting()})
	return p
}

func (p *platform) config() handoff.ReceiverConfig {
	return handoff.ReceiverConfig{
		Platform: here, Keys: p.ring, Handoffs: p.handoffs, States: p.states, Replies: p.replies,
		Agent: func(_ context.Context, id string) (string, error) {
			if id != agentID {
				return "", state.ErrUnknownAgent
			}
			return entity, nil
		},
		Kick: func(_ context.Context, c *state.Checkpoint) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.kicked = append(p.kicked, c.Doc.RunID)
			return nil
		},
		Now: func(context.Context) time.Time { p.mu.Lock(); defer p.mu.Unlock(); return p.now },
		Observe: func(_ context.Context, phase state.Phase, done bool) {
			p.mu.Lock()
			f := p.fail
			if done {
				p.phases = append(p.phases, string(phase))
			}
			p.mu.Unlock()
			if f != nil {
				f(phase, done)
			}
		},
	}
}

func (p *platform) trusting() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(p.server.Certificate())
	return &tls.Config{RootCAs: roots}
}

func (p *platform) newClient(opts handoff.ClientOptions) *handoff.Client {
	p.t.Helper()
	c, err := handoff.NewClient(p.server.URL, opts)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}

func (p *platform) trust(kid string, from ...string) *sign.Signer {
	p.t.Helper()
	s, key, err := sign.NewKey(kid, sign.Ed25519, from...)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.ring.Put(sign.Local, key); err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *platform) later(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

// A parcel is a run on its way.
type parcel struct {
	id, run, token string
	doc            []byte
	taskID         string
}

// pack makes a run of the source ready; change may spoil it.
func (p *platform) pack(change ...func(*state.Checkpoint, *state.Grant)) parcel {
	p.t.Helper()
	task := envelope.New(envelope.TypeTask, "human.ada", entity, "agent.ask", []byte(`{"text":"hi"}`))
	raw, err := task.AppendJSON(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	c := state.New(entity, task.ID, agentID)
	m := &c.Mesh
	m.Task, m.Priority, m.Epoch, m.Told, m.Stream = raw, "normal", 4, "half a sen", 7
	m.StoredAt, m.Deadline = p.now.Add(-time.Hour), p.now.Add(time.Hour)
	c.Doc.Conversation = []aaif.Message{{Role: aaif.MessageUser, Content: strings.Repeat("hi ", 20_000)}}
	m.Migration = &state.Migration{ID: newID(p.t), Phase: state.PhaseCaptured, Status: aaif.RunRunning}
	out := c.Outbound(there, here)
	g := state.Grant{
		ID: m.Migration.ID, Issuer: entity, Source: there, Target: here, AgentID: agentID, RunID: c.Doc.RunID,
		Issued: p.now, Expires: p.now.Add(5 * time.Minute),
	}
	for _, f := range change {
		f(out, &g)
	}
	doc, err := state.Codec{}.Encode(out)
	if err != nil {
		p.t.Fatal(err)
	}
	if g.StateID == "" {
		g.StateID = out.Doc.StateID
	}
	if g.Checksum == "" {
		g.Checksum = out.Doc.Provenance.Checksum
	}
	token, err := g.Sign(p.signer)
	if err != nil {
		p.t.Fatal(err)
	}
	return parcel{g.ID, c.Doc.RunID, token, doc, task.ID}
}

func newID(t testing.TB) string {
	t.Helper()
	// A UUID of the run of a task that nobody has.
	return state.RunID(entity, fmt.Sprint(t.Name(), time.Now().UnixNano()))
}

func (p *platform) request(id, action string) string {
	p.t.Helper()
	r, err := state.Request{Handoff: id, Issuer: entity, Target: here, Action: action, Issued: p.now}.Sign(p.signer)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p *platform) send(x parcel) (handoff.Status, error) {
	return p.client.Send(context.Background(), x.token, x.doc)
}

func (p *platform) commit(id string) (handoff.Status, error) {
	return p.client.Commit(context.Background(), id, p.request(id, handoff.ActionCommit))
}

func (p *platform) refuse(id string) (handoff.Status, error) {
	return p.client.Refuse(context.Background(), id, p.request(id, handoff.ActionRefuse))
}

// run is the run's record, nil if there is none.
func (p *platform) run(id string) *state.Checkpoint {
	p.t.Helper()
	rec, err := p.states.Get(context.Background(), state.ID{Entity: entity, Run: id})
	if errors.Is(err, state.ErrNotFound) {
		return nil
	}
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := state.Codec{}.Decode(rec.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// records are the phases of all handoffs that are kept, and their sizes.
func (p *platform) records() string {
	p.t.Helper()
	var out []string
	for rec, err := range p.handoffs.List(context.Background(), "") {
		if err != nil {
			p.t.Fatal(err)
		}
		c, err := state.Codec{}.Decode(rec.Data)
		if err != nil {
			p.t.Fatal(err)
		}
		size := "small"
		if len(rec.Data) > 10_000 {
			size = "large"
		}
		out = append(out, string(c.Mesh.Migration.Phase)+" "+size)
	}
	return strings.Join(out, ", ")
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// memReplies are the replies to the tasks of one platform.
type memReplies struct {
	mu    sync.Mutex
	list  map[string][]handoff.Reply
	added chan struct{}
}

func (m *memReplies) add(taskID string, r handoff.Reply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list == nil {
		m.list = map[string][]handoff.Reply{}
	}
	m.list[taskID] = append(m.list[taskID], r)
	if m.added != nil {
		close(m.added)
		m.added = nil
	}
}

func (m *memReplies) Follow(ctx context.Context, _, taskID string, after uint64) iter.Seq2[handoff.Reply, error] {
	return func(yield func(handoff.Reply, error) bool) {
		for i := 0; ; {
			m.mu.Lock()
			list := m.list[taskID][i:]
			if m.added == nil {
				m.added = make(chan struct{})
			}
			wait := m.added
			m.mu.Unlock()
			for _, r := range list {
				if i++; r.Seq > after && !yield(r, nil) {
					return
				}
			}
			select {
			case <-wait:
			case <-ctx.Done():
				return
			}
		}
	}
}

func TestHandoffArrives(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	about, err := p.client.About(context.Background())
	if err != nil || about != (handoff.About{Platform: here, Version: "1.2.3"}) {
		t.Fatalf("about %+v, %v", about, err)
	}
	x := p.pack()
	status, err := p.send(x)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "staged", status, handoff.Status{Handoff: x.id, Phase: state.PhaseStaged, Run: x.run, Entity: entity})
	if p.run(x.run) != nil || len(p.kicked) != 0 {
		t.Fatal("the run is here before the source let go of it")
	}
	equal(t, "records", p.records(), "staged large")

	p.later(10 * time.Second)
	for range 3 { // the answer may be lost
		status, err = p.commit(x.id)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "accepted", status.Phase, state.PhaseRunning)
	}
	c := p.run(x.run)
	if c == nil {
		t.Fatal("no run")
	}
	m := c.Mesh
	equal(t, "status", c.Doc.Status, aaif.RunRunning)
	equal(t, "epoch", m.Epoch, 5)
	equal(t, "told", m.Told, "half a sen")
	equal(t, "stream", m.Stream, 7)
	equal(t, "parent", *m.Parent, state.Parent{Kind: "migration", Run: x.run, StateID: m.Parent.StateID, Platform: there})
	equal(t, "phase", m.Migration.Phase, state.PhaseAccepted)
	equal(t, "conversation", len(c.Doc.Conversation), 1)
	// An hour and the way have passed, by whichever clock.
	if d := p.now.Sub(m.StoredAt); d < time.Hour || d > time.Hour+time.Minute {
		t.Errorf("stored %v ago", d)
	}
	equal(t, "kicks", fmt.Sprint(p.kicked), fmt.Sprint([]string{x.run}))
	equal(t, "records", p.records(), "running small")
	equal(t, "phases", strings.Join(p.phases, " "), "receiving staged accepted running")
}

// A run that waited at its source waits on, and no worker is woken for it.
func TestHandoffOfAPausedRun(t *testing.T) {
	t.Parallel()
	for _, status := range []aaif.RunStatus{aaif.RunPaused, aaif.RunAwaitingApproval} {
		p := newPlatform(t)
		x := p.pack(func(c *state.Checkpoint, _ *state.Grant) { c.Mesh.Migration.Status = status })
		if _, err := p.send(x); err != nil {
			t.Fatal(err)
		}
		if _, err := p.commit(x.id); err != nil {
			t.Fatal(err)
		}
		equal(t, "status", p.run(x.run).Doc.Status, status)
		equal(t, "kicks", len(p.kicked), 0)
	}
}

func TestHandoffWithATokenThatIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for name, tt := range map[string]struct {
		change func(*state.Checkpoint, *state.Grant)
		want   error
	}{
		"expired": {func(_ *state.Checkpoint, g *state.Grant) {
			g.Issued = g.Issued.Add(-10 * time.Minute)
			g.Expires = g.Issued.Add(time.Minute)
		}, state.ErrTokenExpired},
		"for another":    {func(_ *state.Checkpoint, g *state.Grant) { g.Target = "rome" }, state.ErrTokenAudience},
		"checksum":       {func(_ *state.Checkpoint, g *state.Grant) { g.Checksum = strings.Repeat("0", 64) }, state.ErrTokenState},
		"another state":  {func(_ *state.Checkpoint, g *state.Grant) { g.StateID = agentID }, state.ErrTokenState},
		"another run":    {func(_ *state.Checkpoint, g *state.Grant) { g.RunID = agentID }, state.ErrTokenState},
		"another source": {func(_ *state.Checkpoint, g *state.Grant) { g.Source = "rome" }, state.ErrTokenState},
		"unknown agent": {func(c *state.Checkpoint, g *state.Grant) {
			c.Doc.AgentID, g.AgentID = "99999999-1111-4111-8111-111111111111", "99999999-1111-4111-8111-111111111111"
		}, state.ErrUnknownAgent},
		"another issuer": {func(_ *state.Checkpoint, g *state.Grant) { g.Issuer = "agent.y" }, state.ErrTokenKey},
	} {
		x := p.pack(tt.change)
		if _, err := p.send(x); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if p.run(x.run) != nil || strings.Contains(p.records(), "large") {
			t.Errorf("%s: something is left: %s", name, p.records())
		}
	}
	// A key that speaks for another agent may not hand over this one's runs,
	// though it is trusted.
	other := p.trust("other", "agent.y")
	ours := p.signer
	p.signer = other
	x := p.pack(func(_ *state.Checkpoint, g *state.Grant) { g.Issuer = "agent.y" })
	p.signer = ours
	if _, err := p.send(x); !errors.Is(err, state.ErrTokenKey) {
		t.Errorf("a key of another agent: %v", err)
	}
	// Only the token whose stream went wrong behind it has left a trace.
	equal(t, "records", p.records(), "refused small")
}

func TestHandoffTokenIsGoodForOneUse(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	const n = 8
	errs := make(chan error, n)
	for range n {
		go func() { _, err := p.send(x); errs <- err }()
	}
	won := 0
	for range n {
		if err := <-errs; err == nil {
			won++
		} else if !errors.Is(err, state.ErrTokenUsed) {
			t.Errorf("a replay: %v", err)
		}
	}
	equal(t, "winners", won, 1)
	if _, err := p.commit(x.id); err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(x); !errors.Is(err, state.ErrRunExists) {
		t.Errorf("after the run has begun: %v", err)
	}
	// Nor when the run is gone, nor when the handoff was refused.
	if err := p.states.Delete(context.Background(), state.ID{Entity: entity, Run: x.run}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(x); !errors.Is(err, state.ErrTokenUsed) {
		t.Errorf("after the run is gone: %v", err)
	}
	y := p.pack()
	if _, err := p.refuse(y.id); err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(y); !errors.Is(err, state.ErrTokenUsed) {
		t.Errorf("after a refusal that came first: %v", err)
	}
}

func TestHandoffOfARunThatIsHere(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	data, err := state.Codec{}.Encode(&state.Checkpoint{Doc: aaif.State{AgentID: agentID, RunID: x.run, Status: aaif.RunRunning}, Mesh: state.Mesh{Format: 1, Entity: entity}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.states.Put(context.Background(), state.ID{Entity: entity, Run: x.run}, 0, data); err != nil {
		t.Fatal(err)
	}
	if _, err := p.send(x); !errors.Is(err, state.ErrRunExists) {
		t.Error(err)
	}
	equal(t, "records", p.records(), "")
}

// Of a commit and a refusal at the same time one wins, and everybody hears which.
func TestHandoffCommitRacesRefusal(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for range 30 {
		x := p.pack()
		if _, err := p.send(x); err != nil {
			t.Fatal(err)
		}
		results := make(chan state.Phase, 4)
		for i := range 4 {
			go func() {
				status, err := p.commit, error(nil)
				if i%2 == 1 {
					status = p.refuse
				}
				s, err := status(x.id)
				if err != nil {
					t.Error(err)
				}
				results <- s.Phase
			}()
		}
		refused := 0
		for range 4 {
			switch phase := <-results; phase {
			case state.PhaseRefused:
				refused++
			case state.PhaseAccepted, state.PhaseRunning:
			default:
				t.Errorf("the last word is %q", phase)
			}
		}
		run := p.run(x.run)
		if refused != 0 && refused != 4 || (refused == 4) != (run == nil) {
			t.Fatalf("%d of 4 heard of a refusal; run %v", refused, run)
		}
	}
}

func TestHandoffThatIsBrokenOff(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	var whole bytes.Buffer
	if err := state.WriteHandoff(context.Background(), &whole, x.token, x.doc); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(whole.String(), "\n")
	for name, stream := range map[string]string{
		"cut off":       strings.Join(lines[:len(lines)-2], ""),
		"handoff_error": strings.Join(lines[:2], "") + `{"type":"handoff_error","seq":2,"code":"aborted","message":"no"}` + "\n",
		"half a line":   whole.String()[:len(lines[0])+20],
	} {
		p := newPlatform(t)
		x := p.pack()
		var own bytes.Buffer
		if err := state.WriteHandoff(context.Background(), &own, x.token, x.doc); err != nil {
			t.Fatal(err)
		}
		init, _, _ := strings.Cut(own.String(), "\n")
		resp := p.post(strings.Replace(stream, strings.TrimSuffix(lines[0], "\n"), init, 1))
		equal(t, name, resp.StatusCode, http.StatusUnprocessableEntity)
		equal(t, name, p.records(), "refused small")
		if p.run(x.run) != nil {
			t.Errorf("%s: there is a run", name)
		}
	}
	resp := p.post(strings.Replace(whole.String(), "hi hi", "hi ho", 1))
	equal(t, "another content", resp.StatusCode, http.StatusUnprocessableEntity)
	equal(t, "records", p.records(), "refused small")
	if status, err := p.commit(x.id); err != nil || status.Phase != state.PhaseRefused {
		t.Errorf("a commit of it: %+v, %v", status, err)
	}
	if p.run(x.run) != nil || len(p.kicked) > 0 {
		t.Error("there is a run")
	}
}

// post sends a body as it is.
func (p *platform) post(body string) *http.Response {
	p.t.Helper()
	resp, err := p.server.Client().Post(p.server.URL+handoff.Path, state.HandoffType, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestHandoffIsAbortedByItsSender(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	p.fail = func(phase state.Phase, done bool) {
		if phase == state.PhaseReceiving && done {
			cancel(fmt.Errorf("%w: changed my mind", state.ErrHandoffAborted))
		}
	}
	big := p.pack(func(c *state.Checkpoint, _ *state.Grant) {
		for range 100 {
			c.Doc.Conversation = append(c.Doc.Conversation, c.Doc.Conversation[0])
		}
	})
	if _, err := p.client.Send(ctx, big.token, big.doc); !errors.Is(err, state.ErrHandoffAborted) {
		t.Error(err)
	}
	if status, err := p.refuse(big.id); err != nil || status.Phase != state.PhaseRefused {
		t.Errorf("%+v, %v", status, err)
	}
	equal(t, "records", p.records(), "refused small")
}

func TestHandoffNeedsTLS(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	for _, url := range []string{"http://" + p.server.Listener.Addr().String(), "ftp://x", "berlin:7443", ""} {
		if _, err := handoff.NewClient(url, handoff.ClientOptions{}); !errors.Is(err, handoff.ErrPlaintext) {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, url := range []string{"https://", "https://u:p@x", "https://x?y", "https://x#y"} {
		if _, err := handoff.NewClient(url, handoff.ClientOptions{}); err == nil {
			t.Errorf("%q passed", url)
		}
	}
	if _, err := handoff.NewClient(p.server.URL, handoff.ClientOptions{TLS: &tls.Config{InsecureSkipVerify: true}}); err == nil {
		t.Error("verification was turned off")
	}
	// A handler in a server without TLS refuses whatever comes.
	plain := httptest.NewServer(handoff.Handler(p.receiver, handoff.HandlerOptions{}))
	defer plain.Close()
	x := p.pack()
	var body bytes.Buffer
	if err := state.WriteHandoff(context.Background(), &body, x.token, x.doc); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(plain.URL+handoff.Path, state.HandoffType, &body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	equal(t, "status", resp.StatusCode, http.StatusUpgradeRequired)
	equal(t, "records", p.records(), "")
	// A target whose certificate nobody knows is not talked to.
	if _, err := p.newClient(handoff.ClientOptions{}).Send(context.Background(), x.token, x.doc); err == nil {
		t.Error("an unknown certificate was trusted")
	}
	equal(t, "records", p.records(), "")
}

func TestHandoffBearer(t *testing.T) {
	t.Parallel()
	secret := "s3cret"
	p := newPlatform(t, func(_ *handoff.ReceiverConfig, o *handoff.HandlerOptions) {
		o.Bearer = func() (string, error) { return secret, nil }
	})
	x := p.pack()
	if _, err := p.send(x); err == nil || !strings.Contains(err.Error(), "401") && !strings.Contains(err.Error(), "bearer") {
		t.Errorf("without: %v", err)
	}
	equal(t, "records", p.records(), "")
	with := p.newClient(handoff.ClientOptions{TLS: p.trusting(), Bearer: func() (string, error) { return "s3cret", nil }})
	if _, err := with.Send(context.Background(), x.token, x.doc); err != nil {
		t.Error(err)
	}
}

func TestHandoffRequestsAreSigned(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	stranger, _, err := sign.NewKey("berlin-1", sign.Ed25519, entity)
	if err != nil {
		t.Fatal(err)
	}
	other := p.trust("other", "agent.y")
	make := func(s *sign.Signer, change func(*state.Request)) string {
		r := state.Request{Handoff: x.id, Issuer: entity, Target: here, Action: handoff.ActionCommit, Issued: p.now}
		change(&r)
		text, err := r.Sign(s)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, request := range map[string]string{
		"none":             "",
		"the token":        x.token,
		"another's key":    make(stranger, func(*state.Request) {}),
		"another's word":   make(other, func(r *state.Request) { r.Issuer = "agent.y" }),
		"another action":   make(p.signer, func(r *state.Request) { r.Action = handoff.ActionStatus }),
		"another handoff":  make(p.signer, func(r *state.Request) { r.Handoff = newID(t) }),
		"another platform": make(p.signer, func(r *state.Request) { r.Target = "rome" }),
		"old":              make(p.signer, func(r *state.Request) { r.Issued = r.Issued.Add(-2 * time.Minute) }),
	} {
		if _, err := p.client.Commit(ctx, x.id, request); err == nil {
			t.Errorf("%s: committed", name)
		}
	}
	equal(t, "records", p.records(), "staged large")
	unknown := newID(t)
	if _, err := p.client.Commit(ctx, unknown, make(p.signer, func(r *state.Request) { r.Handoff = unknown })); !errors.Is(err, handoff.ErrUnknown) {
		t.Errorf("an unknown handoff: %v", err)
	}
	if status, err := p.client.Status(ctx, x.id, make(p.signer, func(r *state.Request) { r.Action = handoff.ActionStatus })); err != nil || status.Phase != state.PhaseStaged {
		t.Errorf("status %+v, %v", status, err)
	}
}

func TestHandoffIsCollected(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	collect := func(refused, started int) {
		t.Helper()
		r, s, err := p.receiver.Collect(context.Background())
		if err != nil || r != refused || s != started {
			t.Errorf("collect: %d, %d, %v; want %d, %d", r, s, err, refused, started)
		}
	}
	collect(0, 0)
	p.later(handoff.DefaultStay + time.Second)
	collect(1, 0)
	equal(t, "records", p.records(), "refused small")
	if status, err := p.commit(x.id); err != nil || status.Phase != state.PhaseRefused {
		t.Errorf("%+v, %v", status, err)
	}
	equal(t, "reason", p.records(), "refused small")
}

// died is how a process ends in these tests.
type died struct{}

// The receiver dies before or after each write. What it leaves is finished by
// another one, and the run is here once or not at all.
func TestReceiverDiesAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, phase := range []state.Phase{state.PhaseReceiving, state.PhaseStaged, state.PhaseAccepted, state.PhaseRunning} {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprint(phase, " ", done), func(t *testing.T) {
				t.Parallel()
				p := newPlatform(t)
				x := p.pack()
				p.fail = func(at state.Phase, after bool) {
					if at == phase && after == done {
						p.mu.Lock()
						p.fail = nil
						p.mu.Unlock()
						panic(died{})
					}
				}
				dies := func(f func()) (dead bool) {
					defer func() {
						if v := recover(); v != nil {
							if _, ok := v.(died); !ok {
								panic(v)
							}
							dead = true
						}
					}()
					f()
					return false
				}
				ctx := context.Background()
				var stream bytes.Buffer
				if err := state.WriteHandoff(ctx, &stream, x.token, x.doc); err != nil {
					t.Fatal(err)
				}
				dead := dies(func() {
					if _, err := p.receiver.Receive(ctx, &stream); err != nil {
						t.Fatal(err)
					}
				})
				staged := !dead
				dead = dead || dies(func() {
					if _, err := p.receiver.Commit(ctx, x.id); err != nil {
						t.Fatal(err)
					}
				})
				if !dead {
					t.Fatal("it lives")
				}
				if !staged {
					// The source hears nothing, takes its run back, and says so.
					status, err := p.refuse(x.id)
					if err != nil {
						t.Fatal(err)
					}
					equal(t, "phase", status.Phase, state.PhaseRefused)
					equal(t, "records", p.records(), "refused small")
					if p.run(x.run) != nil {
						t.Error("there is a run")
					}
					return
				}
				// The source has let go. It asks until it knows.
				p.later(handoff.DefaultIdle + time.Second)
				if _, _, err := p.receiver.Collect(ctx); err != nil {
					t.Fatal(err)
				}
				status, err := p.commit(x.id)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "phase", status.Phase, state.PhaseRunning)
				run := p.run(x.run)
				if run == nil || run.Doc.Status != aaif.RunRunning || run.Mesh.Epoch != 5 || len(p.kicked) == 0 {
					t.Errorf("run %+v, kicks %v", run, p.kicked)
				}
				equal(t, "records", p.records(), "running small")
			})
		}
	}
}

// A run that has ended, and is forgotten, does not begin anew because its
// receiver had died before it could write that it had begun.
func TestReceiverDoesNotStartTwice(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	p.fail = func(at state.Phase, after bool) {
		if at == state.PhaseRunning && !after {
			panic(died{})
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = p.receiver.Commit(context.Background(), x.id)
	}()
	p.fail = nil
	equal(t, "kicks", len(p.kicked), 1)
	if err := p.states.Delete(context.Background(), state.ID{Entity: entity, Run: x.run}); err != nil {
		t.Fatal(err)
	}
	p.later(time.Hour)
	if _, _, err := p.receiver.Collect(context.Background()); err != nil {
		t.Fatal(err)
	}
	if p.run(x.run) != nil || len(p.kicked) != 1 {
		t.Errorf("it began anew: %v", p.kicked)
	}
	equal(t, "records", p.records(), "running small")
}

func TestHandoffReplies(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	if _, err := p.send(x); err != nil {
		t.Fatal(err)
	}
	if _, err := p.commit(x.id); err != nil {
		t.Fatal(err)
	}
	reply := func(n uint64, last bool) handoff.Reply {
		return handoff.Reply{Seq: n, Header: map[string][]string{"Nats-Msg-Id": {fmt.Sprint(n)}}, Data: []byte(fmt.Sprintf(`{"n":%d}`, n)), Last: last}
	}
	for n := uint64(5); n < 10; n++ {
		p.replies.add(x.taskID, reply(n, false))
	}
	var got []string
	ctx := context.Background()
	enough := errors.New("enough")
	// The connection is lost in the middle, and taken up again.
	err := p.client.Replies(ctx, x.id, p.request(x.id, handoff.ActionReplies), 7, func(r handoff.Reply) error {
		got = append(got, string(r.Data))
		return enough
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	err = p.client.Replies(ctx, x.id, p.request(x.id, handoff.ActionReplies), 8, func(r handoff.Reply) error {
		got = append(got, string(r.Data)+r.Header["Nats-Msg-Id"][0])
		if r.Seq == 9 {
			p.replies.add(x.taskID, reply(10, true))
			p.replies.add(x.taskID, reply(11, false)) // never
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	equal(t, "replies", strings.Join(got, " "), `{"n":8} {"n":9}9 {"n":10}10`)
}

// A target that says nothing is given up, and so is a source.
func TestHandoffSilence(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, func(c *handoff.ReceiverConfig, o *handoff.HandlerOptions) {
		c.Idle = 20 * time.Millisecond
		o.Beat = time.Hour
	})
	x := p.pack()
	r, w := io.Pipe()
	go func() {
		var b bytes.Buffer
		_ = state.WriteHandoff(context.Background(), &b, x.token, x.doc)
		line, _, _ := bytes.Cut(b.Bytes(), []byte("\n"))
		_, _ = w.Write(append(line, '\n')) // and then nothing
	}()
	resp, err := p.server.Client().Post(p.server.URL+handoff.Path, state.HandoffType, r)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode < 400 {
			t.Errorf("status %s", resp.Status)
		}
	}
	w.Close()
	deadline := time.Now().Add(10 * time.Second)
	for p.records() != "refused small" && time.Now().Before(deadline) {
		tick := time.NewTimer(time.Millisecond)
		<-tick.C
	}
	equal(t, "records", p.records(), "refused small")

	y := p.pack()
	if _, err := p.send(y); err != nil {
		t.Fatal(err)
	}
	if _, err := p.commit(y.id); err != nil {
		t.Fatal(err)
	}
	hasty := p.newClient(handoff.ClientOptions{TLS: p.trusting(), Idle: 20 * time.Millisecond})
	err = hasty.Replies(context.Background(), y.id, p.request(y.id, handoff.ActionReplies), 0, func(handoff.Reply) error { return nil })
	if err == nil {
		t.Error("replies without an end")
	}
}

func TestHandoffBusy(t *testing.T) {
	t.Parallel()
	p := newPlatform(t, func(c *handoff.ReceiverConfig, _ *handoff.HandlerOptions) { c.Open = 1 })
	held, release := make(chan struct{}), make(chan struct{})
	p.fail = func(phase state.Phase, done bool) {
		if phase == state.PhaseReceiving && !done {
			close(held)
			<-release
		}
	}
	x := p.pack()
	first := make(chan error, 1)
	go func() { _, err := p.send(x); first <- err }()
	<-held
	if _, err := p.send(p.pack()); !errors.Is(err, handoff.ErrBusy) {
		t.Errorf("a second stream: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// A file brings its token with it; there is nobody to wait for.
func TestImportOfAFile(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	x := p.pack()
	file, err := state.PutToken(x.doc, x.token)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := p.receiver.Import(ctx, bytes.Replace(file, []byte("hi hi"), []byte("hi ho"), 1)); !errors.Is(err, state.ErrChecksum) {
		t.Errorf("a changed file: %v", err)
	}
	if _, err := p.receiver.Import(ctx, x.doc); !errors.Is(err, state.ErrTokenInvalid) {
		t.Errorf("without a token: %v", err)
	}
	equal(t, "records", p.records(), "")
	status, err := p.receiver.Import(ctx, file)
	if err != nil || status.Phase != state.PhaseRunning {
		t.Fatalf("%+v, %v", status, err)
	}
	equal(t, "status", p.run(x.run).Doc.Status, aaif.RunRunning)
	if _, err := p.receiver.Import(ctx, file); !errors.Is(err, state.ErrRunExists) {
		t.Errorf("again: %v", err)
	}
	// The document of another may not travel with this token.
	other, err := state.PutToken(p.pack().doc, x.token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.receiver.Import(ctx, other); !errors.Is(err, state.ErrTokenState) {
		t.Errorf("another document: %v", err)
	}
}

// A document of another platform becomes a task here.
func TestImportFromAnotherPlatform(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	doc := &aaif.State{
		Standard: "SC-006", StateID: newID(t), AgentID: agentID, RunID: newID(t), CheckpointAt: state.Time(p.now), Status: aaif.RunPaused,
		Conversation: []aaif.Message{{Role: aaif.MessageUser, Content: "and now?"}},
		Provenance:   &aaif.StateProvenance{SourcePlatform: there},
	}
	plain, err := aaif.New(doc)
	if err != nil {
		t.Fatal(err)
	}
	text, err := plain.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	g := state.Grant{
		ID: newID(t), Issuer: entity, Source: there, Target: here, AgentID: agentID, RunID: doc.RunID, StateID: doc.StateID, Issued: p.now,
	}
	if g.Checksum, err = state.ContentChecksum(text); err != nil {
		t.Fatal(err)
	}
	token, err := g.Sign(p.signer)
	if err != nil {
		t.Fatal(err)
	}
	file, err := state.PutToken(text, token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.receiver.Import(context.Background(), file); err != nil {
		t.Fatal(err)
	}
	c := p.run(doc.RunID)
	task, err := envelope.Parse(c.Mesh.Task)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "task", string(task.Payload), `{"text":"and now?"}`)
	equal(t, "task id", task.ID, c.Mesh.TaskID)
	equal(t, "status", c.Doc.Status, aaif.RunRunning)
	equal(t, "conversation", c.Doc.Conversation[0].Content, "and now?")
}

func TestReceiverConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := handoff.NewReceiver(handoff.ReceiverConfig{Issuers: []string{"a..b"}})
	for _, want := range []string{"Platform", "Keys", "Agent", "Handoffs", "States", "Kick", "Replies", "issuer"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not missed: %v", want, err)
		}
	}
}
