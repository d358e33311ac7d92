package directory

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

// How long the results of a directory's requests are used, and how long
// requests may take.
const (
	rosterFresh   = 3 * time.Second  // the list of running workers
	rosterMissed  = time.Second      // the same, if a reference could not be resolved with it
	rosterKept    = 30 * time.Second // the same, if Run is replacing it
	healthFresh   = time.Second
	listFresh     = 2 * time.Second // the registry, if it is not watched
	fileFresh     = 2 * time.Second
	urlFresh      = time.Minute
	failureFresh  = 5 * time.Second
	listPause     = 30 * time.Second // pause after reading the registry failed
	readTime      = 2 * time.Second  // timeout of reading the registry
	surveyTime    = time.Second
	healthTime    = time.Second
	fetchTime     = 10 * time.Second
	watchPause    = 5 * time.Second
	watchLongest  = time.Minute
	maxRef        = 2048 // bytes
	maxCells      = 256  // definitions in the cache
	maxCandidates = 64   // agents with a skill whose health is requested for one choice
	atOnce        = 8    // health requests at the same time
)

// Mesh is the part of a [mesh.Node] that a directory uses.
type Mesh interface {
	Discover(ctx context.Context, entity string, wait time.Duration) ([]mesh.Instance, error)
	Query(ctx context.Context, entity, intent string, in, out any) (*envelope.Envelope, error)
}

var _ Mesh = (*mesh.Node)(nil)

// LookTime is a timeout for checking all references of a document.
const LookTime = 10 * time.Second

// Config holds the operator's decisions.
type Config struct {
	// Policy says which files and URLs definitions may be read from. Default:
	// none.
	Policy *outbound.Policy
	// RegisteredSkills resolves skill: references by the skills in
	// registrations only, and ignores the skills that workers publish. Default:
	// both count.
	RegisteredSkills bool
	// Logger receives warnings. Default: discarded.
	Logger *slog.Logger
}

// Directory holds what the agents of a process know about the mesh's agents.
// Its methods are safe for concurrent use.
type Directory struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex // guards all fields below
	mesh     Mesh
	registry registry.Registry

	index   registry.Index
	watched bool      // a watcher updates the index on every change
	until   time.Time // without a watcher: when the index expires
	missing error     // the error of reading it

	roster  roster
	health  map[string]verdict
	cells   map[string]*cell
	listing chan struct{} // held by the goroutine that reads the registry
	asking  chan struct{} // held by the goroutine that asks the mesh
	stale   chan struct{} // tells Run to ask the mesh
	running bool          // Run is running
	used    chan struct{} // closed by Use
}

// New makes a directory. It does no I/O. Before [Directory.Use] it resolves
// entity ids and definitions only.
func New(cfg Config) *Directory {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Directory{
		cfg: cfg, log: cfg.Logger, health: map[string]verdict{}, cells: map[string]*cell{},
		listing: make(chan struct{}, 1), asking: make(chan struct{}, 1), stale: make(chan struct{}, 1), used: make(chan struct{}),
	}
}

// Use connects the directory to a mesh and to its registry; without a registry
// (nil) no agent counts as registered. It must be called once.
func (d *Directory) Use(m Mesh, r registry.Registry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mesh, d.registry = m, r
	close(d.used)
}

// Asker is the agent whose document contains the references.
type Asker struct {
	Entity string // the agent's own entity, which skill: never resolves to; may be ""
	Folder string // the folder of its document, for relative files; "": the folders that the policy allows
}

// AskerOf returns the asker for a definition that was read from a file; as is
// the agent's entity, if that does not follow from its name. A file "" or "-"
// (standard input) has no folder.
func AskerOf(def *aaif.Definition, as, file string) Asker {
	asker := Asker{Entity: as}
	if as == "" {
		asker.Entity, _ = aaif.EntityName(def.Agent.Name)
	}
	if file == "" || file == "-" {
		return asker
	}
	if folder, err := filepath.Abs(filepath.Dir(file)); err == nil {
		asker.Folder = folder
	}
	return asker
}

// For returns the directory as one agent sees it.
func (d *Directory) For(a Asker) *View { return &View{d, a} }

// View is a [Directory] as one agent sees it. It implements
// [orchestrate.Directory].
type View struct {
	dir   *Directory
	asker Asker
}

var _ orchestrate.Directory = (*View)(nil)

// Find implements [orchestrate.Directory].
func (v *View) Find(ctx context.Context, ref string) (orchestrate.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	m, err := v.find(ctx, ref)
	if ctx.Err() != nil && err != nil {
		return orchestrate.Member{}, noAgent(ref, "the reference could not be resolved in time", "", context.Cause(ctx))
	}
	return m, err
}

func (v *View) find(ctx context.Context, ref string) (orchestrate.Member, error) {
	if ref == "" || len(ref) > maxRef {
		return orchestrate.Member{}, unknown(ref, "a reference has 1 to 2048 bytes", "", nil)
	}
	if orchestrate.IsEntity(ref) {
		return v.dir.entity(ctx, ref), nil
	}
	if aaif.IsUUID(ref) {
		return v.dir.byID(ctx, ref)
	}
	if subject.EntityType(ref) == subject.TypeBus {
		return orchestrate.Member{}, unknown(ref, "a broadcast subject has no single receiver", "name an agent, a service or a person", nil)
	}
	scheme, rest, ok := schemeOf(ref)
	if !ok {
		if orchestrate.IsPath(ref) {
			return v.file(ctx, ref, ref)
		}
		return v.dir.byName(ctx, ref)
	}
	switch scheme {
	case "skill":
		return v.skill(ctx, ref, rest)
	case "file":
		return v.file(ctx, ref, rest)
	case "https", "http":
		return v.dir.url(ctx, ref)
	case "nats":
		return v.dir.registered(ctx, ref, rest)
	case "urn":
		if kind, id, _ := strings.Cut(rest, ":"); strings.EqualFold(kind, "uuid") && aaif.IsUUID(id) {
			return v.dir.byID(ctx, id)
		}
	}
	return orchestrate.Member{}, unknown(ref, "references of this kind are not known",
		"known are an agent_id, an entity such as agent.reviewer, file:, https:, nats://registry/NAME and skill:NAME", nil)
}

// schemeOf splits a URI into its scheme and the rest (RFC 3986, section 3.1).
func schemeOf(ref string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(ref, ":")
	if !ok || scheme == "" {
		return "", "", false
	}
	for i, c := range []byte(scheme) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return "", "", false
		}
	}
	return strings.ToLower(scheme), rest, true
}

// entity returns the member for an entity id. Nothing else needs to be known
// about it.
func (d *Directory) entity(ctx context.Context, entity string) orchestrate.Member {
	if subject.EntityType(entity) == subject.TypeHuman {
		return orchestrate.Member{Entity: entity}
	}
	var card registry.Card
	found := false
	_ = d.lookup(ctx, func(x *registry.Index) { card, found = x.Entity(entity) })
	if found {
		return d.member(ctx, card)
	}
	return orchestrate.Member{Entity: entity}
}

// member returns the member that a registration stands for.
func (d *Directory) member(ctx context.Context, card registry.Card) orchestrate.Member {
	return orchestrate.Member{Entity: card.Entity, AgentID: card.AgentID, Def: d.definition(ctx, card)}
}

// byID resolves an agent_id: to the agent that is registered with it, else to a
// running worker with it.
func (d *Directory) byID(ctx context.Context, id string) (orchestrate.Member, error) {
	var card registry.Card
	found := false
	missing := d.lookup(ctx, func(x *registry.Index) { card, found = x.Find(id) })
	if found {
		return d.member(ctx, card), nil
	}
	if entity, err := d.reporting(ctx, id); entity != "" || err != nil {
		return orchestrate.Member{Entity: entity, AgentID: id}, err
	}
	return orchestrate.Member{}, noAgent(id, "no agent with this agent_id is registered, and none runs",
		"\"aeemesh agents import FILE\" registers it, or \"aeemesh worker FILE\" starts one", missing)
}

// reporting returns the running entity with an agent_id: the one whose default agent_id it is, else
// the only one whose workers report it. Any worker can report any agent_id, so if several do, it is
// none of theirs. "" without an error: none reports it.
func (d *Directory) reporting(ctx context.Context, id string) (string, error) {
	key := registry.KeyOf(id, "")
	own := func(entity string) bool { return state.AgentID(entity) == key }
	found := d.runs(ctx, func(w *worker) bool { return slices.Contains(w.ids, key) || own(w.entity) })
	if i := slices.IndexFunc(found, own); i >= 0 {
		return found[i], nil
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", noAgent(id, fmt.Sprintf("workers of %d agents report this agent_id: %s and %s", len(found), clip.Text(found[0], 128), clip.Text(found[1], 128)),
		"\"aeemesh agents import FILE\" registers the one that is meant", nil)
}

// byName resolves a word that is neither an id nor a URI.
func (d *Directory) byName(ctx context.Context, name string) (orchestrate.Member, error) {
	var card registry.Card
	found := false
	missing := d.lookup(ctx, func(x *registry.Index) { card, found = x.Find(name) })
	if found {
		return d.member(ctx, card), nil
	}
	// The agent of this name comes first: any worker can report the name as its agent_id.
	if entity, err := aaif.EntityName(name); err == nil && len(d.runs(ctx, func(w *worker) bool { return w.entity == entity })) > 0 {
		return d.entity(ctx, entity), nil
	}
	if entity, err := d.reporting(ctx, name); err != nil {
		return orchestrate.Member{}, err
	} else if entity != "" {
		return d.entity(ctx, entity), nil
	}
	return orchestrate.Member{}, noAgent(name, "no agent is registered under this name, and none runs under it",
		"name an entity such as agent.reviewer, or register the agent with \"aeemesh agents import FILE --alias NAME\"", missing)
}

// registered resolves nats://registry/NAME.
func (d *Directory) registered(ctx context.Context, ref, rest string) (orchestrate.Member, error) {
	raw, ok := strings.CutPrefix(rest, "//registry/")
	name, err := url.PathUnescape(raw)
	if !ok || err != nil || name == "" || strings.ContainsAny(raw, "?#") {
		return orchestrate.Member{}, unknown(ref, "it is no reference into the registry", "such a one is nats://registry/NAME, of this mesh; NAME is an agent_id, an entity or an alias", nil)
	}
	var card registry.Card
	found := false
	missing := d.lookup(ctx, func(x *registry.Index) { card, found = x.Find(name) })
	if !found {
		return orchestrate.Member{}, noAgent(ref, "no agent is registered under this name", "\"aeemesh agents import FILE\" registers an agent, \"aeemesh agents definitions\" lists them", missing)
	}
	return d.member(ctx, card), nil
}
