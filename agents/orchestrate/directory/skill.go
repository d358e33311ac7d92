package directory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/intents"
)

// verdict is an agent's health as of the last request.
type verdict struct {
	status intents.Health // "": it did not answer, not even with an error
	at     time.Time
}

// candidate is a running agent that has a skill.
type candidate struct {
	entity string
	load   float64 // tasks divided by concurrency
}

// skill resolves a skill: reference to an agent that has the skill and is
// healthy or degraded.
func (v *View) skill(ctx context.Context, ref, rest string) (orchestrate.Member, error) {
	want := registry.SkillOf(rest)
	if want == "" {
		return orchestrate.Member{}, unknown(ref, "it names no skill", "such a one is skill:go_review", nil)
	}
	d := v.dir
	var all []candidate
	asked := d.knows(ctx)
	if asked {
		all = d.skilled(ctx, want, v.asker.Entity)
	}
	entity, ok := d.choose(ctx, all)
	if !ok && d.refresh(ctx) { // an agent may have started since
		all = d.skilled(ctx, want, v.asker.Entity)
		entity, ok = d.choose(ctx, all)
	}
	if ok {
		m := d.entity(ctx, entity)
		d.mu.Lock()
		defer d.mu.Unlock()
		if w := d.roster.workers[entity]; w != nil {
			w.picked++
			if m.AgentID == "" && len(w.ids) == 1 {
				m.AgentID = w.ids[0]
			}
		}
		return m, nil
	}
	d.mu.Lock()
	problem := d.roster.err
	d.mu.Unlock()
	switch {
	case !asked:
		return orchestrate.Member{}, noAgent(ref, "there is no connection to a mesh", "", nil)
	case len(all) == 0:
		return orchestrate.Member{}, noAgent(ref, "no agent that runs has this skill", "agents say what they can in /agent/skills; \"aeemesh agents describe ENTITY\" shows it", problem)
	}
	return orchestrate.Member{}, noAgent(ref, fmt.Sprintf("of %s with this skill none answers that it is well", counted(len(all))), "\"aeemesh agents list\" says who runs, and how they are", problem)
}

func counted(n int) string {
	if n == 1 {
		return "1 agent"
	}
	return fmt.Sprintf("%d agents", n)
}

// skilled returns the running agents that have a skill, the least loaded first.
func (d *Directory) skilled(ctx context.Context, want, but string) []candidate {
	registered := map[string]bool{}
	_ = d.lookup(ctx, func(x *registry.Index) {
		for _, c := range x.Skilled(want) {
			registered[c.Entity] = true
		}
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []candidate
	for entity, w := range d.roster.workers {
		if entity != but && orchestrate.IsEntity(entity) && (registered[entity] || !d.cfg.RegisteredSkills && w.skills[want]) {
			out = append(out, candidate{entity, float64(w.load+w.picked) / float64(w.places)})
		}
	}
	for entity := range registered { // a registered agent may run without publishing the skill in NATS micro
		if d.roster.workers[entity] == nil && entity != but {
			out = append(out, candidate{entity: entity})
		}
	}
	sorted.By(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.load, b.load), strings.Compare(a.entity, b.entity))
	})
	return out
}

// choose returns the first healthy candidate, else the first degraded one. It
// requests the health of a few candidates at a time.
func (d *Directory) choose(ctx context.Context, all []candidate) (entity string, ok bool) {
	all = all[:min(len(all), maxCandidates)]
	for len(all) > 0 {
		some := all[:min(len(all), atOnce)]
		all = all[len(some):]
		verdicts := make([]intents.Health, len(some))
		var wait sync.WaitGroup
		for i, c := range some {
			wait.Go(func() { verdicts[i] = d.ask(ctx, c.entity) })
		}
		wait.Wait()
		for i, status := range verdicts {
			switch {
			case status == intents.Healthy:
				return some[i].entity, true
			case status == intents.Degraded && !ok:
				entity, ok = some[i].entity, true
			}
		}
	}
	return entity, ok
}

// ask returns an agent's health, requested or cached.
func (d *Directory) ask(ctx context.Context, entity string) intents.Health {
	d.mu.Lock()
	v, m := d.health[entity], d.mesh
	d.mu.Unlock()
	if time.Since(v.at) <= healthFresh {
		return v.status
	}
	asking, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	var health intents.HealthResult
	_, err := m.Query(asking, entity, intents.StatusHealth, intents.Empty{}, &health)
	status := health.Status
	var e *envelope.Error
	switch {
	case err == nil && status != intents.Healthy && status != intents.Unhealthy:
		status = intents.Degraded // it answers, but with an error
	case err == nil:
	case errors.As(err, &e) && e.FromPeer():
		if status = intents.Unhealthy; unasked(e) { // it answers, but takes no tasks of this asker now
			status = intents.Degraded // it answers, but without a valid status
		}
	default:
		status = ""
	}
	if ctx.Err() == nil {
		d.mu.Lock()
		d.health[entity] = verdict{status, time.Now()}
		d.mu.Unlock()
	}
	return status
}

// unasked reports whether an error that answers a request for health says nothing of the agent's
// health: the agent does not know the intent, and has refused or failed the request as it would
// one of its own tasks.
func unasked(e *envelope.Error) bool {
	switch e.Code {
	case envelope.CodeIntentUnknown, envelope.CodeIntentReserved, envelope.CodeInputSchema, envelope.CodeAgent:
		return true
	}
	return !e.Retryable && !e.Code.Known()
}
