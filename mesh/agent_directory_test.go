package mesh_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/micro"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/aeemesh/aeemesh/state/transfer"
)

// impersonate answers $SRV.INFO in paris as a worker would that has another's agent_id.
func (v *voyage) impersonate(entity, agentID string) {
	v.t.Helper()
	service, err := micro.AddService(natstest.Conn(v.t, v.paris.srv), micro.Config{
		Name: "agent-evil", Version: "1.0.0", Metadata: map[string]string{mesh.MetaEntity: entity, mesh.MetaAgentID: agentID, mesh.MetaPrefix: ""},
	})
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = service.Stop() })
}

// Finding 23 of the security review: what a worker says of itself on $SRV.INFO keeps
// no run from coming.
func TestAStrangerTakesNoAgentIDAway(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"that stands for the entity": "", "of a document": uuid.NewString()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVoyage(t, func(v *voyage) { v.agentID = id })
			claimed := id
			if claimed == "" {
				claimed = state.AgentID(reviewer)
			}
			v.impersonate("agent.evil", claimed)
			v.impersonate("agent.aardvark", claimed)
			v.write(2)
			v.move()
			within(t, "the target", v.target.begun)
			v.finish("target")
		})
	}
}

// Whom an agent_id means: what the operator says, what is registered, which workers state it.
// A discovery does not wait for workers that answer late, so another one follows where it missed one.
func TestWhoIsMeantByAnAgentID(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	p := newParcel(t, func(v *voyage) { v.agentID = id })
	p.write(2)
	service := newKeyFor(t, "service-1", "service.berlin", p.parisKeys, p.berlinKeys)
	file, err := p.export(func(o *mesh.ExportOptions) { o.Signer, o.Issuer = service, "service.berlin" })
	if err != nil {
		t.Fatal(err)
	}
	p.impersonate("agent.evil", id)
	receiver := func(change func(*mesh.ReceiverOptions)) *handoff.Receiver {
		node := p.paris.lane(mesh.Config{Entity: "service.handoff", Verifier: sign.Verifier{Ring: p.parisKeys}})
		o := mesh.ReceiverOptions{Platform: "paris", Issuers: []string{"service.>"}, Handoffs: jetstream.NewHandoffs(p.paris.js(p.paris.nc), p.paris.m)}
		change(&o)
		r, err := node.Receiver(o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	registered := func(entity string) func(*mesh.ReceiverOptions) {
		return func(o *mesh.ReceiverOptions) {
			o.Registered = func(context.Context, string) (string, error) { return entity, nil }
		}
	}
	for name, tt := range map[string]struct {
		change func(*mesh.ReceiverOptions)
		want   string
		err    string
	}{
		"two claim it":                {change: func(*mesh.ReceiverOptions) {}, err: "workers of 2 entities state that they serve it, agent.evil and agent.reviewer among them"},
		"nothing is registered":       {change: registered(""), err: "workers of 2 entities state that they serve it, agent.evil and agent.reviewer among them"},
		"it is registered":            {change: registered(reviewer), want: reviewer},
		"it is registered, unserved":  {change: registered("agent.gone"), err: "it is registered as agent.gone, which no worker serves"},
		"the operator says it":        {change: func(o *mesh.ReceiverOptions) { o.Agents = map[string]string{id: reviewer} }, want: reviewer},
		"the operator says it before": {change: func(o *mesh.ReceiverOptions) { registered("agent.evil")(o); o.Agents = map[string]string{id: reviewer} }, want: reviewer},
	} {
		eventually(t, name, func() bool {
			got, err := receiver(tt.change).Entity(ctxFor(t), file, false)
			if tt.err == "" {
				return got == tt.want && err == nil
			}
			return got == "" && errors.Is(err, transfer.ErrUnknownAgent) && strings.HasSuffix(err.Error(), tt.err)
		})
	}
	eventually(t, "the run is imported", func() bool {
		_, err := receiver(registered(reviewer)).Import(ctxFor(t), file, nil)
		return err == nil
	})
}

// swept is a store that is asked to make room.
type swept struct {
	state.Mem
	n atomic.Int64
}

func (s *swept) Sweep(context.Context, jetstream.SweepOptions) (jetstream.Swept, error) {
	s.n.Add(1)
	return jetstream.Swept{}, nil
}

// The documents of refused handoffs are kept beside those of runs, where no worker
// looks for them.
func TestAReceiverSweepsTheDocumentsOfHandoffs(t *testing.T) {
	t.Parallel()
	r := newDurableRig(t)
	store := &swept{}
	receiver, err := r.lane(mesh.Config{Entity: "service.handoff"}).Receiver(mesh.ReceiverOptions{Platform: "paris", Handoffs: store})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := receiver.Collect(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	equal(t, "sweeps", store.n.Load(), int64(1))
}
