package main_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/constant"
	"go/format"
	"go/token"
	"go/types"
	"io/fs"
	"iter"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestEveryPackageIsDocumentedInOnePlace(t *testing.T) {
	t.Parallel()
	docs := map[string][]string{} // by folder: the files with a package comment
	packages := map[string]string{}
	for _, f := range repoFiles(t) {
		if f.test {
			continue
		}
		packages[f.dir] = f.ast.Name.Name
		if f.ast.Doc == nil {
			continue
		}
		docs[f.dir] = append(docs[f.dir], f.name)
		text := f.ast.Doc.Text()
		if name := f.ast.Name.Name; name != "main" && !strings.HasPrefix(text, "Package "+name+" ") {
			t.Errorf("%s: the package comment must begin with %q", f.name, "Package "+name)
		}
		if len(strings.Fields(text)) < 10 {
			t.Errorf("%s: the package comment says too little: %q", f.name, text)
		}
	}
	for dir, name := range packages {
		want := []string{dir + "/doc.go"}
		if name == "main" && slices.Equal(docs[dir], []string{dir + "/main.go"}) {
			continue
		}
		if !slices.Equal(docs[dir], want) {
			t.Errorf("package comments of %s are in %v, want %v", dir, docs[dir], want)
		}
	}
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	t.Parallel()
	types := map[string]bool{} // documented ones, as dir.Name
	for _, f := range repoFiles(t) {
		for _, decl := range f.ast.Decls {
			if d, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && (s.Doc != nil || d.Doc != nil) {
						types[f.dir+"."+s.Name.Name] = true
					}
				}
			}
		}
	}
	for _, f := range repoFiles(t) {
		if f.test {
			continue
		}
		for _, name := range undocumented(f.ast, func(typ string) bool { return types[f.dir+"."+typ] }) {
			t.Errorf("%s: %s has no doc comment", f.name, name)
		}
	}
}

// plain are methods that say what they do by their names.
var plain = []string{"Error", "String", "Unwrap", "Is", "As"}

// undocumented lists the exported names of a file without a comment:
// functions, methods of exported types, types, variables and constants. The
// comment of a group will do, and for the constants of a type the type's.
func undocumented(file *ast.File, typeHasDoc func(string) bool) (names []string) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) && !(d.Recv != nil && slices.Contains(plain, d.Name.Name)) {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			ofType := false
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && s.Doc == nil && (d.Doc == nil || d.Lparen != token.NoPos) {
						names = append(names, s.Name.Name)
					}
				case *ast.ValueSpec:
					if typ, ok := s.Type.(*ast.Ident); ok {
						ofType = d.Tok == token.CONST && typeHasDoc(typ.Name)
					} else if len(s.Values) > 0 {
						ofType = false
					}
					for _, n := range s.Names {
						if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil && !ofType {
							names = append(names, n.Name)
						}
					}
				}
			}
		}
	}
	return names
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

func TestEveryFileIsFormatted(t *testing.T) {
	t.Parallel()
	natstest.Heavy(t)
	for _, f := range repoFiles(t) {
		formatted, err := format.Source(f.src)
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
		} else if !bytes.Equal(formatted, f.src) {
			t.Errorf("%s is not gofmt's", f.name)
		}
	}
}

// Tests wait for a signal, or poll with a deadline; a sleep is either too
// short or too long. An hour is no wait: it is a program that hangs until it is
// killed. Under testing/synctest the clock is the test's own, and a sleep is exact.
func TestTestsDoNotSleep(t *testing.T) {
	t.Parallel()
	for _, f := range repoFiles(t) {
		if !f.test || slices.ContainsFunc(f.ast.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && isTime(call.Fun, "Sleep") && !isTime(call.Args[0], "Hour") {
				t.Errorf("%s sleeps", f.name)
			}
			return true
		})
	}
}

// A signature covers the canonical form of requires, so a search in its bytes misses
// what another spelling hides: [envelope.Envelope.ReadRequires] decodes the names.
func TestRequiresIsNotSearchedAsBytes(t *testing.T) {
	t.Parallel()
	for c := range calls(t) {
		if (c.from != "bytes" && c.from != "strings") || len(c.Args) == 0 {
			continue
		}
		if arg, ok := c.Args[0].(*ast.SelectorExpr); ok && (arg.Sel.Name == "Requires" || arg.Sel.Name == "Payload") {
			t.Errorf("%s: %s.%s looks for something in the bytes of %s", c.file, c.from, c.name, arg.Sel.Name)
		}
	}
}

// call is a call from.name(…) in a file of the program.
type call struct {
	*ast.CallExpr
	file, from, name string // from is "" unless it is one name, as of a package
	atStart          bool   // it is outside of functions
}

// calls yields the calls of functions of packages, and of methods, in the program.
func calls(t *testing.T) iter.Seq[call] {
	return func(yield func(call) bool) {
		for _, f := range repoFiles(t) {
			if f.test {
				continue
			}
			for _, d := range f.ast.Decls {
				_, within := d.(*ast.FuncDecl)
				for n := range ast.Preorder(d) {
					expr, _ := n.(*ast.CallExpr)
					if expr == nil {
						continue
					}
					fun, ok := expr.Fun.(*ast.SelectorExpr)
					if !ok {
						continue
					}
					c := call{expr, f.name, "", fun.Sel.Name, !within}
					if from, ok := fun.X.(*ast.Ident); ok {
						c.from = from.Name
					}
					if !yield(c) {
						return
					}
				}
			}
		}
	}
}

func isTime(e ast.Expr, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "time"
}

// topLevel is all that the root of the repository may hold.
var topLevel = strings.Fields(`go.mod go.sum cmd mesh envelope intents agents state jetstream compose.yaml README.md docs examples .ci
	Dockerfile LICENSE CONTRIBUTING.md CHANGELOG.md SECURITY.md .gitignore .dockerignore`)

// unkept are in no commit: git's own folder and what .gitignore names.
var unkept = []string{".git", "aeemesh", "bin", "dist", ".aeemesh", "*.test", "*.prof"}

func TestTheRootHoldsWhatBelongsThere(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(topLevel, e.Name()) && !matchAny(unkept, e.Name()) {
			t.Errorf("%s does not belong in the root", e.Name())
		}
	}
}

// A pattern is compiled when it is first used, and not when the program starts; one that is
// invalid is found here.
func TestThePatternsAreValid(t *testing.T) {
	t.Parallel()
	n := 0
	for c := range calls(t) {
		switch c.from + "." + c.name {
		case "regexp.MustCompile":
			if c.atStart {
				t.Errorf("%s compiles a regular expression at the start: say pattern.Of", c.file)
			}
		case "pattern.Of":
			n++
			expr, err := evaluated(c.Args[0])
			if err == nil {
				_, err = regexp.Compile(expr)
			}
			if err != nil {
				t.Errorf("%s: %v", c.file, err)
			}
		}
	}
	if n < 50 {
		t.Errorf("%d patterns were found: they are written in another way", n)
	}
}

// evaluated is the text of an expression of constants, as Go has it.
func evaluated(expr ast.Expr) (string, error) {
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, types.ExprString(expr))
	if err != nil {
		return "", err
	}
	if v.Value == nil || v.Value.Kind() != constant.String {
		return "", errors.New("a pattern is a constant")
	}
	return constant.StringVal(v.Value), nil
}

// testName is the name of a test as prose has it.
var testName = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")

// scriptName is the name of a script of TestScripts as prose has it.
var scriptName = regexp.MustCompile("`(?:testdata/script/)?([a-z_]+\\.txtar)`")

// What a page says that a test holds, a test holds; so does a script.
func TestTheTestsThatDocsNameExist(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	for _, f := range repoFiles(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
				there[fn.Name.Name] = true
			}
		}
	}
	named := 0
	textFiles(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") || strings.Contains(name, "testdata/") {
			return
		}
		for _, m := range testName.FindAllSubmatch(text, -1) {
			if named++; !there[string(m[1])] {
				t.Errorf("%s names %s, and there is no such test", name, m[1])
			}
		}
		for _, m := range scriptName.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join("testdata", "script", string(m[1]))); err != nil {
				t.Errorf("%s names a script: %v", name, err)
			}
		}
	})
	if named == 0 {
		t.Error("no page names a test: the pattern is wrong")
	}
}

// fileName is a file or package of the repository as the map of the code has it.
var fileName = regexp.MustCompile("`((?:agents|cmd|envelope|intents|jetstream|mesh|state)/[a-z0-9_/]+(?:\\.go)?)`")

// The walks of docs/architecture.md lead to files that are there.
func TestTheWalksLeadSomewhere(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := fileName.FindAllSubmatch(text, -1)
	if len(names) < 40 {
		t.Errorf("%d files are named: the pattern is wrong", len(names))
	}
	for _, m := range names {
		if _, err := os.Stat(filepath.Join(root, string(m[1]))); err != nil {
			t.Errorf("docs/architecture.md names %s: %v", m[1], err)
		}
	}
}

// textFiles calls f with every file of the repository that is text.
func textFiles(t *testing.T, f func(name string, text []byte)) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if filepath.Dir(rel) == "." && matchAny(unkept, rel) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(name)
		if err == nil && bytes.IndexByte(text, 0) < 0 {
			f(filepath.ToSlash(rel), text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Paths of the machine on which something was written mean nothing elsewhere.
func TestNoFileNamesTheMachineItWasWrittenOn(t *testing.T) {
	t.Parallel()
	machine := regexp.MustCompile("(^|[\\s\"'`(=:,])/(work|root|tmp/aee|Users/\\w+)(/|$|[\\s\"'`),])|shared/(design|research|specs|hooks)\\b")
	folders := regexp.MustCompile("/(work|root|tmp/aee|Users/|design|research|specs|hooks)") // begins with a literal, so it is quick
	textFiles(t, func(name string, text []byte) {
		if !folders.Match(text) {
			return
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if m := machine.Find(line); m != nil {
				t.Errorf("%s:%d names %q", name, i+1, m)
			}
		}
	})
}

// What is shown to a reader ends processes by their id: by name it could end others, too.
func TestNothingShownEndsProcessesByName(t *testing.T) {
	t.Parallel()
	byName := regexp.MustCompile(`\b(p[k]ill|kill[a]ll)\b`)
	textFiles(t, func(name string, text []byte) {
		if !bytes.Contains(text, []byte("kill")) {
			return
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if m := byName.Find(line); m != nil {
				t.Errorf("%s:%d: %s", name, i+1, m)
			}
		}
	})
}

// What a page links to in this repository is there.
func TestLinksBetweenPagesHold(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)\s#]+)(#[^)\s]*)?\)`)
	textFiles(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			to := string(m[1])
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), filepath.FromSlash(to))); err != nil {
				t.Errorf("%s links to %s, which is not there", name, to)
			}
		}
	})
}

func readRoot(t *testing.T, name string) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// compose.yaml is what its readers take it for: a server that is healthy
// before the workers start, two replicas of one agent, one of another, pinned
// images, no secrets.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	text := readRoot(t, "compose.yaml")
	var compose struct {
		Services map[string]struct {
			Image       string            `yaml:"image"`
			Build       any               `yaml:"build"`
			Command     []string          `yaml:"command"`
			Environment map[string]string `yaml:"environment"`
			DependsOn   map[string]struct {
				Condition string `yaml:"condition"`
			} `yaml:"depends_on"`
			Healthcheck struct {
				Test []string `yaml:"test"`
			} `yaml:"healthcheck"`
			Deploy struct {
				Replicas int `yaml:"replicas"`
			} `yaml:"deploy"`
			Configs []struct {
				Source string `yaml:"source"`
				Target string `yaml:"target"`
			} `yaml:"configs"`
			Volumes []string `yaml:"volumes"`
		} `yaml:"services"`
		Configs map[string]struct {
			Content string `yaml:"content"`
		} `yaml:"configs"`
		Volumes map[string]any `yaml:"volumes"`
	}
	if err := yaml.Unmarshal([]byte(text), &compose); err != nil {
		t.Fatal(err)
	}
	nats, ok := compose.Services["nats"]
	if !ok || !regexp.MustCompile(`^nats:\d+\.\d+\.\d+-alpine$`).MatchString(nats.Image) || len(nats.Healthcheck.Test) == 0 ||
		len(nats.Configs) != 1 || !slices.Equal(nats.Command, []string{"--config", nats.Configs[0].Target}) {
		t.Fatalf("the server: %+v", nats)
	}
	// The server's own configuration is one that a server takes.
	conf := filepath.Join(t.TempDir(), "nats.conf")
	content := strings.Replace(compose.Configs[nats.Configs[0].Source].Content, `"/data"`, strconv.Quote(t.TempDir()), 1)
	content = strings.Replace(content, "http: 8222", "http: -1", 1)
	if err := os.WriteFile(conf, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if always, _ := natstest.Run(t, natsd.Config{ConfigFile: conf, Port: natsd.RandomPort}).SyncClass(); !always {
		t.Error("the server of compose.yaml does not wait for the disk")
	}
	apply, ok := compose.Services["apply"]
	if !ok || !slices.Equal(apply.Command, []string{"apply", "--yes"}) || apply.DependsOn["nats"].Condition != "service_healthy" || apply.Environment["NATS_URL"] != "nats://nats:4222" {
		t.Errorf("apply: %+v", apply)
	}
	replicas := map[int]int{}
	for name, s := range compose.Services {
		if name == "nats" || name == "apply" {
			continue
		}
		replicas[max(s.Deploy.Replicas, 1)]++
		if s.Build == nil || s.DependsOn["nats"].Condition != "service_healthy" ||
			s.DependsOn["apply"].Condition != "service_completed_successfully" || s.Environment["NATS_URL"] != "nats://nats:4222" {
			t.Errorf("worker %s: %+v", name, s)
		}
		// Its health is that of the process, not of whichever worker answers.
		if _, port, err := net.SplitHostPort(s.Environment["AEEMESH_HEALTH_LISTEN"]); err != nil || port == "" || !slices.Equal(s.Healthcheck.Test, []string{"CMD", "/aeemesh", "healthcheck"}) {
			t.Errorf("worker %s: health check %v of %q: %v", name, s.Healthcheck.Test, s.Environment["AEEMESH_HEALTH_LISTEN"], err)
		}
		if len(s.Command) < 2 || s.Command[0] != "worker" {
			t.Errorf("worker %s runs %v", name, s.Command)
			continue
		}
		readRoot(t, "examples/"+strings.TrimPrefix(s.Command[1], "/agents/"))
	}
	if replicas[1] != 1 || replicas[2] != 1 || len(compose.Services) != 4 {
		t.Errorf("replicas of the workers: %v", replicas)
	}
	if m := regexp.MustCompile(`(?i)password|secret|token|_key\b|nkey|:latest`).FindString(text); m != "" {
		t.Errorf("compose.yaml holds %q", m)
	}
}

// The image is built with the Go that go.mod asks for, from pinned images, and
// does not run as root.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := readRoot(t, "Dockerfile")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readRoot(t, "go.mod"))
	if version == nil || !strings.Contains(text, "golang:"+version[1]) {
		t.Errorf("the Dockerfile does not build with Go %v", version)
	}
	for _, m := range regexp.MustCompile(`(?m)^FROM\s+(?:--\S+\s+)?(\S+)`).FindAllStringSubmatch(text, -1) {
		if image := m[1]; image != "scratch" && !strings.Contains(image, ":") || strings.HasSuffix(image, ":latest") {
			t.Errorf("image %s is not pinned", image)
		}
	}
	if !regexp.MustCompile(`(?m)^USER\s+(nonroot|65532)`).MatchString(text) {
		t.Error("the image runs as root")
	}
}

// Without bounds of its own a histogram of seconds has buckets for milliseconds.
func TestEveryHistogramHasBoundsOfItsOwn(t *testing.T) {
	t.Parallel()
	found := 0
	for c := range calls(t) {
		if !madeHistogram.MatchString(c.name) {
			continue
		}
		found++
		if !slices.ContainsFunc(c.Args, hasBounds) {
			t.Errorf("%s: %s has no metric.WithExplicitBucketBoundaries", c.file, c.name)
		}
	}
	if found < 8 {
		t.Errorf("%d histograms were found: the pattern is wrong", found)
	}
}

var madeHistogram = regexp.MustCompile(`^((Int|Float)64Histogram|NewClient(Operation|Token).*)$`)

func hasBounds(arg ast.Expr) bool {
	call, ok := arg.(*ast.CallExpr)
	if !ok {
		return false
	}
	option, ok := call.Fun.(*ast.SelectorExpr)
	return ok && option.Sel.Name == "WithExplicitBucketBoundaries"
}
