package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// worker is the program itself, hosting agents.
type workerProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *natstest.Buffer
}

// startWorker starts "aeemesh worker" with these variables.
func startWorker(t *testing.T, url string, env []string, args ...string) *workerProcess {
	t.Helper()
	p := &workerProcess{t: t, stderr: &natstest.Buffer{}}
	p.cmd = exec.Command("aeemesh", append([]string{"worker", "--nats", url}, args...)...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "OTEL_") && !strings.HasPrefix(kv, "NATS_") && !strings.HasPrefix(kv, "AEEMESH_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, "OTEL_BSP_SCHEDULE_DELAY=20", "HOME="+t.TempDir()), env...)
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

// stop drains the worker, which exports what is left.
func (p *workerProcess) stop() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("worker: %v\n%s", err, p.stderr)
	}
}

// sender sends to agents, retrying until they are there.
func sender(t *testing.T, srv *natsd.Server) func(entity, payload string) (*envelope.Envelope, error) {
	node, err := mesh.New(natstest.Conn(t, srv), mesh.Config{Entity: "human.ada"})
	if err != nil {
		t.Fatal(err)
	}
	return func(entity, payload string) (*envelope.Envelope, error) {
		deadline := time.Now().Add(patience)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ; ; <-tick.C {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			task := envelope.New(envelope.TypeTask, "human.ada", entity, "test.run", json.RawMessage(payload))
			task.SetTraceContext(envelope.TraceContext{TraceID: sentTrace, SpanID: "b7ad6b7169203331"})
			reply, err := node.Send(ctx, task, mesh.SendOptions{Retries: 20})
			cancel()
			var failed *envelope.Error
			if !errors.As(err, &failed) || failed.Code != envelope.CodeNoResponders || time.Now().After(deadline) {
				return reply, err
			}
		}
	}
}

const sentTrace = "0af7651916cd43dd8448eb211c80319c"

// reporting is an agent that calls a tool and answers.
func reporting(t *testing.T, name, telemetry string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	doc := fmt.Sprintf(`
sc_standard: SC-006
agent_id: 6a6f0e0c-0b7a-4b0e-9d55-2f6b2c7d7f10
agent:
  name: %s
  version: 1.2.3
  goal: Test. INSTRUCTION-SECRET
  model:
    provider: custom
    provider_id: builtin
    preferred: script
    temperature: 0.5
    params:
      max_tokens: 77
      extended:
        script:
          - {say: "THOUGHT-SECRET", call: [{name: lookup, arguments: {id: ARGUMENT-SECRET}}, {name: broken, arguments: {}}], usage: {input_tokens: 11, output_tokens: 5}}
          - {say: "ANSWER-SECRET", usage: {input_tokens: 21, output_tokens: 7}}
  tools:
    - {name: lookup, description: Looks, protocol: function}
    - {name: broken, description: Fails, protocol: function}
  telemetry: %s
`, name, telemetry)
	if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// theTools are programs behind the agent's tools.
func theTools(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return []string{"--tool", "lookup=" + write("lookup", `echo '{"found":"RESULT-SECRET"}'`), "--tool", "broken=" + write("broken", "echo FAILURE-SECRET >&2; exit 3")}
}

var secretsOfRuns = []string{"INSTRUCTION-SECRET", "PROMPT-SECRET", "THOUGHT-SECRET", "ARGUMENT-SECRET", "RESULT-SECRET", "ANSWER-SECRET"}

// The tree of spans that the draft names arrives at a receiver that speaks the
// real protocol, over HTTP for the operator's collector and over gRPC for the
// one that a document names; nothing that was said is in it, and the operator's
// credentials go to the operator's collector alone.
func TestSpansOfRunsArriveOverOTLP(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	operator, own := newReceiver(t), newReceiver(t)
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("telemetry: {endpoints: ['"+own.grpc+"', '"+own.http+"']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startWorker(t, srv.ClientURL(), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + operator.http, "OTEL_EXPORTER_OTLP_HEADERS=api-key=operators-own"},
		append(theTools(t), "--config", config,
			reporting(t, "Plain", "{}"), reporting(t, "Own Grpc", "{otlp_endpoint: "+`"`+own.grpc+`"}`), reporting(t, "Own Http", "{otlp_endpoint: "+`"`+own.http+`/v1/traces"}`),
			reporting(t, "Quiet", "{tracing: false, metrics: false}"), reporting(t, "Elsewhere", `{otlp_endpoint: "http://127.0.0.1:1"}`))...)
	send := sender(t, srv)
	for _, entity := range []string{"agent.plain", "agent.own_grpc", "agent.own_http", "agent.quiet", "agent.elsewhere"} {
		if _, err := send(entity, `{"text":"PROMPT-SECRET"}`); err != nil {
			t.Fatalf("%s: %v\n%s", entity, err, p.stderr)
		}
	}
	p.stop()

	var roots []string
	for _, s := range operator.await(t, "aaif.agent.run", 2) {
		roots = append(roots, s.Attrs["agent.name"].(string))
	}
	slices.Sort(roots)
	if !slices.Equal(roots, []string{"Elsewhere", "Plain"}) {
		t.Errorf("the operator's collector has the runs of %v", roots)
	}
	hops := map[string]string{}
	for _, s := range operator.named("aee.task agent.plain") {
		hops["Plain"] = s.ID
	}
	for _, s := range operator.named("aee.task agent.own_grpc") {
		hops["Own Grpc"] = s.ID
	}
	for _, s := range operator.named("aee.task agent.own_http") {
		hops["Own Http"] = s.ID
	}
	for name, r := range map[string]*receiver{"Plain": operator, "Own Grpc": own, "Own Http": own} {
		if root := checkRun(t, r, name); root.Parent == "" || root.Parent != hops[name] {
			t.Errorf("%s: its run is below %q, want the hop's span %q", name, root.Parent, hops[name])
		}
	}
	for name, r := range map[string]*receiver{"the operator's": operator, "the document's": own} {
		all := r.all()
		for _, secret := range append(secretsOfRuns, "FAILURE-SECRET") {
			if strings.Contains(all, secret) {
				t.Errorf("%s collector was told %s", name, secret)
			}
		}
		for _, metric := range []string{"gen_ai.client.operation.duration", "gen_ai.client.token.usage input", "gen_ai.client.token.usage output", "aaif.agent.tool_call.duration", "aaif.agent.tool_call.duration failed"} {
			if !r.metrics[metric] {
				t.Errorf("%s collector has no metric %s: %v", name, metric, r.metrics)
			}
		}
	}
	if len(operator.sources) != 1 || operator.sources[""] {
		t.Errorf("one process is %v", operator.sources)
	}
	if !operator.keys["operators-own"] || own.keys["operators-own"] || strings.Contains(own.all(), "operators-own") {
		t.Errorf("the operator's credential: operator's collector %v, document's %v", operator.keys, own.keys)
	}
	if strings.Contains(p.stderr.String(), "level=DEBUG") {
		t.Errorf("agents log more than the operator and their documents say:\n%s", p.stderr)
	}
	if !strings.Contains(p.stderr.String(), "the operator does not allow the collector http://127.0.0.1:1") {
		t.Errorf("nobody says that a collector is not allowed:\n%s", p.stderr)
	}
	for _, s := range operator.named("aee.task agent.quiet") {
		for _, r := range operator.named("aaif.agent.run") {
			if r.Parent == s.ID {
				t.Error("an agent that wants no tracing is traced")
			}
		}
	}
}

// The certificates in OTEL_* variables are for the operator's own collector. A document's
// collector sees none of them, and is dialled as its URL says, with TLS or without.
func TestTheOperatorsCertificatesAreForTheOperatorsCollector(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	ca, cert, key := certificates(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	operator, plain, secure := listen(t, &pair), newReceiver(t), listen(t, &pair)
	config := filepath.Join(t.TempDir(), "config.yaml")
	endpoints := []string{plain.grpc, plain.http, secure.grpc, secure.http}
	if err := os.WriteFile(config, []byte("telemetry: {endpoints: ['"+strings.Join(endpoints, "', '")+"']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + operator.http, "OTEL_EXPORTER_OTLP_CERTIFICATE=" + ca,
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=" + cert, "OTEL_EXPORTER_OTLP_CLIENT_KEY=" + key, "SSL_CERT_FILE=" + ca}
	args := append(theTools(t), "--config", config, reporting(t, "Operators", "{}"))
	names := []string{"Grpc", "Http", "Grpcs", "Https"}
	for i, name := range names {
		args = append(args, reporting(t, name, fmt.Sprintf("{otlp_endpoint: %q}", endpoints[i])))
	}
	p := startWorker(t, srv.ClientURL(), env, args...)
	send := sender(t, srv)
	for _, name := range append(names, "Operators") {
		if _, err := send("agent."+strings.ToLower(name), `{"text":"hello"}`); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, p.stderr)
		}
	}
	p.stop()

	for _, c := range []struct {
		name        string
		r           *receiver
		runs        []string
		certificate bool
	}{
		{"the operator's", operator, []string{"Operators"}, true},
		{"the documents' without TLS", plain, []string{"Grpc", "Http"}, false},
		{"the documents' with TLS", secure, []string{"Grpcs", "Https"}, false},
	} {
		var runs []string
		for _, s := range c.r.named("aaif.agent.run") {
			runs = append(runs, s.Attrs["agent.name"].(string))
		}
		slices.Sort(runs)
		if !slices.Equal(runs, c.runs) {
			t.Errorf("%s collector has the runs of %v, want %v", c.name, runs, c.runs)
		}
		if !c.r.metrics["gen_ai.client.token.usage input"] {
			t.Errorf("%s collector has no metrics: %v", c.name, c.r.metrics)
		}
		if len(c.r.clients) != 1 || !c.r.clients[c.certificate] {
			t.Errorf("%s collector saw a certificate of its client: %v, want %v", c.name, c.r.clients, c.certificate)
		}
	}
}

// checkRun holds the spans of one run against the draft.
func checkRun(t *testing.T, r *receiver, name string) (root otlpSpan) {
	t.Helper()
	for _, s := range r.await(t, "aaif.agent.run", 1) {
		if s.Attrs["agent.name"] == name {
			root = s
		}
	}
	if root.ID == "" {
		t.Errorf("%s: no span of its run", name)
		return root
	}
	want := map[string]any{
		"agent.id": "6a6f0e0c-0b7a-4b0e-9d55-2f6b2c7d7f10", "agent.name": name, "agent.version": "1.2.3", "model.provider": "builtin", "model.name": "script",
		"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name, "gen_ai.agent.id": "6a6f0e0c-0b7a-4b0e-9d55-2f6b2c7d7f10",
		"gen_ai.provider.name": "builtin", "gen_ai.request.model": "script",
	}
	checkAttrs(t, root, want)
	if root.Trace != sentTrace || root.Status == tracepb.Status_STATUS_CODE_ERROR || root.Attrs["gen_ai.conversation.id"] == "" {
		t.Errorf("%s: root %+v", name, root)
	}
	var calls, tools []otlpSpan
	for _, s := range r.named("aaif.agent.llm_call") {
		if s.Parent == root.ID {
			calls = append(calls, s)
		}
	}
	for _, s := range r.named("aaif.agent.tool_call") {
		if s.Parent == root.ID {
			tools = append(tools, s)
		}
	}
	if len(calls) != 2 || len(tools) != 2 {
		t.Errorf("%s: %d model calls and %d tool calls below the run", name, len(calls), len(tools))
		return root
	}
	checkAttrs(t, calls[0], map[string]any{
		"llm.model": "script", "llm.provider": "builtin", "llm.input_tokens": int64(11), "llm.output_tokens": int64(5),
		"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": int64(11), "gen_ai.usage.output_tokens": int64(5),
		"gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": int64(77),
	})
	checkAttrs(t, calls[1], map[string]any{"llm.input_tokens": int64(21), "llm.output_tokens": int64(7)})
	slices.SortFunc(tools, func(a, b otlpSpan) int {
		return strings.Compare(b.Attrs["tool.name"].(string), a.Attrs["tool.name"].(string))
	})
	checkAttrs(t, tools[0], map[string]any{"tool.name": "lookup", "tool.protocol": "function", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup", "gen_ai.tool.type": "function"})
	checkAttrs(t, tools[1], map[string]any{"tool.name": "broken", "error.type": "failed"})
	if tools[0].Status == tracepb.Status_STATUS_CODE_ERROR || tools[1].Status != tracepb.Status_STATUS_CODE_ERROR || tools[0].Attrs["gen_ai.tool.call.id"] == "" {
		t.Errorf("%s: tools %+v", name, tools)
	}
	return root
}

func checkAttrs(t *testing.T, s otlpSpan, want map[string]any) {
	t.Helper()
	for k, v := range want {
		if s.Attrs[k] != v {
			t.Errorf("%s: %s is %v, want %v", s.Name, k, s.Attrs[k], v)
		}
	}
}

// What was said is in the spans once the operator asks for it.
func TestContentIsInSpansIfTheOperatorAsks(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	r := newReceiver(t)
	p := startWorker(t, srv.ClientURL(), []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + "http" + strings.TrimPrefix(r.grpc, "grpc"), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
		append(theTools(t), "--telemetry-content", reporting(t, "Open", "{log_level: debug}"))...)
	if _, err := sender(t, srv)("agent.open", `{"text":"PROMPT-SECRET"}`); err != nil {
		t.Fatalf("%v\n%s", err, p.stderr)
	}
	p.stop()
	if !strings.Contains(p.stderr.String(), "level=DEBUG") {
		t.Errorf("the document's log level is not kept:\n%s", p.stderr)
	}
	checkRun(t, r, "Open")
	all := r.all()
	for _, said := range secretsOfRuns {
		if !strings.Contains(all, said) {
			t.Errorf("%s is in no span", said)
		}
	}
	last := r.await(t, "aaif.agent.llm_call", 2)[1]
	var messages []struct {
		Role  string
		Parts []struct{ Type, Content, ID, Name, Response string }
	}
	if err := json.Unmarshal([]byte(last.Attrs["gen_ai.input.messages"].(string)), &messages); err != nil || len(messages) != 4 || messages[3].Parts[0].Type != "tool_call_response" {
		t.Errorf("input messages %v: %+v", err, messages)
	}
}
