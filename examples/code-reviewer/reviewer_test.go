package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

// planted are the faults of testdata/faulty, as "file:line rule".
var planted = []string{
	"config.yaml:3 hardcoded-secret",
	"orders.go:29 copied-lock",
	"orders.go:45 printf",
	"orders.go:45 printf",
	"orders.go:48 ignored-error",
	"orders.go:48 string-int",
	"orders.go:53 printf",
	"orders.go:58 unmarshal-value",
	"orders.go:67 shadowed-error",
	"orders.go:72 defer-in-loop",
	"orders.go:83 lost-cancel",
	"orders.go:87 unreachable",
	"report.go:16 typed-nil",
	"report.go:20 gofmt",
	"report.go:22 gofmt",
	"report.go:23 nil-map",
	"report.go:30 self-assignment",
	"report.go:31 self-comparison",
	"upload.go:5 aws-key",
	"upload.go:6 url-password",
	"upload.go:9 hardcoded-secret",
}

func document(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func places(findings []review.Finding) []string {
	out := []string{}
	for _, f := range findings {
		out = append(out, fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Rule))
	}
	slices.Sort(out)
	return out
}

// ask runs the agent as a runtime would: by the model's script, with the tools behind guards with
// the document's schemas.
func ask(t *testing.T, root, path string) (*review.Review, []model.Message) {
	t.Helper()
	doc, err := aaif.Parse(document(t), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	agent := doc.Definition().Agent
	registry := reviewTools(root)
	tools := make(map[string]*tool.Guarded)
	req := &model.Request{Model: agent.Model.Preferred, Params: model.Params{Extended: agent.Model.Params.Extended}}
	for _, d := range agent.Tools {
		tl, err := registry.Lookup(d.Name)
		if err != nil {
			t.Fatalf("the document names a tool that is not there: %v", err)
		}
		g, err := tool.Guard(tl, tool.Options{Definition: tool.Definition{Name: d.Name, Description: d.Description, Parameters: d.ParametersSchema}})
		if err != nil {
			t.Fatal(err)
		}
		tools[d.Name] = g
		req.Tools = append(req.Tools, model.ToolDef{Name: d.Name, Description: d.Description, Parameters: d.ParametersSchema})
	}
	input, _ := json.Marshal(map[string]string{"path": path})
	in, err := tool.CompileSchema(agent.IO.InputSchema)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Validate(input); err != nil {
		t.Fatal(err)
	}
	req.Messages = []model.Message{model.User(string(input))}
	for range 10 {
		res, err := builtin.New().Generate(t.Context(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Messages = append(req.Messages, res.Message)
		if res.Finish == model.FinishStop {
			out, err := tool.CompileSchema(agent.IO.OutputSchema)
			if err != nil {
				t.Fatal(err)
			}
			if err := out.Validate(json.RawMessage(res.Message.Content)); err != nil {
				t.Errorf("the answer breaks io.output_schema: %v", err)
			}
			var r review.Review
			if err := json.Unmarshal([]byte(res.Message.Content), &r); err != nil {
				t.Fatal(err)
			}
			return &r, req.Messages
		}
		for _, c := range res.Message.ToolCalls {
			result, err := tools[c.Name].Call(t.Context(), c.Arguments)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			req.Messages = append(req.Messages, model.ToolResult(c, result))
		}
	}
	t.Fatal("the script does not end")
	return nil, nil
}

func writeSample(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "orders")
	if err := review.WriteSample(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAgentFindsEveryPlantedFaultAndNothingElse(t *testing.T) {
	t.Parallel()
	got, conversation := ask(t, writeSample(t), ".")
	if p := places(got.Findings); !slices.Equal(p, planted) {
		t.Errorf("findings\n got %s\nwant %s", strings.Join(p, "\n     "), strings.Join(planted, "\n     "))
	}
	const want = "21 findings in 4 files (4 Go files read): 11 errors, 8 warnings, 2 info."
	if got.Summary != want {
		t.Errorf("summary %q, want %q", got.Summary, want)
	}
	for i, f := range got.Findings[1:] {
		if rank(got.Findings[i].Severity) > rank(f.Severity) {
			t.Errorf("%s comes after %s", f.Severity, got.Findings[i].Severity)
		}
	}
	all, _ := json.Marshal(conversation)
	for _, secret := range []string{"AKIAIOSFODNN7EXAMPLE", "0rders-Go-H3re", "q7Zp-41fLx9-vT2kW8", "kettle-91-Harbour-4"} {
		if strings.Contains(string(all), secret) {
			t.Errorf("the conversation repeats a secret: %s", secret[:4])
		}
	}
}

func rank(s review.Severity) int {
	return slices.Index([]review.Severity{review.SeverityError, review.SeverityWarning, review.SeverityInfo}, s)
}

func TestAgentHasNothingToSayAboutCleanCode(t *testing.T) {
	t.Parallel()
	got, _ := ask(t, writeSample(t), "clean.go")
	if len(got.Findings) != 0 || got.Summary != "No findings (1 Go file read)." || got.Counts["total"] != 0 {
		t.Errorf("review %+v", got)
	}
}

// The tools report nothing about their own code and that of the ports.
func TestToolsHaveNothingToSayAboutTheirOwnCode(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes much processor time")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"examples", "agents/model", "agents/tool"} {
		got, _ := ask(t, root, path)
		for _, f := range got.Findings {
			if strings.HasSuffix(f.File, "_test.go") && (f.Rule == "ignored-error" || strings.HasPrefix(f.Message, "this looks like")) {
				continue // tests may contain such findings: their secrets are invented
			}
			t.Errorf("%s:%d:%d: %s: %s", f.File, f.Line, f.Column, f.Rule, f.Message)
		}
	}
}

func TestDocumentIsCleanAAIF(t *testing.T) {
	t.Parallel()
	echo, err := os.ReadFile("../echo/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"code-reviewer": document(t), "echo": echo} {
		doc, err := aaif.Parse(text, aaif.Options{Kind: aaif.KindAgent})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if extended := doc.Definition().Agent.Model.Params; extended != nil && len(extended.Extended) > 0 {
			if err := builtin.Check(extended.Extended); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func call(t *testing.T, root, name, path string) (*review.Report, error) {
	t.Helper()
	tl, err := reviewTools(root).Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	g, err := tool.Guard(tl, tool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	args, _ := json.Marshal(map[string]string{"path": path})
	raw, err := g.Call(t.Context(), args)
	if err != nil {
		return nil, err
	}
	var r review.Report
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return &r, nil
}

// write makes files of a txtar-like map in a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const leaky = "package a\n\nvar token = \"q7Zp-41fLx9-vT2kW8\"\n"

func TestPathsAreConfined(t *testing.T) {
	t.Parallel()
	outside := write(t, map[string]string{"secret.go": leaky, "dir/secret.go": leaky})
	root := write(t, map[string]string{"a.go": "package a\n", "sub/b.go": "package b\n"})
	for link, target := range map[string]string{
		"out":         outside,
		"out.go":      filepath.Join(outside, "secret.go"),
		"up":          "..",
		"sub/around":  "../../" + filepath.Base(outside),
		"sub/link.go": "../a.go",
		"loop":        "loop",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Skip("no symbolic links here")
		}
	}
	for _, path := range []string{
		"..", "../x", "sub/../..", "/", "/etc", outside, "out", "out/", "out/secret.go", "out.go", "up", "up/" + filepath.Base(outside),
		"sub/around", "loop", "no such", "a.go/b", "a\x00b", `sub\..\..`, `C:\`, "\xff",
	} {
		for _, name := range []string{"check_format", "check_code", "find_secrets"} {
			r, err := call(t, root, name, path)
			if !errors.Is(err, tool.ErrInvalidArguments) {
				t.Errorf("%s %q: report %+v, error %v, want %v", name, path, r, err, tool.ErrInvalidArguments)
			}
			if err != nil && (strings.Contains(err.Error(), root) || strings.Contains(err.Error(), outside)) {
				t.Errorf("%s %q: the error tells where things are: %v", name, path, err)
			}
		}
	}
	// Links that are found are not followed; a path may contain a link that stays within the root.
	r, err := call(t, root, "find_secrets", ".")
	if err != nil || r.Files != 2 || len(r.Findings) != 0 {
		t.Errorf("report %+v, error %v, want two files", r, err)
	}
	if r, err = call(t, root, "check_code", "./sub//b.go"); err != nil || r.Files != 1 {
		t.Errorf("report %+v, error %v, want one file", r, err)
	}
	if _, err := call(t, filepath.Join(root, "missing"), "check_code", "."); !errors.Is(err, tool.ErrFailed) || strings.Contains(err.Error(), root) {
		t.Errorf("a root that is not there: %v", err)
	}
}

func TestFoldersThatAreNotTheAuthorsAreSkipped(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a.go": "package a\n"}
	for _, dir := range []string{"vendor", "testdata", "node_modules", ".git", "_old", "x/vendor/y"} {
		files[dir+"/b.go"] = leaky
	}
	root := write(t, files)
	if r, err := call(t, root, "find_secrets", "."); err != nil || r.Files != 1 || len(r.Findings) != 0 {
		t.Errorf("report %+v, error %v", r, err)
	}
	if r, err := call(t, root, "find_secrets", "testdata"); err != nil || len(r.Findings) != 1 {
		t.Errorf("a folder that is asked for by name: %+v, %v", r, err)
	}
}

func TestReadingIsBounded(t *testing.T) {
	t.Parallel()
	files := map[string]string{"large.go": "package a\n" + strings.Repeat("\n", 1<<20)}
	for i := range 2000 + 5 {
		files[fmt.Sprintf("f%d.go", i)] = "package a\n"
	}
	r, err := call(t, write(t, files), "check_format", ".")
	if err != nil || r.Files != 2000 || r.Skipped != 6 {
		t.Errorf("%d files and %d skipped, want %d and 6; error %v", r.Files, r.Skipped, 2000, err)
	}
	many := "package a\n" + strings.Repeat("var token = \"q7Zp-41fLx9-vT2kW8\"\n", 500+1)
	r, err = call(t, write(t, map[string]string{"a.go": many}), "find_secrets", ".")
	if err != nil || len(r.Findings) != 500 || !r.Truncated {
		t.Errorf("%d findings, truncated %v, want %d and true; error %v", len(r.Findings), r.Truncated, 500, err)
	}
}

func TestToolsObeyTheirContext(t *testing.T) {
	t.Parallel()
	root := writeSample(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, check := range []func(context.Context, string, string) (*review.Report, error){checkFormat, checkCode, review.FindSecrets} {
		if _, err := check(ctx, root, "."); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	}
}
