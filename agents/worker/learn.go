package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/adapters"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
)

// addLearner lets an agent learn from what fits none of its keys.
func (w *Worker) addLearner(h *hosted, desk *sdsi.Desk) error {
	settings := w.adapters.Learning()
	embedder, err := w.adapters.Embedder(cmp.Or(settings.Embedder, adapters.Offline), w.cfg.Options)
	if err != nil {
		return err
	}
	cfg := learn.Config{Entity: h.Entity, Templates: desk.Current(), Embedder: embedder, Logger: w.log}
	if err := settings.Apply(&cfg); err != nil {
		return err
	}
	if settings.Model != "" {
		m, err := w.adapters.Filler(settings.Model, w.cfg.Options)
		if err != nil {
			return err
		}
		cfg.With(m)
	}
	if h.doc != nil {
		def := h.doc.Definition()
		cfg.Sensitive.Capabilities = h.Capabilities
		if c := def.Agent.Compliance; c != nil {
			switch c.PIIHandling {
			case aaif.PIINone:
				cfg.Scrub = learn.Keep
			case aaif.PIIReject:
				cfg.Scrub = learn.Reject
			case aaif.PIIEncrypt:
				return errors.New("compliance.pii_handling is encrypt, and what is learned would be stored in the clear")
			}
		}
	}
	cfg.Tell = func(scenario, cohort string, e evolve.Event) error {
		if h.tell == nil {
			return errors.New("the agent is not connected")
		}
		return h.tell(scenario, cohort, e)
	}
	if h.learner, err = learn.New(cfg); err == nil {
		desk.Learn(h.learner)
	}
	return err
}

// learned is the payload of an event sdsi.schema.update.
type learned struct {
	Scenario string `json:"scenario"`
	Cohort   string `json:"cohort,omitempty"`
	evolve.Event
}

// learn connects an agent's learner to the mesh, and has it work until ctx ends.
func (w *Worker) learn(ctx context.Context, wait *sync.WaitGroup, node *mesh.Node, js natsjs.JetStream, h *hosted) {
	if h.learner == nil {
		return
	}
	h.tell = func(scenario, cohort string, e evolve.Event) error {
		if e.Client != "" { // the text comes from that client alone, and the bus has many readers
			e.Key, e.Why = "", ""
		}
		payload, err := json.Marshal(learned{scenario, cohort, e})
		if err != nil {
			return err
		}
		return node.BroadcastFrom(h.Entity, h.Signer, sdsi.Topic(h.Entity), intents.SchemaUpdate, payload)
	}
	h.learner.Use(jetstream.NewPools(js, node.Subjects()))
	wait.Go(func() { h.learner.Run(ctx) })
}
