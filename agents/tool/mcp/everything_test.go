//go:build unix

package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// The reference server of the protocol's authors, over both of its transports.
func TestServerEverything(t *testing.T) {
	t.Parallel()
	node, dir := nodePackage(t, "@modelcontextprotocol/server-everything")
	program := filepath.Join(dir, "dist", "index.js")
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		everything(t, mcp.Server{Command: []string{node, program}})
	})
	t.Run("streamable HTTP", func(t *testing.T) {
		t.Parallel()
		everything(t, mcp.Server{URL: everythingHTTP(t, node, program, "streamableHttp") + "/mcp"})
	})
	t.Run("SSE", func(t *testing.T) {
		t.Parallel()
		everything(t, mcp.Server{URL: everythingHTTP(t, node, program, "sse") + "/sse"})
	})
}

// everythingHTTP runs the server on a free port.
func everythingHTTP(t *testing.T, node, program, transport string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	cmd := exec.Command(node, program, transport)
	cmd.Env = append(os.Environ(), fmt.Sprintf("PORT=%d", port))
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		once := sync.OnceFunc(func() { close(ready) })
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if strings.Contains(lines.Text(), "on port") {
				once()
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatal("the server ended")
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not start")
	}
	return fmt.Sprintf("http://127.0.0.1:%d", port)
}

func everything(t *testing.T, s mcp.Server) {
	told := make(chan mcp.Progress, 100)
	servers := newServers(t, s, func(c *mcp.Config) { c.Progress = func(p mcp.Progress) { told <- p } })
	byName := tools(t, open(t, servers, "mcp://it/*"))
	for name, tl := range byName {
		if _, err := tool.Guard(tl, tool.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	call := func(name, args string) (string, error) {
		t.Helper()
		tl := byName[name]
		if tl == nil {
			t.Fatalf("there is no tool %s", name)
		}
		guarded, err := tool.Guard(tl, tool.Options{})
		if err != nil {
			t.Fatal(err)
		}
		result, err := guarded.Call(t.Context(), json.RawMessage(args))
		return string(result), err
	}
	for _, tt := range []struct{ tool, args, want string }{
		{"echo", `{"message":"hello «mesh»"}`, `"Echo: hello «mesh»"`},
		{"get-sum", `{"a":2,"b":40}`, `"The sum of 2 and 40 is 42."`},
		{"get-structured-content", `{"location":"Chicago"}`, `{"temperature":36,"conditions":"Light rain / drizzle","humidity":82}`},
		{"get-annotated-message", `{"messageType":"error"}`, `"Error: Operation failed"`},
	} {
		if got, err := call(tt.tool, tt.args); err != nil || got != tt.want {
			t.Errorf("%s: %s, error %v, want %s", tt.tool, got, err, tt.want)
		}
	}
	image, err := call("get-tiny-image", `{}`)
	if err != nil || !strings.Contains(image, `"type":"image"`) || !strings.Contains(image, `"mime_type":"image/png"`) || strings.Contains(image, "iVBOR") {
		t.Errorf("image: %s, error %v", image, err)
	}
	if links, err := call("get-resource-links", `{"count":2}`); err != nil || strings.Count(links, `"type":"resource_link"`) != 2 {
		t.Errorf("links: %s, error %v", links, err)
	}
	if _, err := call("get-sum", `{"a":"two"}`); !errors.Is(err, tool.ErrInvalidArguments) {
		t.Errorf("arguments that do not fit: %v", err)
	}
	if _, err := byName["get-sum"].Call(t.Context(), json.RawMessage(`{"a":"two"}`)); err == nil || !strings.Contains(err.Error(), "expected number") {
		t.Errorf("what the server says of arguments: %v", err)
	}
	if !tool.IsRepeatSafe(byName["echo"]) {
		t.Error("echo is not safe to repeat, though the server says so and is on the list")
	}

	for len(told) > 0 {
		<-told
	}
	if got, err := call("trigger-long-running-operation", `{"duration":0.2,"steps":4}`); err != nil || !strings.Contains(got, "completed") {
		t.Errorf("long running: %s, error %v", got, err)
	}
	select { // the last ones may come after the result, and are dropped then
	case p := <-told:
		if want := (mcp.Progress{Server: "it", Tool: "trigger-long-running-operation", Progress: 1, Total: 4}); p != want {
			t.Errorf("progress %+v, want %+v", p, want)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no progress is told")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-told; cancel() }()
	if _, err := byName["trigger-long-running-operation"].Call(ctx, json.RawMessage(`{"duration":60,"steps":600}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is cancelled: %v", err)
	}
}
