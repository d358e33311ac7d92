package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// findSecrets names the secrets that a text holds, in any form that it may be in.
func findSecrets(text string, secrets map[string]string) (found []string) {
	for name, value := range secrets {
		if slices.ContainsFunc(secret.Forms(secret.New(value)), func(form string) bool { return strings.Contains(text, form) }) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func askForCertificates() *tls.Config { return &tls.Config{ClientAuth: tls.RequestClientCert} }

// clientCertificate makes a certificate and its key, PEM.
func clientCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// heard is all that a run of the test produced, by where it was found.
type heard struct {
	mu    sync.Mutex
	texts map[string]*bytes.Buffer
}

func (h *heard) add(where string, data ...[]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.texts[where] == nil {
		h.texts[where] = &bytes.Buffer{}
	}
	for _, d := range data {
		h.texts[where].Write(d)
		h.texts[where].WriteByte('\n')
	}
}

// collector receives spans and metrics.
func (h *heard) collector(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			if unpacked, err := gzip.NewReader(r.Body); err == nil {
				body = unpacked
			}
		}
		data, _ := io.ReadAll(body)
		h.add("telemetry "+r.URL.Path, data)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// stored reads every message of every stream: checkpoints, journals, tasks,
// replies, dead tasks, definitions.
func (h *heard) stored(t *testing.T, conn *nats.Conn) {
	t.Helper()
	js, err := natsjs.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		stream, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
			if m, err := stream.GetMsg(ctx, seq); err == nil {
				h.add("stream "+info.Config.Name, []byte(m.Subject), []byte(fmt.Sprint(m.Header)), m.Data)
			}
		}
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
}

// leakTools are one tool for each way to authenticate and each vault, twice: one
// that is answered, and one that is refused.
func leakTools(base string) (tools []map[string]any) {
	add := func(name, kind string, auth map[string]any) {
		auth["type"] = kind
		for _, what := range []string{"echo", "refuse"} {
			tools = append(tools, map[string]any{"name": what + "_" + name, "description": "Calls.", "protocol": "http", "endpoint": "GET " + base + "/" + what + "/" + name,
				"parameters_schema": map[string]any{"type": "object"}, "auth": auth})
		}
	}
	vault := func(provider, path string) map[string]any {
		return map[string]any{"vault_ref": map[string]any{"provider": provider, "path": path}}
	}
	add("bearer", "bearer", map[string]any{"env_var": "LEAK_BEARER"})
	add("basic", "basic", map[string]any{"env_var": "LEAK_BASIC"})
	add("api_key", "api_key", map[string]any{"env_var": "LEAK_API_KEY", "header": "X-Test-Key"})
	add("oauth2", "oauth2", map[string]any{"env_var": "LEAK_OAUTH2", "token_url": base + "/oauth/token"})
	add("sigv4", "aws_sigv4", map[string]any{"env_var": "LEAK_SIGV4", "scopes": []string{"service=execute-api", "region=eu-west-1"}})
	add("mtls", "mtls", map[string]any{"env_var": "LEAK_MTLS"})
	for provider, path := range map[string]string{"hashicorp_vault": "secret/hashicorp", "aws_secretsmanager": "aws", "azure_keyvault": "azure",
		"gcp_secretmanager": "gcp", "1password": "Agents/onepassword", "custom": "file"} {
		add("by_"+provider, "bearer", vault(provider, path))
		if provider != "custom" { // one that the vault denies, in words that quote what it was sent
			add("denied_"+provider, "bearer", vault(provider, path+"-denied"))
		}
	}
	return tools
}

func agentDocument(t *testing.T, name, base, provider string, tools []map[string]any) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"sc_standard": "SC-006", "agent_id": "6a6f0e0c-0b7a-4b0e-9d55-2f6b2c7d7f10", "agent": map[string]any{
		"name": name, "version": "1.0.0", "goal": "Call.", "tools": tools,
		"runtime": map[string]any{"max_retries": 0},
		"model":   map[string]any{"provider": "custom", "provider_id": provider, "base_url": base, "preferred": "m"}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Secrets of every kind, from every vault, are used by a worker against servers
// that quote whatever they are sent; then all that it has said, stored and sent is
// searched for them: raw, escaped, and in base64.
func TestNoSecretLeaks(t *testing.T) {
	t.Parallel()
	cert, key := clientCertificate(t)
	gcpKey := servicePrivateKey(t)
	secrets := map[string]string{
		"bearer": "bearer-4tG/x+Qz=81", "basic password": "basic-p4ss/w+rd=", "api key": "apikey-9Zx&2<w>", "model key": "sk-model-7Hj3kQ9xLm2", "bad model key": "sk-model-refused-2Wd8",
		"oauth2 secret": "oauth2-cl1ent/secret=", "oauth2 access token": "oauth2-acc3ss.t0ken.7Kd2", "sigv4 secret key": "sigv4/Secret+Key/0x7Y=", "sigv4 session": "sigv4-session/T0k==",
		"mtls key": key, "vault role": "role-id-66f1e0aa", "vault secret id": "secret-id-0d9c8b7a", "vault token": "hvs.leak-t0ken-55Kq", "aws secret key": "aws/Sm+secret/Key9x=",
		"aws session": "aws-sm-session/0q==", "azure client secret": "az~client.Secret8Q", "azure access token": "az-acc3ss.T0ken", "google key": gcpKey,
		"google access token": "ya29.g00gle-Acc3ss", "connect token": "op-connect.t0k3n-4R",
	}
	vaulted := map[string]string{"hashicorp": "from-hashicorp-1x/Y=", "aws": "from-aws-2x/Y=", "azure": "from-azure-3x/Y=", "gcp": "from-gcp-4x/Y=", "onepassword": "from-1password-5x/Y="}
	for name, value := range vaulted {
		secrets["vaulted "+name] = value
	}
	secrets["vaulted file"] = "from-file-6x/Y="
	d := startLeakDouble(t, secrets, vaulted)

	dir := t.TempDir()
	keep := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	ca := keep("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.Certificate().Raw})))
	keep("vault/file", secrets["vaulted file"])
	account, _ := json.Marshal(map[string]string{"type": "service_account", "client_email": "w@p.example", "private_key": gcpKey, "private_key_id": "k", "token_uri": d.URL + "/gcp/token"})
	config := keep("config.json", fmt.Sprintf(`{
		"secrets": {"env": ["LEAK_*", "GOOD_API_KEY", "BAD_API_KEY"]}, "outbound": {"allow": [%[1]q]}, "telemetry": {"content": true},
		"vaults": {
			"hashicorp_vault": {"allow": ["**"], "hashicorp": {"address": %[1]q, "approle": {"role_id": "env:V_ROLE", "secret_id": "env:V_SECRET"}}},
			"aws_secretsmanager": {"allow": ["**"], "aws": {"region": "eu-west-1", "endpoint": %[1]q, "access_key_id": "env:V_AWS_ID", "secret_access_key": "env:V_AWS_KEY", "session_token": "env:V_AWS_SESSION"}},
			"azure_keyvault": {"allow": ["**"], "azure": {"urls": [%[1]q], "tenant_id": "tenant", "client_id": "client", "client_secret": "env:V_AZURE", "authority_host": %[1]q, "any_domain": true}},
			"gcp_secretmanager": {"allow": ["**"], "gcp": {"project": "p-1", "endpoint": %[1]q, "credentials": "file:%[2]s"}},
			"1password": {"allow": ["**"], "onepassword": {"address": %[1]q, "token": "env:V_OP"}},
			"custom": {"allow": ["*"], "file": {"dir": %[3]q}}}}`, d.URL, keep("account.json", string(account)), filepath.Join(dir, "vault")))

	h := &heard{texts: map[string]*bytes.Buffer{}}
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	if err := applyTopology(srv); err != nil {
		t.Fatal(err)
	}
	conn := natstest.Conn(t, srv)
	if _, err := conn.Subscribe(">", func(m *nats.Msg) { h.add("wire", []byte(m.Subject), []byte(fmt.Sprint(m.Header)), m.Data) }); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"SSL_CERT_FILE=" + ca, "AWS_CA_BUNDLE=" + ca, "AWS_EC2_METADATA_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=" + h.collector(t), "OTEL_EXPORTER_OTLP_COMPRESSION=none",
		"LEAK_BEARER=" + secrets["bearer"], "LEAK_BASIC=user:" + secrets["basic password"], "LEAK_API_KEY=" + secrets["api key"], "LEAK_OAUTH2=client:" + secrets["oauth2 secret"],
		"LEAK_SIGV4=AKIDSIGV4EXAMPLE0001:" + secrets["sigv4 secret key"] + ":" + secrets["sigv4 session"], "LEAK_MTLS=" + cert + key,
		"GOOD_API_KEY=" + secrets["model key"], "BAD_API_KEY=" + secrets["bad model key"],
		"V_ROLE=" + secrets["vault role"], "V_SECRET=" + secrets["vault secret id"], "V_AWS_ID=AKIDSECRETSMANAGER01", "V_AWS_KEY=" + secrets["aws secret key"],
		"V_AWS_SESSION=" + secrets["aws session"], "V_AZURE=" + secrets["azure client secret"], "V_OP=" + secrets["connect token"],
	}
	w := startWorker(t, srv.ClientURL(), env, agentDocument(t, "good", d.URL+"/model/v1", "good", leakTools(d.URL)),
		agentDocument(t, "bad", d.URL+"/refusing-model/v1", "bad", []map[string]any{}), "--config", config, "--log-level", "debug", "--log-format", "json")
	cli := func(fails bool, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, "aeemesh", append(args, "--nats", srv.ClientURL())...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "USER=ada")
		out, err := cmd.CombinedOutput()
		if (err != nil) != fails {
			t.Fatalf("aeemesh %v: %v\n%s\n%s", args, err, out, w.stderr)
		}
		h.add("command "+args[0], out)
	}
	cli(false, "send", "agent.good", "durable please", "--durable")
	cli(true, "send", "agent.bad", "durable please", "--durable")
	cli(false, "send", "agent.good", "live please", "--stream", "--requires", `{"timeout_ms":30000}`, "--retries", "5")
	cli(false, "runs", "list", "--json")
	for line := range strings.Lines(h.texts["command runs"].String()) {
		var run struct{ Run string }
		if json.Unmarshal([]byte(line), &run) == nil && run.Run != "" {
			cli(false, "runs", "show", run.Run, "--json")
			cli(false, "runs", "export", run.Run, "--clear")
		}
	}
	w.stop()
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	h.stored(t, conn)
	h.add("log", []byte(w.stderr.String()))

	// All was used, or nothing is proved. What is never sent is used to sign.
	never := []string{"google key", "aws secret key", "sigv4 secret key"}
	d.mu.Lock()
	for name := range secrets {
		if !d.used[name] && !slices.Contains(never, name) {
			t.Errorf("the secret %q was not used", name)
		}
	}
	for _, path := range []string{"/echo/sigv4", "/echo/mtls", "/echo/by_custom", "/gcp/token", "/refuse/bearer", "/v1/secret/data/hashicorp-denied"} {
		if d.hits[path] == 0 {
			t.Errorf("%s was not called", path)
		}
	}
	d.mu.Unlock()
	// The search finds what is there.
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, where := range []string{"stream KV_aee_state", "wire", "telemetry /v1/traces", "command runs"} {
		if h.texts[where] == nil || !strings.Contains(h.texts[where].String(), leakMarker) {
			t.Errorf("the tools' answers are not in %q: is the test looking there?", where)
		}
	}
	if log := h.texts["log"].String(); !strings.Contains(log, "a tool's call failed") || !strings.Contains(log, "credential could not be read") {
		t.Errorf("the log says little:\n%s", log)
	}
	for where, text := range h.texts {
		if found := findSecrets(text.String(), secrets); found != nil {
			t.Errorf("%s holds %v", where, found)
		}
	}
	if t.Failed() {
		var all []string
		for where, text := range h.texts {
			all = append(all, fmt.Sprintf("%s (%d bytes)", where, text.Len()))
		}
		slices.Sort(all)
		t.Logf("searched: %s\nlog:\n%.6000s", strings.Join(all, ", "), h.texts["log"])
	}
}
