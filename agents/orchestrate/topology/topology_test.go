package topology

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/condition"
	"github.com/aeemesh/aeemesh/agents/orchestrate"
)

var update = flag.Bool("update", false, "write the wants")

// The documents in testdata/alone, each followed by the problems that Check reports.
func TestDocumentsAlone(t *testing.T) {
	t.Parallel()
	archives(t, "alone", func(t *testing.T, files []txtar.File) (out []txtar.File) {
		for _, f := range files {
			out = append(out, f, txtar.File{Name: strings.TrimSuffix(f.Name, ".yaml") + ".want", Data: lines(Check(parse(t, f)))})
		}
		return out
	})
}

// The documents in each file of testdata/together, and the problems that Together reports for each.
func TestDocumentsTogether(t *testing.T) {
	t.Parallel()
	archives(t, "together", func(t *testing.T, files []txtar.File) (out []txtar.File) {
		var sources []Source
		for _, f := range files {
			sources = append(sources, Source{Name: f.Name, Path: filepath.Join("/teams", f.Name), Doc: parse(t, f)})
		}
		for i, problems := range Together(sources) {
			out = append(out, files[i], txtar.File{Name: strings.TrimSuffix(files[i].Name, ".yaml") + ".want", Data: lines(problems)})
		}
		return out
	})
}

// archives computes the expected parts of all archives of a folder, and compares them.
func archives(t *testing.T, dir string, compute func(*testing.T, []txtar.File) []txtar.File) {
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files := slices.DeleteFunc(slices.Clone(archive.Files), func(f txtar.File) bool { return strings.HasSuffix(f.Name, ".want") })
			out := &txtar.Archive{Comment: archive.Comment, Files: compute(t, files)}
			if *update {
				if err := os.WriteFile(path, txtar.Format(out), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got, want := string(txtar.Format(out)), string(txtar.Format(archive)); got != want {
				t.Errorf("%s: got\n%s\nlook, and run with -update", path, got)
			}
		})
	}
}

func parse(t *testing.T, f txtar.File) *aaif.Document {
	t.Helper()
	doc, err := aaif.Parse(f.Data, aaif.Options{Name: f.Name})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func lines(problems []aaif.Problem) []byte {
	if len(problems) == 0 {
		return []byte("ok\n")
	}
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(p.String() + "\n")
	}
	return []byte(b.String())
}

// FuzzCheck compares Check with the engine: a document that the engine cannot compile is an error
// here, and both find the same pattern.
func FuzzCheck(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*", "*.txtar"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if !strings.HasSuffix(file.Name, ".want") {
				f.Add(file.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := aaif.Parse(data, aaif.Options{Kind: aaif.KindAgent})
		if err != nil {
			return
		}
		problems := append(condition.Check(doc), Check(doc)...)
		plan, err := orchestrate.Compile(doc.Definition(), orchestrate.HasModel(doc.Definition()))
		if err != nil && !slices.ContainsFunc(problems, func(p aaif.Problem) bool {
			return p.Severity == aaif.SeverityError
		}) {
			t.Errorf("the engine refuses it, and Check does not: %v\n%s", err, lines(problems))
		}
		if plan == nil {
			return
		}
		want := map[orchestrate.Pattern][]pattern{orchestrate.Pipeline: {pipeline}, orchestrate.Router: {router}, orchestrate.Swarm: {swarm, inTurn}, orchestrate.ModelLed: {modelLed}}
		if got := newTeam(doc).pattern; !slices.Contains(want[plan.Pattern], got) || plan.Parallel != (got == swarm) {
			t.Errorf("pattern %v, the engine reads %s", got, plan.Pattern)
		}
	})
}

// A document with very many subagents, steps and rules lists no more problems than others, and does
// not cost quadratic work.
func TestManySubagents(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"sc_standard":"SC-006","agent":{"name":"A","goal":"G","orchestration":{"subagents":[`)
	const n = 8000
	for i := range n {
		fmt.Fprintf(&b, `{"ref":"agent.r%d","alias":"a%[1]d"},`, i)
	}
	b.WriteString(`{"ref":"agent.z"}],"pipeline":[`)
	for i := range n {
		fmt.Fprintf(&b, `"a%d","x%[1]d","agent.y%[1]d",`, i)
	}
	b.WriteString(`"agent.z"],"handoff":[`)
	for i := range 2000 {
		fmt.Fprintf(&b, `{"condition":{"lang":"cel","expr":"true"},"target_agent":"agent.r%d"},`, i)
	}
	b.WriteString(`{"condition":{"lang":"always"},"target_agent":"agent.z"}]}}}`)
	doc, err := aaif.Parse([]byte(b.String()), aaif.Options{})
	if err != nil {
		t.Fatal(err)
	}
	problems := Together([]Source{{Name: "a", Doc: doc}, {Name: "b", Doc: doc}})
	if len(problems[0]) < 500 || len(problems[0]) > maxProblems+1 {
		t.Errorf("%d problems", len(problems[0]))
	}
}

// The documents of our examples have no errors, nor have the valid ones of the published corpus,
// which is beside the repository on some machines.
func TestExamplesCanWork(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	var paths []string
	for _, pattern := range []string{
		filepath.Join(root, "examples", "*", "*.yaml"), filepath.Join(root, "examples", "*", "*", "*.yaml"),
		filepath.Join(root, "..", "shared", "conformance", "aaif", "tests", "conformance", "valid", "*.json"),
	} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, more...)
	}
	teams := 0
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := aaif.Parse(data, aaif.Options{Name: path})
		if err != nil {
			if strings.Contains(path, "testdata") {
				continue // not a document, but the input of an example
			}
			t.Fatal(err)
		}
		for _, p := range Check(doc) {
			if p.Severity == aaif.SeverityError {
				t.Errorf("%s: %s", filepath.Base(path), p)
			}
		}
		if def := doc.Definition(); def != nil && def.Agent.Orchestration != nil {
			teams++
			if _, err := orchestrate.Compile(def, orchestrate.HasModel(def)); err != nil {
				t.Errorf("%s: %v", filepath.Base(path), err)
			}
		}
	}
	if teams < 8 {
		t.Errorf("only %d of the documents have a team", teams)
	}
}

// Random teams: Check reads all of them, and the engine compiles those that Check accepts.
func TestTeamsAtRandom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	name := func() string {
		return pick(`"a"`, `"b"`, `"c"`, `"agent.a"`, `"agent.b"`, `"human.boss"`, `"agent.t"`, `"synthesizer"`, `"nobody"`, `""`, `"skill:x"`)
	}
	when := func() string {
		return pick(`{"lang":"always"}`, `{"lang":"never"}`, `{"lang":"cel","expr":"input.x"}`, `{"lang":"jmespath","expr":"x"}`, `"in words"`, `{"lang":"jsonlogic","expr":true}`)
	}
	list := func(n int, item func() string) string {
		var items []string
		for range r.IntN(n) {
			items = append(items, item())
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	object := func(members ...func() string) string {
		var out []string
		for _, m := range members {
			if r.IntN(2) == 0 {
				out = append(out, m())
			}
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	member := func(name string, value func() string) func() string {
		return func() string { return `"` + name + `":` + value() }
	}
	subagent := func() string {
		rest := object(member("alias", name), member("when", when), member("role", func() string { return pick(`"worker"`, `"evaluator"`, `"fallback"`, `"specialist"`) }))
		return strings.Replace(strings.Replace(rest, "{", `{"ref":`+pick(`"agent.a"`, `"agent.b"`, `"agent.t"`, `"human.boss"`, `"x"`, `"./x.yaml"`)+",", 1), ",}", "}", 1)
	}
	refused, teams := 0, 0
	for range 3000 {
		text := `{"sc_standard":"SC-006","agent":{"name":"T","goal":"G",` + pick(``, `"model":{"provider":"openai"},`) + `"orchestration":` + object(
			member("role", func() string { return pick(`"router"`, `"orchestrator"`, `"worker"`) }),
			member("subagents", func() string { return list(5, subagent) }),
			member("pipeline", func() string { return list(4, name) }),
			member("parallel_execution", func() string { return pick("true", "false") }),
			member("handoff", func() string {
				return list(3, func() string { return `{"condition":` + when() + `,"target_agent":` + name() + `}` })
			}),
			member("consensus", func() string {
				return object(member("strategy", func() string { return pick(`"majority_vote"`, `"best_of_n"`, `"referee"`, `"first_success"`) }),
					member("min_votes", func() string { return pick("1", "3") }), member("referee_agent", name))
			}),
		) + `},"x-aeemesh":` + pick(`{}`, `{"orchestration":`+object(
			member("steps", func() string {
				return `{` + name() + `:` + object(member("escalate_to", name), member("on_error", func() string { return pick(`"fallback"`, `"skip"`, `"fial"`) }),
					member("input", when), member("timeout_seconds", func() string { return pick("5", "-1") })) + `}`
			}),
			member("synthesizer", name), member("min_results", func() string { return pick("2", "9") }), member("vote_on", func() string { return pick(`"/x"`, `"x"`) }), member("tie", func() string { return pick(`"fail"`, `"toss"`) }),
		)+`}`) + `}`
		doc, err := aaif.Parse([]byte(text), aaif.Options{Kind: aaif.KindAgent})
		if err != nil {
			continue // an empty name, say
		}
		problems := append(condition.Check(doc), Check(doc)...)
		bad := slices.ContainsFunc(problems, func(p aaif.Problem) bool { return p.Severity == aaif.SeverityError })
		plan, err := orchestrate.Compile(doc.Definition(), orchestrate.HasModel(doc.Definition()))
		if err != nil && !bad {
			t.Errorf("%s\nthe engine refuses it: %v\n%s", text, err, lines(problems))
		}
		if bad {
			refused++
		} else if plan != nil {
			teams++
		}
	}
	if refused < 100 || teams < 100 {
		t.Errorf("%d were refused, %d were teams", refused, teams)
	}
}
