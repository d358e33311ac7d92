package directory

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope/pause"
	"github.com/aeemesh/aeemesh/mesh"
)

// roster is the list of running workers, as of the last request to the mesh.
type roster struct {
	workers map[string]*worker // by entity
	at      time.Time
	err     error
}

// worker is an entity, with the sums over all its workers.
type worker struct {
	entity string
	ids    []string        // the agent_ids that they report, by registry.KeyOf
	skills map[string]bool // normalised by registry.FoldSkill
	places int             // tasks that they can run at once
	load   int             // tasks that run or wait
	picked int             // times that it was chosen since the load was read
}

// runs returns the running entities for which is reports true, in order.
func (d *Directory) runs(ctx context.Context, is func(*worker) bool) (found []string) {
	find := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for e, w := range d.roster.workers {
			if is(w) {
				found = append(found, e)
			}
		}
	}
	if d.knows(ctx) {
		find()
	}
	if len(found) == 0 && d.refresh(ctx) {
		find()
	}
	slices.Sort(found)
	return found
}

// knows makes sure that the roster is usable: it is fresh, or Run is about to
// refresh it. It reports false without a connection.
func (d *Directory) knows(ctx context.Context) bool {
	d.mu.Lock()
	age, running, connected := time.Since(d.roster.at), d.running, d.mesh != nil
	d.mu.Unlock()
	switch {
	case !connected:
		return false
	case age <= rosterFresh:
		return true
	case age <= rosterKept && running:
		pause.Wake(d.stale)
		return true
	}
	d.survey(ctx, rosterFresh)
	return true
}

// refresh asks the mesh again after a reference could not be resolved, unless
// the roster is very recent. It reports whether it asked.
func (d *Directory) refresh(ctx context.Context) bool {
	d.mu.Lock()
	old := d.mesh != nil && time.Since(d.roster.at) > rosterMissed
	d.mu.Unlock()
	if old {
		d.survey(ctx, rosterMissed)
	}
	return old
}

// survey asks the mesh for its running workers, unless the roster is not older
// than fresh.
func (d *Directory) survey(ctx context.Context, fresh time.Duration) {
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	case <-ctx.Done():
		return
	}
	d.mu.Lock()
	m, done := d.mesh, time.Since(d.roster.at) <= fresh
	d.mu.Unlock()
	if done {
		return
	}
	found, err := m.Discover(ctx, "", surveyTime)
	if ctx.Err() != nil {
		return
	}
	workers := map[string]*worker{}
	for i := range found {
		join(workers, &found[i])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.log.Warn("the mesh was not asked who runs", "err", err)
		workers = d.roster.workers
	}
	d.roster = roster{workers, time.Now(), err}
	for entity, v := range d.health { // drop the cached health of agents that are gone
		if time.Since(v.at) > rosterKept {
			delete(d.health, entity)
		}
	}
}

// join adds one worker to its entity. Its metadata is untrusted, and so is the entity that it
// reports; the size of a message bounds them.
func join(workers map[string]*worker, i *mesh.Instance) {
	w := workers[i.Entity]
	if w == nil {
		w = &worker{entity: i.Entity, skills: map[string]bool{}}
		workers[i.Entity] = w
	}
	if id := registry.KeyOf(i.Info.Metadata[mesh.MetaAgentID], ""); id != "" && !slices.Contains(w.ids, id) {
		w.ids = append(w.ids, id)
	}
	for s := range strings.SplitSeq(i.Info.Metadata["skills"], ",") {
		if s = registry.FoldSkill(s); s != "" {
			w.skills[s] = true
		}
	}
	places, err := strconv.Atoi(i.Info.Metadata["concurrency"])
	if err != nil || places < 1 || places > 1<<20 {
		places = 1
	}
	w.places += places
	if i.Stats == nil {
		return
	}
	for _, e := range i.Stats.Endpoints {
		var counts struct{ Running, Queued int }
		if json.Unmarshal(e.Data, &counts) == nil {
			w.load += min(max(0, counts.Running), 1<<20) + min(max(0, counts.Queued), 1<<20)
		}
	}
}
