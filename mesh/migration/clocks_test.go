package migration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

// noReplies has none.
type noReplies struct{}

func (noReplies) Follow(ctx context.Context, _, _ string, _ uint64) iter.Seq2[handoff.Reply, error] {
	return func(func(handoff.Reply, error) bool) { <-ctx.Done() }
}

// A target whose clock is so far ahead that it takes no requests refuses the run while the source
// still has it. Once it is released, the source could not learn what has become of it.
func TestARunIsNotReleasedToATargetWhoseClockIsWrong(t *testing.T) {
	t.Parallel()
	signer, key, err := sign.NewKey("berlin-1", sign.Ed25519, agent)
	if err != nil {
		t.Fatal(err)
	}
	ring := new(sign.Ring)
	if err := ring.Put(sign.Local, key); err != nil {
		t.Fatal(err)
	}
	receiver, err := handoff.NewReceiver(handoff.ReceiverConfig{
		Platform: "paris", Keys: ring, Handoffs: &state.Mem{}, States: &state.Mem{}, Replies: noReplies{},
		Agent: func(context.Context, string, string) (string, error) { return agent, nil },
		Kick:  func(context.Context, *state.Checkpoint) error { return nil },
		Now:   func(context.Context) time.Time { return now.Add(90 * time.Second) },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(handoff.Handler(receiver, handoff.HandlerOptions{}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	r := captured(t, server.URL, aaif.RunRunning)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.mover(func(cfg *Config) {
		cfg.Signer = signer
		cfg.Remotes = func(url string) (*handoff.Client, error) {
			return handoff.NewClient(url, handoff.ClientOptions{TLS: &tls.Config{RootCAs: roots}})
		}
	}).Move(ctx, r.run(t))
	if got, want := strings.Join(r.did, ", "), "advance captured, advance aborted, resume as running"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if why := r.cp.Mesh.Migration.Detail; !strings.Contains(why, "token_expired") {
		t.Errorf("why: %s", why)
	}
}
