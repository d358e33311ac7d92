package migration

import (
	"errors"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// A token that is signed with a trusted key is for one transfer of one checkpoint to one worker.
func TestAnOfferIsForOneCheckpoint(t *testing.T) {
	t.Parallel()
	ring := new(sign.Ring)
	key := func(kid, from string) (*sign.Signer, sign.Key) {
		s, k, err := sign.NewKey(kid, sign.Ed25519, from)
		if err != nil {
			t.Fatal(err)
		}
		return s, k
	}
	ours, k := key("a-1", agent)
	theirs, other := key("b-1", "agent.b")
	for _, k := range []sign.Key{k, other} {
		if err := ring.Put(sign.Local, k); err != nil {
			t.Fatal(err)
		}
	}
	r := captured(t, "there", aaif.RunRunning)
	own, k := key("move-"+r.cp.Mesh.Migration.ID, agent) // a worker without a key makes one for one transfer
	public, err := k.Record()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := r.states.Get(t.Context(), r.cp.ID())
	if err != nil {
		t.Fatal(err)
	}
	type parts struct {
		offer  offerPayload
		grant  transfer.Grant
		c      *state.Checkpoint
		signer *sign.Signer
		mode   sign.Mode
	}
	for name, tt := range map[string]struct {
		change func(*parts)
		want   error
	}{
		"genuine":                         {func(*parts) {}, nil},
		"another revision":                {func(p *parts) { p.offer.Revision++ }, transfer.ErrTokenState},
		"a run that goes on":              {func(p *parts) { p.c.Doc.Status = aaif.RunRunning }, transfer.ErrTokenState},
		"a run that moves to a platform":  {func(p *parts) { p.c.Mesh.Migration.Phase = state.PhaseCommitted }, transfer.ErrTokenState},
		"a run that never moved":          {func(p *parts) { p.c.Mesh.Migration = nil }, transfer.ErrTokenState},
		"another transfer":                {func(p *parts) { p.grant.ID = "7b1f3c1e-90a7-4d5c-8b0e-0f5f4bb0e1aa" }, transfer.ErrTokenState},
		"another issuer":                  {func(p *parts) { p.grant.Issuer, p.signer = "agent.b", theirs }, transfer.ErrTokenState},
		"another's key":                   {func(p *parts) { p.signer = theirs }, transfer.ErrTokenKey},
		"another worker":                  {func(p *parts) { p.grant.Target = "elsewhere" }, transfer.ErrTokenAudience},
		"another checkpoint":              {func(p *parts) { p.grant.StateID = p.grant.ID }, transfer.ErrTokenState},
		"another content":                 {func(p *parts) { p.grant.Checksum = strings.Repeat("0", 64) }, transfer.ErrTokenState},
		"another run":                     {func(p *parts) { p.grant.RunID = p.grant.ID }, transfer.ErrTokenState},
		"another document":                {func(p *parts) { p.c.Doc.AgentID, p.grant.AgentID = "x", "x" }, transfer.ErrUnknownAgent},
		"a key of the record":             {func(p *parts) { p.signer, p.c.Mesh.Migration.Key = own, public.Public }, nil},
		"a key that the record lacks":     {func(p *parts) { p.signer = own }, transfer.ErrTokenKey},
		"a key of the record, not enough": {func(p *parts) { p.signer, p.c.Mesh.Migration.Key, p.mode = own, public.Public, sign.Required }, transfer.ErrTokenKey},
	} {
		c := r.cp.Clone()
		p := parts{
			offer: offerPayload{From: "here", To: "there", Run: c.Doc.RunID, Revision: rec.Revision},
			grant: transfer.Grant{
				ID: c.Mesh.Migration.ID, Issuer: agent, Source: c.Doc.Provenance.SourcePlatform, Target: "there", AgentID: c.Doc.AgentID,
				RunID: c.Doc.RunID, StateID: c.Doc.StateID, Checksum: c.Doc.Provenance.Checksum, Issued: now,
			},
			c: c, signer: ours,
		}
		tt.change(&p)
		if p.offer.Token, err = p.grant.Sign(p.signer); err != nil {
			t.Fatal(err)
		}
		m := r.mover(func(cfg *Config) {
			cfg.Worker = "there"
			cfg.Answers.Verifier = sign.Verifier{Ring: ring, Mode: p.mode}
		})
		if err := m.verifyOffer(p.offer, rec, p.c); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}
