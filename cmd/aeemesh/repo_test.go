package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The tests in the files repo*_test.go hold the repository to its own rules:
// who may import whom, package docs, form. They read the source and build
// nothing.

const module = "github.com/aeemesh/aeemesh"

// A goFile is one parsed file of the repository.
type goFile struct {
	name string // from the module's root, with slashes
	dir  string
	test bool // _test.go
	src  []byte
	ast  *ast.File
}

var parseRepo = sync.OnceValues(func() ([]goFile, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	var files []goFile
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		file, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, goFile{name: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), src: src, ast: file})
		return nil
	})
	return files, err
})

func repoFiles(t *testing.T) []goFile {
	t.Helper()
	files, err := parseRepo()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// moduleRoot is the folder of go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", os.ErrNotExist
		}
		dir = parent
	}
}

// floors are the packages from the ground up. A package imports floors below
// its own, and of its own floor only what beside says. Ports are a floor of
// their own, and know nothing but the ground; what implements a port is a
// leaf.
var floors = []struct {
	name     string
	packages []string // path.Match patterns
}{
	{"ground", []string{"envelope", "envelope/buckets", "envelope/cert", "envelope/clip", "envelope/pattern", "envelope/pause", "envelope/sign", "envelope/sorted", "envelope/subject", "intents/schema", "agents/aaif", "agents/subprocess", "agents/condition/*"}},
	{"ports", []string{"agents/embedding", "agents/model", "agents/tool", "agents/secret", "agents/outbound", "agents/memory", "agents/condition", "agents/registry", "agents/*/*test"}},
	{"meaning", []string{"intents", "intents/template", "intents/template/evolve", "state", "state/internal/*", "state/run", "state/statetest", "state/transfer"}},
	{"requests", []string{"jetstream/counter", "jetstream/denial", "jetstream/internal/*", "jetstream/quorum", "jetstream/seen", "jetstream/slot"}},
	{"storage", []string{"jetstream"}},
	{"examined", []string{"jetstream/inspect"}},
	{"mesh's parts", []string{"mesh/internal/*", "mesh/client"}},
	{"mesh", []string{"mesh", "mesh/canceltree", "mesh/handoff", "mesh/metrictest", "mesh/migration", "mesh/natsconn", "mesh/perms", "mesh/platform", "mesh/tree", "mesh/natsd", "mesh/natsd/natstest"}},
	{"leaves", []string{"agents/model/*", "agents/tool/*", "agents/secret/*", "agents/memory/*", "agents/embedding/*"}},
	{"handlers", []string{"agents/orchestrate/progress", "agents/program", "agents/sdsi", "agents/sdsi/learn", "agents/sdsi/simulate"}},
	{"agents", []string{"agents", "agents/orchestrate", "agents/orchestrate/topology", "agents/orchestrate/directory"}},
	{"adapters", []string{"agents/adapters"}},
	{"worker", []string{"agents/worker"}},
	{"examples", []string{"examples/*", "examples/*/*"}},
	{"proof", []string{"jetstream/soak"}},
	{"parts", []string{"cmd/aeemesh/internal/config", "cmd/aeemesh/internal/health", "cmd/aeemesh/internal/house", "cmd/aeemesh/internal/near", "cmd/aeemesh/internal/plain", "cmd/aeemesh/internal/scratch", "cmd/aeemesh/internal/sdnotify", "cmd/aeemesh/internal/startup"}},
	{"terminal", []string{"cmd/aeemesh/internal/outcome", "cmd/aeemesh/internal/term"}},
	{"session", []string{"cmd/aeemesh/internal/session"}},
	{"operator", []string{"cmd/aeemesh/internal/operator", "cmd/aeemesh/internal/telemetry"}},
	{"workers", []string{"cmd/aeemesh/internal/workers"}},
	{"waiting", []string{"cmd/aeemesh/internal/await"}},
	{"commands", []string{"cmd/aeemesh/internal/bench", "cmd/aeemesh/internal/keys", "cmd/aeemesh/internal/runs", "cmd/aeemesh/internal/schemas", "cmd/aeemesh/internal/auth", "cmd/aeemesh/internal/conditions", "cmd/aeemesh/internal/definitions", "cmd/aeemesh/internal/soak", "cmd/aeemesh/internal/topology"}},
	{"views", []string{"cmd/aeemesh/internal/agents", "cmd/aeemesh/internal/envelopes", "cmd/aeemesh/internal/models", "cmd/aeemesh/internal/queues", "cmd/aeemesh/internal/traffic"}},
	{"upper commands", []string{"cmd/aeemesh/internal/dead", "cmd/aeemesh/internal/demo", "cmd/aeemesh/internal/doctor", "cmd/aeemesh/internal/inbox", "cmd/aeemesh/internal/tasks"}},
	{"command", []string{"cmd/*"}},
}

// beside are the imports within one floor.
var beside = map[string][]string{
	"envelope/sign":           {"envelope"},
	"agents/aaif":             {"intents/schema", "envelope"}, // numbers in CBOR
	"intents/schema":          {"envelope"},                   // its bounds of JSON
	"intents/template":        {"intents"},
	"intents/template/*":      {"intents/template"},
	"agents/sdsi/learn":       {"agents/sdsi"},
	"agents/sdsi/simulate":    {"agents/sdsi/learn"},
	"agents/embedding/*test":  {"agents/embedding"},
	"agents/embedding/openai": {"agents/model/endpoint"},
	"state":                   {"state/internal/rawdoc"},
	"jetstream/internal/*":    {"jetstream/denial", "jetstream/internal/api"},
	"jetstream/counter":       {"jetstream/internal/api"},
	"jetstream/seen":          {"jetstream/internal/api"},
	"jetstream/slot":          {"jetstream/internal/api"},
	"state/run":               {"state", "intents"},
	"state/transfer":          {"state", "state/internal/rawdoc"},
	"mesh/canceltree":         {"mesh"},
	"mesh/client":             {"mesh/internal/answers", "mesh/internal/delegated", "mesh/internal/fault", "mesh/internal/holders", "mesh/internal/requires", "mesh/internal/rpc", "mesh/internal/sender", "mesh/internal/tracing", "mesh/internal/wire"},
	"mesh/perms":              {"mesh"},
	"mesh/migration":          {"mesh/handoff"},
	"mesh/platform":           {"mesh/handoff"},
	"mesh/natsd/natstest":     {"mesh/natsd"},
	"mesh/internal/answers":   {"mesh/internal/chain", "mesh/internal/fault", "mesh/internal/requires", "mesh/internal/wire"},
	"mesh/internal/bounds":    {"mesh/internal/requires", "mesh/internal/wire"},
	"mesh/internal/contexts":  {"mesh/internal/fault", "mesh/internal/journal", "mesh/internal/wire"},
	"mesh/internal/bus":       {"mesh/internal/fault", "mesh/internal/wire"},
	"mesh/internal/calls":     {"mesh/client", "mesh/internal/answers", "mesh/internal/bounds", "mesh/internal/fault", "mesh/internal/requires", "mesh/internal/sched", "mesh/internal/sender", "mesh/internal/tracing", "mesh/internal/wire"},
	"mesh/internal/deadlines": {"mesh/internal/sched"},
	"mesh/internal/delegated": {"mesh/internal/chain", "mesh/internal/requires", "mesh/internal/sched", "mesh/internal/wire"},
	"mesh/internal/fault":     {"mesh/internal/wire"},
	"mesh/internal/guardian":  {"mesh/internal/probe", "mesh/internal/sched", "mesh/internal/watch"},
	"mesh/internal/holders":   {"mesh/internal/probe", "mesh/internal/rpc", "mesh/internal/watch", "mesh/internal/wire"},
	"mesh/internal/orders":    {"mesh/internal/fault", "mesh/internal/wire"},
	"mesh/internal/parked":    {"mesh/internal/sched"},
	"mesh/internal/payloads":  {"mesh/internal/fault", "mesh/internal/wire"},
	"mesh/internal/probe":     {"mesh/internal/listen"},
	"mesh/internal/rpc":       {"mesh/internal/listen", "mesh/internal/sched"},
	"mesh/internal/requires":  {"mesh/internal/wire"},
	"mesh/internal/sender":    {"mesh/internal/answers", "mesh/internal/fault", "mesh/internal/holders", "mesh/internal/journal", "mesh/internal/requires", "mesh/internal/rpc", "mesh/internal/tracing", "mesh/internal/wire"},
	"mesh/internal/service":   {"mesh/internal/probe", "mesh/internal/wire"},
	"mesh/internal/share":     {"mesh/internal/sched"},
	"mesh/internal/slots":     {"mesh/internal/sched"},
	"mesh/internal/stream":    {"mesh/internal/sched", "mesh/internal/wire"},
	"mesh/internal/telemetry": {"mesh/internal/tracing"},
	"mesh/internal/tracing":   {"mesh/internal/fault", "mesh/internal/wire"},
	"mesh":                    {"mesh/handoff", "mesh/migration", "mesh/natsconn", "mesh/platform"},
	"agents":                  {"agents/orchestrate", "agents/orchestrate/topology"},
	"agents/orchestrate/*":    {"agents/orchestrate"},
	"agents/model/*test":      {"agents/model", "agents/model/modeltest"},
	"agents/model/openai":     {"agents/model/endpoint"},
	"agents/model/anthropic":  {"agents/model/endpoint"},
	"agents/tool/*test":       {"agents/tool"},
	"agents/tool/rest":        {"agents/tool/endpoint"},
	"agents/tool/openapi":     {"agents/tool/endpoint"},
	"agents/secret/*test":     {"agents/secret"},
	"agents/outbound":         {"agents/secret"},
	"agents/registry/*test":   {"agents/registry"},
	"agents/memory/*test":     {"agents/memory"},
	"agents/condition/*":      {"agents/condition/limit"}, // the languages: each knows its budget and nothing else
	"state/statetest":         {"state"},
	"examples/*":              {"examples/code-reviewer/review"},
	"agents/model/google":     {"agents/model/endpoint"},
	"agents/model/bedrock":    {"agents/model/endpoint"},

	"cmd/aeemesh/internal/dead": {"cmd/aeemesh/internal/tasks"},
}

// forTests may be imported by the tests of every floor: what was measured, a real server, what its users
// may do, and the leaf that is tested with mesh's rig.
var forTests = []string{"mesh/metrictest", "mesh/natsd", "mesh/natsd/natstest", "mesh/perms", "mesh/canceltree"}

func floorOf(dir string) int {
	return slices.IndexFunc(floors, func(f struct {
		name     string
		packages []string
	}) bool {
		return matchAny(f.packages, dir)
	})
}

func matchAny(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, s)
		return ok
	})
}

// mayImport reports why package from must not import package to of this
// repository; "" if it may.
func mayImport(from, to string, test bool) string {
	f, t := floorOf(from), floorOf(to)
	switch {
	case f < 0:
		return from + " is on no floor"
	case t < 0:
		return to + " is on no floor"
	case from == to || test && matchAny(forTests, to):
		return ""
	case to == "envelope/buckets" || to == "envelope/cert" || to == "envelope/clip" || to == "envelope/pattern" || to == "envelope/pause" || to == "envelope/sorted":
		return "" // they stand on nothing
	case path.Dir(from) == "agents/embedding" && to == "agents/model":
		return "" // its errors are those of the same services
	case floors[f].name == "leaves" && (to == "agents/outbound" || test && to == "agents/secret"):
		return "" // every leaf that reaches an endpoint of a document's goes by the operator's policy
	case floors[f].name == "leaves" && floors[t].name == "ports" && path.Dir(from) != to && !(test && path.Dir(from) == path.Dir(to)):
		return "a leaf knows its own port only"
	case floors[f].name == "ports" && floors[t].name != "ground" && f != t:
		return "a port knows nothing of the mesh"
	case t < f:
		return ""
	case t == f:
		for pattern, allowed := range beside {
			if ok, _ := path.Match(pattern, from); ok && slices.Contains(allowed, to) {
				return ""
			}
		}
		if test && path.Dir(to) == from && strings.HasSuffix(to, "test") { // a port's own suite
			return ""
		}
		return "both are on the floor " + floors[f].name
	}
	return "floor " + floors[f].name + " is below floor " + floors[t].name
}

func TestImportsGoDownwards(t *testing.T) {
	t.Parallel()
	for _, f := range repoFiles(t) {
		if floorOf(f.dir) < 0 {
			t.Errorf("%s: the folder is on no floor", f.name)
			continue
		}
		for _, imp := range imports(f) {
			to, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			if why := mayImport(f.dir, to, f.test); why != "" {
				t.Errorf("%s must not import %s: %s", f.name, to, why)
			}
		}
	}
}

// The table itself: what it must refuse, and what it must let pass.
func TestFloorsRefuseArrowsUpwards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		test, ok bool
	}{
		{"envelope", "mesh", false, false},
		{"envelope", "envelope/subject", false, false},
		{"jetstream", "envelope/subject", false, true},
		{"envelope/sign", "envelope", false, true},
		{"envelope", "envelope/sign", false, false},
		{"intents", "envelope", false, true},
		{"intents/schema", "envelope", false, true},
		{"agents/aaif", "intents/schema", false, true},
		{"agents/aaif", "envelope", false, true},
		{"envelope", "agents/aaif", false, false},
		{"agents/tool", "intents/schema", false, true},
		{"intents", "jetstream", false, false},
		{"state", "state/statetest", true, true},
		{"state", "state/statetest", false, false},
		{"state", "intents", false, false},
		{"state", "state/transfer", false, false},
		{"state/transfer", "state", false, true},
		{"jetstream", "mesh/natsd", false, false},
		{"jetstream", "mesh/natsd/natstest", true, true},
		{"mesh", "mesh/natsd", false, false},
		{"mesh", "jetstream", false, true},
		{"agents/model", "mesh", false, false},
		{"agents/model", "agents/model/modeltest", true, true},
		{"agents/model", "agents/model/builtin", true, false},
		{"agents/model/openai", "agents/model", false, true},
		{"agents/model/openai", "agents/model/endpoint", false, true},
		{"agents/model/google", "agents/model/endpoint", false, true},
		{"agents/model/endpoint", "agents/model/openai", false, false},
		{"agents/model/openai", "agents/tool", false, false},
		{"agents/embedding/openai", "agents/model", false, true},
		{"agents/model/openai", "agents/embedding", false, false},
		{"agents/tool/rest", "agents/outbound", false, true},
		{"agents/tool/rest", "agents/secret", false, false},
		{"agents/tool/rest", "agents/secret", true, true},
		{"agents/outbound", "agents/tool", false, false},
		{"agents/model/openai", "agents/model/builtin", false, false},
		{"agents/model/openai", "agents/model/modeltest", true, true},
		{"agents/condition", "agents/condition/cel", false, true},
		{"agents/condition", "agents/aaif", false, true},
		{"agents/condition/cel", "agents/condition", false, false},
		{"agents/condition/cel", "agents/condition/limit", false, true},
		{"agents/condition/cel", "agents/condition/jsonpath", false, false},
		{"agents/condition/limit", "agents/aaif", false, false},
		{"agents", "agents/condition", false, true},
		{"agents", "agents/model/builtin", false, true},
		{"agents", "mesh", false, true},
		{"mesh", "agents", false, false},
		{"agents", "agents/orchestrate", false, true},
		{"agents/orchestrate", "agents", false, false},
		{"cmd/aeemesh", "agents/model/openai", false, true},
		{"agents", "cmd/aeemesh", false, false},
		{"cmd/aeemesh", "cmd/aeemesh/internal/plain", false, true},
		{"cmd/aeemesh/internal/plain", "cmd/aeemesh", false, false},
		{"jetstream/soak", "cmd/aeemesh/internal/plain", false, false},
		{"somewhere/new", "envelope", false, false},
	} {
		if why := mayImport(tt.from, tt.to, tt.test); (why == "") != tt.ok {
			t.Errorf("%s imports %s (test %v): %q, want allowed %v", tt.from, tt.to, tt.test, why, tt.ok)
		}
	}
}

// heavy modules are imported only by the packages named here: a program links only the
// libraries that it uses, and a library can be replaced in one place.
var heavy = []struct {
	module string
	in     []string // path.Match patterns of packages
	tests  []string // and of packages whose tests may, too
}{
	{"github.com/nats-io/nats-server", []string{"mesh/natsd"}, nil},
	{"github.com/nats-io/nats.go", []string{"mesh", "mesh/canceltree", "mesh/client", "mesh/internal/*", "mesh/migration", "mesh/natsconn", "mesh/perms", "mesh/platform", "mesh/natsd", "mesh/natsd/natstest", "jetstream", "jetstream/counter", "jetstream/denial", "jetstream/inspect", "jetstream/internal/*", "jetstream/quorum", "jetstream/seen", "jetstream/slot", "jetstream/soak", "agents/worker", "cmd/*", "cmd/aeemesh/internal/*"}, []string{"agents", "agents/sdsi", "agents/sdsi/learn", "agents/orchestrate", "agents/orchestrate/directory", "examples/*", "examples/*/*"}},
	{"github.com/nats-io/nkeys", []string{"envelope/sign", "mesh/natsconn", "cmd/*", "cmd/aeemesh/internal/auth"}, []string{"mesh", "mesh/natsd", "mesh/natsconn"}},
	{"go.opentelemetry.io/otel/sdk", []string{"cmd/*", "cmd/aeemesh/internal/health", "cmd/aeemesh/internal/telemetry", "mesh/metrictest"}, []string{"mesh", "mesh/internal/telemetry", "agents", "agents/sdsi"}},
	{"go.opentelemetry.io/otel/exporters", []string{"cmd/aeemesh/internal/health", "cmd/aeemesh/internal/telemetry"}, nil},
	{"github.com/prometheus", []string{"cmd/aeemesh/internal/health"}, nil},
	{"github.com/spf13", []string{"cmd/*", "cmd/aeemesh/internal/*"}, nil},
	{"github.com/jedib0t/go-pretty", []string{"cmd/*", "cmd/aeemesh/internal/term"}, nil},
	{"github.com/synadia-io/orbit.go/natscontext", []string{"cmd/aeemesh/internal/session"}, nil},
	{"github.com/modelcontextprotocol/go-sdk", []string{"agents/tool/mcp", "examples/code-reviewer"}, []string{"agents/adapters", "cmd/*"}},
	{"github.com/coder/websocket", []string{"agents/tool/mcp"}, []string{"agents/adapters"}},
	{"cloud.google.com/go/auth", []string{"agents/model/google", "agents/secret/gcpsm"}, nil},
	{"github.com/getkin/kin-openapi", []string{"agents/tool/openapi"}, nil},
	{"github.com/oasdiff/yaml", []string{"agents/tool/openapi"}, nil},
	{"golang.org/x/sys", []string{"agents/subprocess", "cmd/aeemesh/internal/session"}, nil},
	{"golang.org/x/oauth2", []string{"agents/outbound"}, nil},
	{"github.com/hashicorp/vault", []string{"agents/secret/hashicorp"}, nil},
	{"github.com/aws/aws-sdk-go-v2/service/secretsmanager", []string{"agents/secret/awssm"}, nil},
	{"github.com/Azure/azure-sdk-for-go", []string{"agents/secret/azurekv"}, nil},
	{"github.com/aws/aws-sdk-go-v2/service/bedrockruntime", nil, nil}, // two calls over HTTP take its place: agents/model/bedrock
	{"cel.dev/cel-go", []string{"agents/condition/cel"}, nil},
	{"github.com/jmespath-community/go-jmespath", []string{"agents/condition/jmespath"}, nil},
	{"github.com/sony/gobreaker", []string{"agents/model/route"}, nil},
	{"github.com/goccy/go-yaml", []string{"agents/aaif"}, []string{"cmd/*"}},
	{"github.com/fxamacker/cbor", []string{"envelope", "agents/aaif"}, []string{"mesh"}},
	{"github.com/santhosh-tekuri/jsonschema", []string{"intents/schema"}, []string{"envelope", "intents", "state", "mesh", "agents/aaif"}},
	{"filippo.io/edwards25519", []string{"envelope/sign"}, nil},
	{"github.com/golang-jwt/jwt", []string{"state/transfer"}, nil},
	{"github.com/gowebpki/jcs", nil, []string{"envelope", "envelope/sign"}},
	{"github.com/rogpeppe/go-internal", nil, []string{"*", "*/*", "*/*/*"}},
	{"golang.org/x/tools", []string{"examples/*"}, []string{"*", "*/*", "*/*/*"}},
	{"pgregory.net/rapid", nil, []string{"*", "*/*", "*/*/*"}},
	{"go.uber.org/goleak", []string{"mesh/natsd/natstest"}, []string{"*", "*/*", "*/*/*"}},
}

func TestHeavyModulesHaveOneImporter(t *testing.T) {
	t.Parallel()
	for _, f := range repoFiles(t) {
		for _, imp := range imports(f) {
			for _, h := range heavy {
				if imp != h.module && !strings.HasPrefix(imp, h.module+"/") {
					continue
				}
				if !matchAny(h.in, f.dir) && !(f.test && matchAny(h.tests, f.dir)) {
					t.Errorf("%s imports %s, which is for %v alone (tests: %v)", f.name, imp, h.in, h.tests)
				}
			}
		}
	}
}

// envelope/subject is pure: it is what a port to another language begins with.
func TestSubjectImportsTheStandardLibraryAlone(t *testing.T) {
	t.Parallel()
	for _, f := range repoFiles(t) {
		if f.dir != "envelope/subject" || f.test {
			continue
		}
		for _, imp := range imports(f) {
			if first, _, _ := strings.Cut(imp, "/"); strings.Contains(first, ".") {
				t.Errorf("%s imports %s", f.name, imp)
			}
		}
	}
}

func imports(f goFile) []string {
	var all []string
	for _, spec := range f.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			all = append(all, p)
		}
	}
	return all
}
