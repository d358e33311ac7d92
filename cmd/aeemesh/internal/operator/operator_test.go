package operator

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/adapters"
)

func TestMCPServersAreCommandsOrURLs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ spec, url, command, wrong string }{
		{spec: "files=./server --root 'a b'", command: "./server|--root|a b"},
		{spec: "wiki=https://wiki.example/mcp?a=b", url: "https://wiki.example/mcp?a=b"},
		{spec: "odd=httpserver --x", command: "httpserver|--x"},
		{spec: "files", wrong: "NAME=COMMAND"},
		{spec: "=./server", wrong: "NAME=COMMAND"},
		{spec: "files=", wrong: "NAME=COMMAND"},
		{spec: "files='open", wrong: "--mcp files: "},
	} {
		var cfg adapters.Config
		err := mcpServers(&cfg, []string{c.spec})
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want %q", c.spec, err, c.wrong)
			}
			continue
		}
		name, _, _ := strings.Cut(c.spec, "=")
		if got := cfg.MCPServers[name]; err != nil || got.URL != c.url || strings.Join(got.Command, "|") != c.command {
			t.Errorf("%s: %+v, %v", c.spec, got, err)
		}
	}
	var cfg adapters.Config
	if err := mcpServers(&cfg, []string{"a=./x", "a=./y"}); err == nil || !strings.Contains(err.Error(), "one of this name") {
		t.Errorf("two of one name: %v", err)
	}
}
