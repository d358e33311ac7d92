package review

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aeemesh/aeemesh/agents/tool"
)

//go:embed testdata/faulty
var sample embed.FS

const sampleDir = "testdata/faulty"

// A Check checks the files at or below a path, which is relative to root, and reads nothing outside
// root.
type Check func(ctx context.Context, root, at string) (*Report, error)

// Checks are the implementations of the tools check_format and check_code.
type Checks struct {
	// Format checks the layout of the code. Default: [CheckLayout].
	Format Check
	// Code checks for mistakes that compile. Default: [CheckTokens].
	Code Check
}

// Tools returns the tools, which read only files below root. If root does not exist, the calls of
// the tools fail.
func Tools(root string, checks Checks) *tool.Registry {
	if checks.Format == nil {
		checks.Format = CheckLayout
	}
	if checks.Code == nil {
		checks.Code = CheckTokens
	}
	type at struct {
		Path string `json:"path"`
	}
	scan := func(def tool.Definition, check Check) tool.Tool {
		def.Parameters, def.Output = json.RawMessage(pathSchema), json.RawMessage(reportSchema)
		return tool.RepeatSafe(tool.Func(def, func(ctx context.Context, in at) (*Report, error) {
			report, err := check(ctx, root, in.Path)
			var typed *tool.Error
			if errors.As(err, &typed) {
				typed.Tool = def.Name
			}
			return report, err
		}))
	}
	var r tool.Registry
	err := r.Add(
		scan(tool.Definition{Name: "check_format", Description: "Reports syntax errors and what gofmt would change in the Go files below a path."}, checks.Format),
		scan(tool.Definition{Name: "check_code", Description: "Reports mistakes that compile, such as ignored errors or copied locks, in the Go files below a path."}, checks.Code),
		scan(tool.Definition{Name: "find_secrets", Description: "Reports shapes of credentials in the Go and configuration files below a path."}, FindSecrets),
		tool.RepeatSafe(tool.Func(tool.Definition{Name: "summarize", Description: "Sorts and counts findings, and puts them into words.",
			Parameters: json.RawMessage(summarizeSchema), Output: json.RawMessage(reviewSchema)}, summarize)),
	)
	if err == nil {
		err = r.Add(teamTools()...)
	}
	if err != nil {
		panic("review: " + err.Error()) // the definitions above are wrong
	}
	return &r
}

// Call is one call of a tool: it checks the arguments against the tool's schema, and
// the result against that of the result.
func Call(ctx context.Context, tools *tool.Registry, name string, args json.RawMessage) (json.RawMessage, error) {
	t, err := tools.Lookup(name)
	if err != nil {
		return nil, err
	}
	guarded, err := tool.Guard(t, tool.Options{})
	if err != nil {
		return nil, err
	}
	return guarded.Call(ctx, args)
}

// WriteSample writes the package with deliberate faults into dir, which it creates if necessary. It
// overwrites nothing: an existing file is an error.
func WriteSample(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write sample: %w", err)
	}
	entries, err := fs.ReadDir(sample, sampleDir)
	if err != nil {
		return fmt.Errorf("write sample: %w", err)
	}
	for _, e := range entries {
		data, err := fs.ReadFile(sample, sampleDir+"/"+e.Name())
		if err != nil {
			return fmt.Errorf("write sample: %w", err)
		}
		f, err := os.OpenFile(filepath.Join(dir, e.Name()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return fmt.Errorf("write sample: %w", err)
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("write sample: %w", err)
		}
	}
	return nil
}

const findingSchema = `{"type":"object",
	"required":["file","line","column","rule","severity","message"],
	"additionalProperties":false,
	"properties":{
		"file":{"type":"string"},
		"line":{"type":"integer","minimum":1},
		"column":{"type":"integer","minimum":1},
		"rule":{"type":"string"},
		"severity":{"enum":["error","warning","info"]},
		"message":{"type":"string"}}}`

const pathSchema = `{"type":"object","required":["path"],"additionalProperties":false,
	"properties":{"path":{"type":"string","minLength":1,"maxLength":4096,
		"description":"A file or folder, relative to the folder under review; \".\" is all of it."}}}`

const reportSchema = `{"type":"object","required":["files","findings","skipped","truncated"],"properties":{
	"files":{"type":"integer"},
	"findings":{"type":"array","items":` + findingSchema + `},
	"skipped":{"type":"integer"},
	"truncated":{"type":"boolean"}}}`

const summarizeSchema = `{"type":"object","required":["findings"],"additionalProperties":false,"properties":{
	"files":{"type":"integer","minimum":0},
	"findings":{"type":"array","items":` + findingSchema + `}}}`

const reviewSchema = `{"type":"object","required":["summary","findings","counts"],"properties":{
	"summary":{"type":"string"},
	"findings":{"type":"array","items":` + findingSchema + `},
	"counts":{"type":"object","required":["error","warning","info","total"],"additionalProperties":{"type":"integer"}}}}`
