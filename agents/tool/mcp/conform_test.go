//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// nodePackage returns the folder of an npm package, and the path of node. It skips the test if
// there is none.
func nodePackage(t *testing.T, name string) (node, dir string) {
	t.Helper()
	modules := os.Getenv("AEEMESH_TEST_NODE")
	if modules == "" {
		t.Skipf("AEEMESH_TEST_NODE is not set: the tests against %s need a folder that has it in node_modules", name)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("node is not in the PATH: the tests against %s need it", name)
	}
	dir = filepath.Join(modules, "node_modules", filepath.FromSlash(name))
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("%s is not installed in %s", name, modules)
	}
	return node, dir
}

// The client part of the protocol's own conformance suite, against this adapter: the scenarios that
// need neither a person nor keys that AAIF cannot express.
func TestConformanceSuite(t *testing.T) {
	t.Parallel()
	node, dir := nodePackage(t, "@modelcontextprotocol/conformance")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shim, err := filepath.Abs(filepath.Join("testdata", "fs-before-22.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range []string{"initialize", "tools_call", "sse-retry", "auth/client-credentials-basic", "auth/pre-registration"} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out := t.TempDir()
			cmd := exec.CommandContext(ctx, node, "--import", shim, filepath.Join(dir, "dist", "index.js"),
				"client", "--command", exe+" conform", "--scenario", scenario, "-o", out)
			said, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, said)
			}
			checks, passed := read(t, out)
			for _, c := range checks {
				if c.Status == "FAILURE" || c.Status == "WARNING" {
					t.Errorf("%s: %s: %s", c.ID, c.Status, c.ErrorMessage)
				}
			}
			if passed == 0 {
				t.Errorf("nothing was checked:\n%s", said)
			}
		})
	}
}

type check struct{ ID, Status, ErrorMessage string }

// read reads what the suite has found.
func read(t *testing.T, dir string) (checks []check, passed int) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err == nil && len(found) == 0 { // of a scenario with a slash in its name
		found, err = filepath.Glob(filepath.Join(dir, "*", "*", "checks.json"))
	}
	if err != nil || len(found) != 1 {
		t.Fatalf("results %v, error %v", found, err)
	}
	data, err := os.ReadFile(found[0])
	if err == nil {
		err = json.Unmarshal(data, &checks)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if c.Status == "SUCCESS" {
			passed++
		}
	}
	return checks, passed
}

// conform is the client that the suite runs: it opens the server as a document
// would, and calls each of its tools.
func conform(url string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cfg := mcp.Config{Servers: map[string]mcp.Server{"it": {URL: url}}, Version: "1.0.0"}
	if context := os.Getenv("MCP_CONFORMANCE_CONTEXT"); context != "" { // the client that the suite knows
		cfg.Servers["it"] = mcp.Server{URL: url, Auth: &aaif.Auth{Type: aaif.AuthOAuth2, EnvVar: "CLIENT"}}
		cfg.Client = authorizing(context)
	}
	servers, err := mcp.NewServers(cfg)
	if err != nil {
		return err
	}
	defer func() {
		if closing := servers.Close(); err == nil {
			err = closing
		}
	}()
	src, err := servers.Open(&aaif.Tool{Name: "all", Protocol: aaif.ProtocolMCP, Endpoint: "mcp://it/*"})
	if err != nil {
		return err
	}
	tools, err := src.Tools(ctx)
	if err != nil {
		return err
	}
	for _, tl := range tools {
		args := `{}`
		if strings.Contains(string(tl.Definition().Parameters), `"a"`) {
			args = `{"a": 5, "b": 3}`
		}
		result, err := tl.Call(ctx, json.RawMessage(args))
		if err != nil {
			return err
		}
		fmt.Println(tl.Definition().Name, string(result))
	}
	return nil
}

// authorizing makes clients that get their tokens from the authorization server that the server
// names. Its address is not known before, so it is requested first.
func authorizing(client string) func(context.Context, string, *aaif.Auth, bool) (*http.Client, error) {
	return func(ctx context.Context, endpoint string, a *aaif.Auth, _ bool) (*http.Client, error) {
		refused, err := http.Post(endpoint, "application/json", strings.NewReader("{}"))
		if err != nil {
			return nil, err
		}
		defer refused.Body.Close()
		grant, err := mcp.Discover(ctx, refused, http.DefaultClient)
		if err != nil {
			return nil, err
		}
		u, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		token, err := url.Parse(grant.TokenURL)
		if err != nil {
			return nil, err
		}
		policy, err := outbound.New(outbound.Config{Allow: []string{u.Scheme + "://" + u.Host, token.Scheme + "://" + token.Host}})
		if err != nil {
			return nil, err
		}
		secrets := &secret.Set{AllowEnv: []string{"CLIENT"}, Env: func(string) (string, bool) { return client, true }}
		return policy.Client(outbound.Options{Endpoint: u, Auth: a, Secrets: secrets, Discover: mcp.Discover, Timeout: -1, MaxResponse: -1})
	}
}
