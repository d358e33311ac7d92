package platform

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/mesh/client"
	"github.com/aeemesh/aeemesh/mesh/internal/wire"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// The answers to a discovery may be lies: whom an agent_id means where several entities state it.
func TestChoosingAmongThoseWhoStateAnAgentID(t *testing.T) {
	t.Parallel()
	const id = "0b6d7f0e-8a5c-4ed0-9c55-3f6f5c1f6a11"
	broken := errors.New("the registry is away")
	for name, tt := range map[string]struct {
		id         string // "": id
		registered string // "-": there is no registry
		issuer     string
		claimed    []string
		want       string
		err        error
	}{
		"no worker states it":           {registered: "-", err: transfer.ErrUnknownAgent},
		"one states it":                 {registered: "-", claimed: []string{"agent.b"}, want: "agent.b"},
		"two state it":                  {registered: "-", claimed: []string{"agent.a", "agent.b"}, err: transfer.ErrUnknownAgent},
		"one of two is the issuer":      {registered: "-", issuer: "agent.b", claimed: []string{"agent.a", "agent.b"}, want: "agent.b"},
		"the issuer does not state it":  {registered: "-", issuer: "agent.c", claimed: []string{"agent.a", "agent.b"}, err: transfer.ErrUnknownAgent},
		"it is one's default":           {id: state.AgentID("agent.b"), registered: "-", issuer: "agent.a", claimed: []string{"agent.a", "agent.b"}, want: "agent.b"},
		"nothing is registered":         {claimed: []string{"agent.a", "agent.b"}, err: transfer.ErrUnknownAgent},
		"nothing is registered, one":    {claimed: []string{"agent.a"}, want: "agent.a"},
		"it is registered":              {registered: "agent.b", issuer: "agent.a", claimed: []string{"agent.a", "agent.b"}, want: "agent.b"},
		"it is registered, unserved":    {registered: "agent.b", issuer: "agent.a", claimed: []string{"agent.a"}, err: transfer.ErrUnknownAgent},
		"the registry does not answer":  {registered: "!", claimed: []string{"agent.a"}, err: broken},
		"another's default, registered": {id: state.AgentID("agent.a"), registered: "agent.b", claimed: []string{"agent.a", "agent.b"}, want: "agent.b"},
	} {
		s := &served{}
		if tt.registered != "-" {
			s.registered = func(context.Context, string) (string, error) {
				if tt.registered == "!" {
					return "", broken
				}
				return tt.registered, nil
			}
		}
		agentID := tt.id
		if agentID == "" {
			agentID = id
		}
		if got, err := s.choose(t.Context(), agentID, tt.issuer, tt.claimed); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A worker that a discovery has missed is not taken for absent: there is a second discovery
// before a transfer to its agent is refused.
func TestAnAgentIsLookedForTwice(t *testing.T) {
	t.Parallel()
	const missed = "agent.missed"
	asked := 0
	s := &served{workers: func(context.Context) ([]client.Instance, error) {
		other := []client.Instance{{Entity: "agent.other"}}
		if asked++; asked == 1 {
			return other, nil
		}
		return append(other, client.Instance{Entity: missed}), nil
	}}
	if got, err := s.claimed(t.Context(), state.AgentID(missed)); err != nil || !slices.Equal(got, []string{missed}) || asked != 2 {
		t.Errorf("%q, %v, after %d discoveries", got, err, asked)
	}
	if got, err := s.claimed(t.Context(), "00000000-0000-0000-0000-000000000000"); err != nil || len(got) > 0 || asked > 4 {
		t.Errorf("an agent that nobody serves: %q, %v, after %d discoveries", got, err, asked)
	}
}

// A run is stored so that a worker of its agent can read it, and encrypted if they encrypt.
func TestTheKeyThatARunIsStoredWith(t *testing.T) {
	t.Parallel()
	ring := func(ids ...string) *state.Keyring {
		var keys []state.Key
		for _, id := range ids {
			keys = append(keys, state.Key{ID: id, Secret: make([]byte, state.KeySize)})
		}
		k, err := state.NewKeyring(keys[0], keys[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	worker := func(keys string) map[string]string {
		return map[string]string{wire.MetaSealed: "1", wire.MetaSealKeys: keys}
	}
	clear, earlier := map[string]string{}, map[string]string{wire.MetaSealed: "1"}
	for name, tt := range map[string]struct {
		mine    *state.Keyring
		workers []map[string]string
		want    error
	}{
		"in clear":                        {nil, []map[string]string{clear}, nil},
		"no worker":                       {ring("k1"), nil, nil},
		"none here, one there":            {nil, []map[string]string{clear, worker("k1")}, state.ErrSealed},
		"one here, none there":            {ring("k1"), []map[string]string{clear}, ErrSealKey},
		"the same":                        {ring("k1"), []map[string]string{worker("k1")}, nil},
		"another":                         {ring("k1"), []map[string]string{worker("k2")}, ErrSealKey},
		"the older one there":             {ring("k1"), []map[string]string{worker("k2,k1")}, nil},
		"the older one here":              {ring("k2", "k1"), []map[string]string{worker("k1")}, ErrSealKey},
		"one of two workers has it":       {ring("k2", "k1"), []map[string]string{worker("k1"), worker("k2,k1")}, nil},
		"one of two has it, one has none": {ring("k1"), []map[string]string{worker("k1"), clear}, nil},
		"of an earlier release":           {ring("k1"), []map[string]string{earlier}, nil},
	} {
		s := &served{codec: func(string) state.Codec { return state.Codec{Seal: tt.mine} }, sealing: map[string]sealing{}}
		for _, w := range tt.workers {
			s.sealing["agent.a"] = s.sealing["agent.a"].with(w)
		}
		if err := s.checkSealKey("agent.a"); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// The version of an agent is that which its workers state now, not that of an earlier discovery.
func TestAnUpgradeAfterTheDiscovery(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		seen, now []string
		want      error
	}{
		"upgraded":           {[]string{"1.2.0"}, []string{"2.0.0"}, transfer.ErrUnknownAgent},
		"downgraded":         {[]string{"2.0.0"}, []string{"1.3.0"}, nil},
		"in the middle":      {[]string{"2.0.0"}, []string{"2.0.0", "1.3.0"}, nil},
		"nobody answers now": {[]string{"2.0.0"}, nil, transfer.ErrUnknownAgent},
	} {
		s := &served{version: map[string][]string{"agent.a": tt.seen}}
		s.workersOf = func(_ context.Context, entity string, enough func(client.Instance) bool) (out []client.Instance, err error) {
			for _, v := range tt.now {
				i := client.Instance{Entity: entity, Info: micro.Info{ServiceIdentity: micro.ServiceIdentity{Version: v}}}
				if out = append(out, i); enough(i) {
					break
				}
			}
			return out, nil
		}
		if err := s.fits(t.Context(), "agent.a", "1.2.0"); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}
