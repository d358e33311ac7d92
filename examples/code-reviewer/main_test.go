package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

// The server has every tool of the document and declares it safe to repeat; its result is the same
// that the program prints for one call.
func TestServerHasTheToolsOfTheDocument(t *testing.T) {
	t.Parallel()
	root := writeSample(t)
	here, there := mcp.NewInMemoryTransports()
	server, err := newServer(reviewTools(root)).Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	served := map[string]bool{}
	for tool, err := range client.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		served[tool.Name] = tool.Annotations.IdempotentHint
	}
	doc, err := aaif.Parse(document(t), aaif.Options{Kind: aaif.KindAgent})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range doc.Definition().Agent.Tools {
		if name, ok := strings.CutPrefix(tool.Endpoint, "mcp://reviewer/"); !ok || name != tool.Name || !served[name] {
			t.Errorf("tool %s has endpoint %q; served are %v", tool.Name, tool.Endpoint, served)
		}
	}
	res, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "check_code", Arguments: map[string]any{"path": "."}})
	if err != nil || res.IsError {
		t.Fatalf("result %+v, error %v", res, err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--root", root, "--tool", "check_code"}, strings.NewReader(`{"path":"."}`), &out); err != nil {
		t.Fatal(err)
	}
	var got, want review.Report
	text, _ := json.Marshal(res.StructuredContent)
	if json.Unmarshal(text, &got) != nil || json.Unmarshal(out.Bytes(), &want) != nil || len(got.Findings) != len(want.Findings) || len(got.Findings) < 10 {
		t.Errorf("served %+v, printed %+v", got, want)
	}
	if res, err = client.CallTool(t.Context(), &mcp.CallToolParams{Name: "check_code", Arguments: map[string]any{"path": ".."}}); err != nil || !res.IsError {
		t.Errorf("a path that leads out: %+v, %v", res, err)
	}
	out.Reset()
	if err := run(t.Context(), []string{"--root", root, "--tool", "check_code"}, strings.NewReader(`{"path":".."}`), &out); err == nil || !strings.HasPrefix(out.String(), `{"error":"`) {
		t.Errorf("a path that leads out: %v, %s", err, out.String())
	}
}
