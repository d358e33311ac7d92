package handoff_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
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
	"github.com/aeemesh/aeemesh/state/transfer"
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
		Agent: func(_ context.Context, id, _ string) (string, error) {
			if id != agentID && id != state.AgentID(entity) {
				return "", transfer.ErrUnknownAgent
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
func (p *platform) pack(change ...func(*state.Checkpoint, *transfer.Grant)) parcel {
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
	out := c.Outbound(there, here, "1.2.3")
	g := transfer.Grant{
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
	// A UUID of the run of an unknown task.
	return state.RunID(entity, fmt.Sprint(t.Name(), time.Now().UnixNano()))
}

func (p *platform) request(id, action string) string {
	p.t.Helper()
	r, err := transfer.Request{Handoff: id, Issuer: entity, Target: here, Action: action, Issued: p.now}.Sign(p.signer)
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

// accepted packs a run, and has it sent and committed.
func (p *platform) accepted() parcel {
	p.t.Helper()
	x := p.pack()
	if _, err := p.send(x); err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.commit(x.id); err != nil {
		p.t.Fatal(err)
	}
	return x
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
