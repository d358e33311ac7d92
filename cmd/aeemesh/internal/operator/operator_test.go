package operator

import (
	"slices"
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
	if err := mcpServers(&cfg, []string{"a=./x", "a=./y"}); err == nil || !strings.Contains(err.Error(), "a server of this name") {
		t.Errorf("two of one name: %v", err)
	}
}

// What one flag permits is permitted by no other: a host that may be reached may not be in private
// space, and a variable of a program is not one that a document may name.
func TestEachFlagPermitsItsOwnKind(t *testing.T) {
	t.Parallel()
	flags := Flags{Allow: []string{"host"}, private: []string{"private"}, files: []string{"file"}, env: []string{"env"}, programEnv: []string{"program"}}
	var cfg adapters.Config
	cfg.Outbound.Allow, cfg.Outbound.Private, cfg.Outbound.Files = []string{"configured"}, []string{"configured"}, []string{"configured"}
	cfg.Secrets.Env, cfg.Programs.Env = []string{"configured"}, []string{"configured"}
	if err := flags.amend(&cfg); err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string][]string{
		"host": cfg.Outbound.Allow, "private": cfg.Outbound.Private, "file": cfg.Outbound.Files, "env": cfg.Secrets.Env, "program": cfg.Programs.Env,
	} {
		if !slices.Equal(got, []string{"configured", want}) {
			t.Errorf("%q, want configured and %s", got, want)
		}
	}
}
