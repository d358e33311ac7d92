package aimocktest

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

//go:embed aimock.mjs
var script string

// Env is the environment variable with the folder that contains node_modules.
const Env = "AEEMESH_TEST_NODE"

// patience bounds the start of the process, which normally takes a fifth of a
// second.
const patience = 60 * time.Second

// Server is a running aimock.
type Server struct {
	url    *url.URL
	client *http.Client
	stages atomic.Int64
}

// Start starts aimock on a free port, and stops it when the test ends. It skips
// the test if Node or the package is missing.
func Start(t testing.TB) *Server {
	t.Helper()
	dir := os.Getenv(Env)
	if dir == "" {
		t.Skipf("%s is not set: the tests against @copilotkit/aimock need a folder that has it in node_modules", Env)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not in the PATH: the tests against @copilotkit/aimock need it")
	}
	cmd := exec.Command(node, "--input-type=module", "-e", script)
	cmd.Dir = dir // the folder in which Node looks for the package
	cmd.Env = append(os.Environ(), "AIMOCK_STRICT_TURN_INDEX=1")
	var complaint strings.Builder
	cmd.Stderr = &complaint
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start node: %v", err)
	}
	t.Cleanup(func() {
		stdin.Close() // aimock ends when its standard input closes
		kill := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		cmd.Wait()
		kill.Stop()
	})
	kill := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	kill.Stop()
	if err != nil {
		cmd.Wait()
		t.Fatalf("aimock did not start: %v\n%s", err, &complaint)
	}
	u, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("aimock says it is at %q", line)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	t.Cleanup(transport.CloseIdleConnections)
	return &Server{url: u, client: &http.Client{Transport: transport}}
}

// Stage is a base URL at which turns are played.
type Stage struct {
	// URL is the base, without a path and a final slash.
	URL string

	recorder *recorder
}

// Stage makes aimock play turns[n] for each request below the Stage's URL whose
// conversation has n assistant messages.
//
// A turn that fails is an HTTP error of its kind, with Retry-After where it has
// one, in whole seconds. If it also has a Text, which should have 80 characters
// or more, a stream breaks in the middle of the Text; without streaming the
// Text is the answer. Hang is not supported.
func (s *Server) Stage(t testing.TB, turns ...modeltest.Turn) *Stage {
	t.Helper()
	name := fmt.Sprintf("stage-%d", s.stages.Add(1))
	fixtures := []fixture{}
	for n, turn := range turns {
		fixtures = append(fixtures, play(name, n, turn))
	}
	body, err := json.Marshal(map[string]any{"fixtures": fixtures})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Post(s.url.String()+"/__aimock/fixtures", "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatalf("give aimock its turns: %v", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(res.Body)
		t.Fatalf("give aimock its turns: %s: %s", res.Status, why)
	}
	r := newRecorder(t, s, name)
	return &Stage{URL: r.url, recorder: r}
}

// Requests returns the requests so far, in order of arrival.
func (s *Stage) Requests() []Request { return s.recorder.all() }

// fixture is an aimock fixture: a request to match, and its answer.
type fixture struct {
	Match     map[string]any `json:"match"`
	Response  map[string]any `json:"response"`
	ChunkSize int            `json:"chunkSize"`
	Truncate  int            `json:"truncateAfterChunks,omitempty"`
	Latency   int            `json:"latency,omitempty"` // ms between chunks
}

func play(stage string, n int, turn modeltest.Turn) fixture {
	f := fixture{
		Match:     map[string]any{"context": stage, "turnIndex": n},
		ChunkSize: 8,
	}
	if turn.Fail != nil && turn.Text == "" {
		f.Response = failure(turn.Fail)
		return f
	}
	if turn.Fail != nil {
		f.Truncate = 6 // the chunk after which the stream breaks, of about 10
		f.Latency = 2  // otherwise the text that was written is dropped with the connection
	}
	u := turn.Usage
	f.Response = map[string]any{"usage": map[string]any{
		"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens,
		"promptTokenCount": u.InputTokens, "candidatesTokenCount": u.OutputTokens, "totalTokenCount": u.InputTokens + u.OutputTokens,
	}}
	if turn.Text != "" || len(turn.Calls) == 0 {
		f.Response["content"] = turn.Text
	}
	if len(turn.Calls) > 0 {
		var calls []any
		for _, c := range turn.Calls {
			calls = append(calls, map[string]any{"id": c.ID, "name": c.Name, "arguments": string(c.Arguments)})
		}
		f.Response["toolCalls"] = calls
	}
	return f
}

// failure is an error in a provider's form.
func failure(e *model.Error) map[string]any {
	status, typ, code := 503, "server_error", ""
	switch e.Kind {
	case model.ErrRateLimited:
		status, typ = 429, "rate_limit_error"
	case model.ErrBadRequest:
		status, typ = 400, "invalid_request_error"
	case model.ErrAuth:
		status, typ, code = 401, "authentication_error", "invalid_api_key"
	case model.ErrContextTooLong:
		status, typ, code = 400, "invalid_request_error", "context_length_exceeded"
	}
	if e.Status != 0 {
		status = e.Status
	}
	inner := map[string]any{"message": cmp.Or(e.Message, "told to fail"), "type": typ}
	if code != "" {
		inner["code"] = code
	}
	r := map[string]any{"error": inner, "status": status}
	if e.RetryAfter > 0 {
		r["retryAfter"] = int64(e.RetryAfter.Seconds())
	}
	return r
}
