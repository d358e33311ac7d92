package directory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
	"github.com/aeemesh/aeemesh/agents/orchestrate/directory"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/registry"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = time.Minute
	id       = "5e0c0000-0000-4000-8000-00000000000a"
	other    = "5e0c0000-0000-4000-8000-00000000000b"
)

// town is a double of a mesh with given workers.
type town struct {
	mu      sync.Mutex
	workers []mesh.Instance
	health  map[string]string // "" or absent: no answer; E_…: a peer's error, with a ! if it is retryable
	surveys int
	queries int
}

func (w *town) Discover(context.Context, string, time.Duration) ([]mesh.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.surveys++
	return w.workers, nil
}

func (w *town) Query(_ context.Context, entity, _ string, _, out any) (*envelope.Envelope, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queries++
	switch status := w.health[entity]; status {
	case "":
		return nil, envelope.Errorf(envelope.CodeNoResponders, "nobody")
	default:
		if code, later := strings.CutSuffix(status, "!"); strings.HasPrefix(status, "E_") {
			return nil, envelope.ErrorOf(&envelope.Envelope{Payload: fmt.Appendf(nil, `{"code":%q,"retryable":%t}`, code, later)})
		}
		out.(*intents.HealthResult).Status = intents.Health(status)
		return &envelope.Envelope{}, nil
	}
}

func runs(entity, agentID, skills string, running int) (i mesh.Instance) {
	err := json.Unmarshal(fmt.Appendf(nil, `{"entity":%q,"info":{"metadata":{"agent_id":%q,"skills":%q,"concurrency":"2"}},
		"stats":{"endpoints":[{"name":"task","data":{"running":%d,"queued":0}}]}}`, entity, agentID, skills, running), &i)
	if err != nil {
		panic(err)
	}
	return i
}

func document(t testing.TB, agentID, name, more string) *aaif.Document {
	t.Helper()
	text := `{"sc_standard":"SC-006","agent_id":"` + agentID + `","agent":{"name":"` + name + `","goal":"x"` + more + `}}`
	if agentID == "" {
		text = strings.Replace(text, `"agent_id":"",`, "", 1)
	}
	doc, err := aaif.Parse([]byte(text), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func register(t testing.TB, r registry.Registry, doc *aaif.Document, o registry.Options, after uint64) uint64 {
	t.Helper()
	rec, err := registry.New(doc, o)
	if err != nil {
		t.Fatal(err)
	}
	rev, err := r.Put(t.Context(), rec, after)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func find(t testing.TB, v *directory.View, ref string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := v.Find(ctx, ref)
	switch {
	case errors.Is(err, orchestrate.ErrUnknown):
		return "unknown: " + err.Error()
	case errors.Is(err, orchestrate.ErrUnanswered):
		return "nobody: " + err.Error()
	case err != nil:
		return "error: " + err.Error()
	}
	role := ""
	if m.Def != nil {
		role = " defined"
		if m.Def.Agent.Orchestration != nil {
			role = " " + string(m.Def.Agent.Orchestration.Role)
		}
	}
	return strings.Join(strings.Fields(m.Entity+" "+m.AgentID+" "+role), " ")
}

// failing is a registry that cannot be read.
type failing struct {
	registry.Mem
	err error
}

func (f *failing) List(context.Context) ([]registry.Entry, error) { return nil, f.err }

// While the registry does not answer, the directory cannot know which entity has a definition's
// agent_id, and returns no member: the name may be another agent's. In a mesh without a registry
// the name decides.
func TestADefinitionHasNoMemberWhileTheRegistryCannotBeRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"by-id.json": `{"sc_standard":"SC-006","agent_id":"` + id + `","agent":{"name":"Whatever","goal":"x"}}`,
		"named.json": `{"sc_standard":"SC-006","agent":{"name":"Whatever","goal":"x"}}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policy, err := outbound.New(outbound.Config{Files: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		err         error
		byID, named string
	}{
		{errors.New("no leader"), `nobody: "file:by-id.json": the registry cannot be read now, which says what entity its definition means: no leader`, "agent.whatever defined"},
		{fmt.Errorf("list: %w", registry.ErrAbsent), "agent.whatever " + id + " defined", "agent.whatever defined"},
	} {
		dir := directory.New(directory.Config{Policy: policy})
		dir.Use(&town{}, &failing{err: tt.err})
		v := dir.For(directory.Asker{Folder: folder})
		if byID, named := find(t, v, "file:by-id.json"), find(t, v, "file:named.json"); byID != tt.byID || named != tt.named {
			t.Errorf("%v: %s; %s", tt.err, byID, named)
		}
	}
}

func TestWhoIsMeant(t *testing.T) {
	t.Parallel()
	reg := &registry.Mem{}
	register(t, reg, document(t, id, "Judge", `,"orchestration":{"role":"evaluator"}`), registry.Options{Entity: "agent.eu.judge", Aliases: []string{"the judge"}}, 0)
	register(t, reg, document(t, "", "Plain", ""), registry.Options{}, 0)
	w := &town{workers: []mesh.Instance{runs("agent.runs", other, "", 0), runs("agent.also", "legacy 7", "", 0)}}
	folder := t.TempDir()
	for name, text := range map[string]string{
		"by-id.json":   `{"sc_standard":"SC-006","agent_id":"` + strings.ToUpper(id) + `","agent":{"name":"Whatever","goal":"x"}}`,
		"named.yaml":   "sc_standard: SC-006\nagent: {name: Some Body, goal: x}\n",
		"broken.yaml":  "agent: {}\n",
		"secret.txt":   "root:x:0:0\n",
		"chinese.json": `{"sc_standard":"SC-006","agent":{"name":"审查","goal":"x"}}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policy, err := outbound.New(outbound.Config{Files: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	dir := directory.New(directory.Config{Policy: policy})
	dir.Use(w, reg)
	v := dir.For(directory.Asker{Entity: "agent.team", Folder: folder})
	for ref, want := range map[string]string{
		"agent.eu.judge":                   "agent.eu.judge " + id + " evaluator",
		"agent.nowhere":                    "agent.nowhere",
		"service.billing":                  "service.billing",
		"human.ada":                        "human.ada",
		id:                                 "agent.eu.judge " + id + " evaluator",
		strings.ToUpper(id):                "agent.eu.judge " + id + " evaluator",
		"urn:uuid:" + id:                   "agent.eu.judge " + id + " evaluator",
		other:                              "agent.runs " + other,
		"the judge":                        "agent.eu.judge " + id + " evaluator",
		"eu.judge":                         "agent.eu.judge " + id + " evaluator",
		"plain":                            "agent.plain defined",
		"legacy 7":                         "agent.also",
		"Runs":                             "agent.runs",
		"nats://registry/" + id:            "agent.eu.judge " + id + " evaluator",
		"nats://registry/the%20judge":      "agent.eu.judge " + id + " evaluator",
		"NATS://registry/agent.plain":      "agent.plain defined",
		"file:by-id.json":                  "agent.eu.judge " + strings.ToUpper(id) + " defined",
		"./named.yaml":                     "agent.some_body defined",
		"named.yaml":                       "agent.some_body defined",
		"file://" + folder + "/named.yaml": "agent.some_body defined",
		"file://localhost" + folder + "/named.yaml": "agent.some_body defined",

		"nats://registry/agent.runs":           `nobody: "nats://registry/agent.runs": no agent is registered under this name ("aeemesh agents import FILE"`,
		"5e0c0000-0000-4000-8000-00000000000c": `nobody: "5e0c0000-0000-4000-8000-00000000000c": no agent with this agent_id is registered, and none runs (`,
		"billing_specialist":                   `nobody: "billing_specialist": no agent is registered under this name`,
		"skill:law":                            `nobody: "skill:law": no agent that runs has this skill`,
		"bus.ops":                              `unknown: "bus.ops": a broadcast subject has no single receiver`,
		"":                                     `unknown: "": a reference has`,
		"mailto:ada@example.com":               `unknown: "mailto:ada@example.com": references of this kind are not known`,
		"nats://demo.nats.io:4222/x":           `unknown: "nats://demo.nats.io:4222/x": it is no reference into the registry`,
		"nats://registry/":                     "unknown: ",
		"nats://registry/x?revision=1":         "unknown: ",
		"skill:":                               "unknown: ",
		"urn:isbn:1":                           "unknown: ",
		"https://example.com/x.json":           `unknown: "https://example.com/x.json": its definition may not be fetched: refused by the operator's policy`,
		"http://169.254.169.254/latest":        "unknown: ",
		"file:broken.yaml":                     `unknown: "file:broken.yaml": its definition cannot be fetched: it is no agent definition: `,
		"file:secret.txt":                      `unknown: "file:secret.txt": its definition cannot be fetched: it is no agent definition: `,
		"file:none.yaml":                       `unknown: "file:none.yaml": its definition cannot be fetched: there is no file`,
		"file:///etc/passwd":                   `unknown: "file:///etc/passwd": its definition cannot be fetched: refused by the operator's policy`,
		"file:../../../etc/passwd":             `unknown: "file:../../../etc/passwd": its definition cannot be fetched: refused by the operator's policy`,
		"file://other.host/x.yaml":             "unknown: ",
		"file:a%00b":                           "unknown: ",
		"file:chinese.json":                    `unknown: "file:chinese.json": its definition makes no entity`,
		strings.Repeat("x", 3000):              "unknown: ",
	} {
		got := find(t, v, ref)
		if got != want && !(strings.Contains(want, ": ") && strings.HasPrefix(got, want)) {
			t.Errorf("%.60q is\n%s, want\n%s", ref, got, want)
		}
		if strings.Contains(got, "root:x") {
			t.Errorf("%q tells what is in the file: %s", ref, got)
		}
	}
	if w.surveys != 1 {
		t.Errorf("the mesh was asked %d times who runs", w.surveys)
	}
}

// Any worker can report any agent_id and any entity, so such a report takes no reference of another
// agent away.
func TestAStrangerTakesNoReferenceAway(t *testing.T) {
	t.Parallel()
	derived := state.AgentID("agent.runs")
	runsAsWell := `nobody: "` + other + `": workers of 2 agents report this agent_id: agent.aaa and agent.runs (`
	for name, tt := range map[string]struct {
		workers   []mesh.Instance
		ref, want string
	}{
		"an agent_id that two report":   {[]mesh.Instance{runs("agent.runs", other, "", 0), runs("agent.aaa", other, "", 0)}, other, runsAsWell},
		"one in other letters":          {[]mesh.Instance{runs("agent.aaa", strings.ToUpper(other), "", 0), runs("agent.runs", other, "", 0)}, other, runsAsWell},
		"several workers of one agent":  {[]mesh.Instance{runs("agent.runs", other, "", 0), runs("agent.runs", other, "", 0), runs("agent.runs", "", "", 0)}, other, "agent.runs " + other},
		"an agent's default id":         {[]mesh.Instance{runs("agent.aaa", derived, "", 0), runs("agent.runs", "", "", 0)}, derived, "agent.runs " + derived},
		"a name":                        {[]mesh.Instance{runs("agent.reviewer", "", "", 0), runs("agent.aaa", "reviewer", "", 0)}, "reviewer", "agent.reviewer"},
		"a name, as agent_id of itself": {[]mesh.Instance{runs("agent.reviewer", "reviewer", "", 0), runs("agent.aaa", "reviewer", "", 0)}, "reviewer", "agent.reviewer"},
		"a name that two report":        {[]mesh.Instance{runs("agent.b", "rev", "", 0), runs("agent.aaa", "rev", "", 0)}, "rev", `nobody: "rev": workers of 2 agents report this agent_id: agent.aaa and agent.b (`},
		"an agent_id beside another":    {[]mesh.Instance{runs("agent.aaa", other, "", 0), runs("agent.runs", id, "", 0), runs("agent.runs", other, "", 0), runs("agent.runs", id, "", 0)}, other, runsAsWell},
	} {
		dir := directory.New(directory.Config{})
		dir.Use(&town{workers: tt.workers}, nil)
		if got := find(t, dir.For(directory.Asker{}), tt.ref); got != tt.want && !(strings.HasPrefix(tt.want, "nobody: ") && strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// Without a mesh, a registry and a policy, only entity ids are resolved.
func TestADirectoryThatIsNotConnected(t *testing.T) {
	t.Parallel()
	v := directory.New(directory.Config{}).For(directory.Asker{})
	for ref, want := range map[string]string{
		"agent.x": "agent.x", id: "nobody: ", "skill:x": "nobody: ", "nats://registry/x": "nobody: ", "file:/x.yaml": "unknown: ", "https://example.com": "unknown: ", "x": "nobody: ",
	} {
		if got := find(t, v, ref); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %s", ref, got)
		}
	}
	if got := v.Check(t.Context(), document(t, "", "T", `,"orchestration":{"subagents":[{"ref":"agent.x"}]}`).Definition()); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestDefinitionsAreFetched(t *testing.T) {
	t.Parallel()
	status, text, asked := http.StatusOK, `{"sc_standard":"SC-006","agent":{"name":"Far Away","goal":"x"}}`, 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch r.URL.Path {
		case "/agent.json":
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		case "/agent.yaml":
			fmt.Fprint(w, "sc_standard: SC-006\nagent: {name: In Yaml, goal: x}\n")
		case "/large":
			w.Write(make([]byte, aaif.DefaultMaxBytes+1))
		case "/inside":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer srv.Close()
	policy, err := outbound.New(outbound.Config{Allow: []string{srv.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Close()
	look := func(path string) string {
		t.Helper()
		return find(t, directory.New(directory.Config{Policy: policy}).For(directory.Asker{}), srv.URL+path)
	}
	for path, want := range map[string]string{
		"/agent.json": "agent.far_away defined", "/agent.yaml": "agent.in_yaml defined", "/agent.json#part": "agent.far_away defined",
		"/none": "unknown: ", "/large": "unknown: ", "/inside": "unknown: ",
	} {
		if got := look(path); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %s", path, got)
		}
	}
	status = http.StatusServiceUnavailable
	if got := look("/agent.json"); !strings.HasPrefix(got, "nobody: ") || !strings.Contains(got, "cannot be fetched now") {
		t.Error(got)
	}
	status, text = http.StatusOK, `{"agent":{}}`
	if got := look("/agent.json"); !strings.HasPrefix(got, "unknown: ") {
		t.Error(got)
	}
	// It is requested once, also for concurrent callers.
	text, asked = `{"sc_standard":"SC-006","agent":{"name":"Far Away","goal":"x"}}`, 0
	v := directory.New(directory.Config{Policy: policy}).For(directory.Asker{})
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if got := find(t, v, srv.URL+"/agent.json"); got != "agent.far_away defined" {
				t.Error(got)
			}
		})
	}
	wait.Wait()
	if asked != 1 {
		t.Errorf("fetched %d times", asked)
	}
}

func TestSkills(t *testing.T) {
	t.Parallel()
	w := &town{
		workers: []mesh.Instance{
			runs("agent.busy", "", "Go review,lint", 4), runs("agent.b", other, "go-review", 0), runs("agent.a", "", "GO_REVIEW", 0),
			runs("agent.sick", "", "go review", 0), runs("agent.gone", "", "go review,law", 0), runs("agent.tired", "", "lint", 9),
			runs("agent.team", "", "go review,alone", 0), runs("bus.x", "", "go review", 0),
			runs("agent.bare", "", "capitals", 9), runs("agent.leaving", "", "capitals", 0), runs("agent.old", "", "runes", 0),
		},
		health: map[string]string{"agent.busy": "healthy", "agent.a": "healthy", "agent.b": "healthy", "agent.sick": "unhealthy",
			"agent.tired": "degraded", "agent.team": "healthy", "agent.plain": "odd", "bus.x": "healthy",
			"agent.bare": "E_INPUT_SCHEMA", "agent.leaving": "E_DRAINING!", "agent.old": "E_INTENT_UNKNOWN"},
	}
	reg := &registry.Mem{}
	register(t, reg, document(t, "", "Tired", `,"skills":["Law"]`), registry.Options{}, 0)
	register(t, reg, document(t, "", "Plain", `,"skills":["other language"]`), registry.Options{}, 0) // not on NATS micro
	dir := directory.New(directory.Config{})
	dir.Use(w, reg)
	v := dir.For(directory.Asker{Entity: "agent.team"})
	// Idle agents come first, in turn; the load counts in relation to the places, so the busy agent
	// comes last.
	for i, want := range []string{"agent.a", "agent.b " + other, "agent.a", "agent.b " + other, "agent.a", "agent.b " + other, "agent.a", "agent.b " + other, "agent.a", "agent.b " + other, "agent.busy"} {
		if got := find(t, v, "skill:go%20review"); i < 8 && got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	for skill, want := range map[string]string{
		"law":            "agent.tired defined", // by its registration; the other does not answer
		"lint":           "agent.busy",          // healthy before degraded
		"other language": "agent.plain defined",
		"capitals":       "agent.bare", // it does not know aee.status.health, and takes it for a task; the other says that it takes none now
		"runes":          "agent.old",
		"alone":          `nobody: "skill:alone": no agent that runs has this skill`, // except the asker
	} {
		if got := find(t, v, "skill:"+strings.ReplaceAll(skill, " ", "_")); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %s", skill, got)
		}
	}
	if w.surveys != 1 || w.queries > 12 {
		t.Errorf("%d surveys, %d questions", w.surveys, w.queries)
	}

	only := directory.New(directory.Config{RegisteredSkills: true})
	only.Use(w, reg)
	if got := find(t, only.For(directory.Asker{}), "skill:lint"); !strings.HasPrefix(got, "nobody: ") {
		t.Error(got)
	}
	if got := find(t, only.For(directory.Asker{}), "skill:law"); got != "agent.tired defined" {
		t.Error(got)
	}
	w.health = nil
	sick := directory.New(directory.Config{})
	sick.Use(w, reg)
	if got := find(t, sick.For(directory.Asker{}), "skill:lint"); !strings.HasPrefix(got, `nobody: "skill:lint": of 2 agents with this skill none answers that it is well`) {
		t.Error(got)
	}
}

// A change of the registry takes effect without a restart, and at once while the registry is
// watched.
func TestARegistrationThatChanges(t *testing.T) {
	t.Parallel()
	reg := &registry.Mem{}
	rev := register(t, reg, document(t, id, "One", ""), registry.Options{}, 0)
	dir := directory.New(directory.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { dir.Run(ctx) })
	defer wait.Wait()
	defer cancel()
	dir.Use(&town{}, reg)
	v := dir.For(directory.Asker{})
	if got := find(t, v, id); got != "agent.one "+id+" defined" {
		t.Error(got)
	}
	rev = register(t, reg, document(t, id, "One", `,"orchestration":{"role":"synthesizer"}`), registry.Options{Entity: "agent.two"}, rev)
	until(t, "the change is seen", func() bool { return find(t, v, id) == "agent.two "+id+" synthesizer" })
	if err := reg.Remove(t.Context(), id, rev); err != nil {
		t.Fatal(err)
	}
	until(t, "the removal is seen", func() bool { return strings.HasPrefix(find(t, v, id), "nobody: ") })
}

// remade is a registry that is made again: then the revisions of its registrations are those of others.
type remade struct {
	registry.Mem
	again atomic.Pointer[registry.Mem]
}

func (r *remade) now() registry.Registry {
	if again := r.again.Load(); again != nil {
		return again
	}
	return &r.Mem
}

func (r *remade) List(ctx context.Context) ([]registry.Entry, error) { return r.now().List(ctx) }

func (r *remade) Get(ctx context.Context, key string) (registry.Entry, error) {
	return r.now().Get(ctx, key)
}

func TestARegistrationOfTheSameRevisionIsReadAgain(t *testing.T) {
	t.Parallel()
	role := func(role string) *aaif.Document {
		return document(t, id, "One", `,"orchestration":{"role":"`+role+`"}`)
	}
	reg := &remade{}
	dir := directory.New(directory.Config{})
	dir.Use(&town{}, reg)
	v := dir.For(directory.Asker{})
	register(t, reg, role("router"), registry.Options{}, 0)
	if got := find(t, v, id); got != "agent.one "+id+" router" {
		t.Error(got)
	}
	again := &registry.Mem{}
	register(t, again, role("synthesizer"), registry.Options{}, 0)
	reg.again.Store(again)
	until(t, "the other registration is read", func() bool { return find(t, v, id) == "agent.one "+id+" synthesizer" })
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	w := &town{workers: []mesh.Instance{runs("agent.here", "", "law", 0)}, health: map[string]string{"agent.here": "healthy", "agent.foreign": "healthy",
		"agent.plain": "E_INPUT_SCHEMA", "agent.full": "E_BUSY!", "agent.own": "E_MY_OWN"}}
	dir := directory.New(directory.Config{})
	dir.Use(w, nil)
	def := document(t, "", "Team", `,"orchestration":{"role":"orchestrator","subagents":[
		{"ref":"agent.here","alias":"a"},{"ref":"agent.away","alias":"b"},{"ref":"human.ada"},{"ref":"skill:law"},{"ref":"skill:tax"},
		{"ref":"agent.foreign"},{"ref":"agent.plain"},{"ref":"agent.full"},{"ref":"agent.own"},{"ref":"file:///etc/passwd"},{"ref":"agent.team"}],
		"pipeline":["a","b","agent.later"],"consensus":{"strategy":"referee","referee_agent":"`+id+`"},
		"handoff":[{"condition":{"lang":"always"},"target_agent":"billing_specialist"},{"condition":{"lang":"always"},"target_agent":"a"},{"condition":{"lang":"always"},"target_agent":"agent.desk"}]}},
		"x-aeemesh":{"orchestration":{"synthesizer":"agent.editor","steps":{"a":{"escalate_to":"b"},"b":{"escalate_to":"ftp://elsewhere"},"agent.later":{"escalate_to":"agent.boss"}}}`).Definition()
	var got []string
	for _, p := range dir.For(directory.Asker{Entity: "agent.team"}).Check(t.Context(), def) {
		got = append(got, fmt.Sprintf("%s %s %.50s (%s)", p.Severity, p.Pointer, p.Message, p.Hint))
	}
	want := []string{
		`warning /agent/orchestration/subagents/1/ref no worker answers now for agent.away (live tasks for it fail`,
		`warning /agent/orchestration/subagents/4/ref "skill:tax": no agent that runs has this skill`,
		`error /agent/orchestration/subagents/9/ref "file:///etc/passwd": its definition cannot be fet`,
		`warning /agent/orchestration/pipeline/2 no worker answers now for agent.later`,
		`warning /agent/orchestration/consensus/referee_agent "5e0c0000-0000-4000-8000-00000000000a": no agent `,
		`warning /agent/orchestration/handoff/0/target_agent "billing_specialist": no agent is registered under`,
		`warning /agent/orchestration/handoff/2/target_agent no worker answers now for agent.desk (tasks that are delegated to it fail`,
		`warning /x-aeemesh/orchestration/synthesizer no worker answers now for agent.editor`,
		`warning /x-aeemesh/orchestration/steps/agent.later/escalate_to no worker answers now for agent.boss`,
		`error /x-aeemesh/orchestration/steps/b/escalate_to "ftp://elsewhere": references of this kind are not`,
	}
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s\nwant %s", got[i], want[i])
		}
	}
}

// References come from untrusted documents.
func FuzzFind(f *testing.F) {
	for _, ref := range []string{id, "agent.x", "skill:law", "nats://registry/x%20y", "file:x.yaml", "https://[::1]:1/x", "urn:uuid:" + id, "./..%2f..%2fetc/passwd", "a:b", "%"} {
		f.Add(ref)
	}
	folder := f.TempDir()
	policy, err := outbound.New(outbound.Config{Files: []string{folder}})
	if err != nil {
		f.Fatal(err)
	}
	reg := &registry.Mem{}
	register(f, reg, document(f, id, "Known", `,"skills":["law"]`), registry.Options{Aliases: []string{"x y"}}, 0)
	w := &town{workers: []mesh.Instance{runs("agent.runs", other, "tax", 0)}, health: map[string]string{"agent.runs": "healthy"}}
	dir := directory.New(directory.Config{Policy: policy})
	dir.Use(w, reg)
	v := dir.For(directory.Asker{Entity: "agent.team", Folder: folder})
	f.Fuzz(func(t *testing.T, ref string) {
		m, err := v.Find(t.Context(), ref)
		switch {
		case err == nil && !orchestrate.IsEntity(m.Entity):
			t.Fatalf("%q means %+v", ref, m)
		case err != nil && !errors.Is(err, orchestrate.ErrUnknown) && !errors.Is(err, orchestrate.ErrUnanswered):
			t.Fatalf("%q: %v", ref, err)
		case err != nil && len(err.Error()) > 2000:
			t.Fatalf("%q: an error of %d bytes", ref, len(err.Error()))
		}
	})
}
