package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// leakDouble is everything that a worker of the test of leaks talks to, in one
// server that is as careless with secrets as it can be: whatever it refuses, and
// most of what it answers, quotes what it was sent.
type leakDouble struct {
	*httptest.Server
	secrets map[string]string // by name
	vaulted map[string]string // what the vaults hold, by path

	mu   sync.Mutex
	used map[string]bool // names of secrets that came by
	hits map[string]int  // by path
}

const leakMarker = "MARKER-of-a-tools-answer"

func startLeakDouble(t *testing.T, secrets, vaulted map[string]string) *leakDouble {
	d := &leakDouble{secrets: secrets, vaulted: vaulted, used: map[string]bool{}, hits: map[string]int{}}
	d.Server = httptest.NewUnstartedServer(d)
	d.Server.TLS = askForCertificates()
	d.StartTLS()
	t.Cleanup(d.Close)
	return d
}

func (d *leakDouble) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	quoted := quote(r, body)
	d.note(r, quoted)
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/echo/"):
		write(w, 200, map[string]any{"marker": leakMarker, "you_sent": quoted, "headers": r.Header, "query": r.URL.Query()})
	case strings.HasPrefix(path, "/refuse/"):
		w.Header().Set("WWW-Authenticate", "Bearer error_description=\""+r.Header.Get("Authorization")+"\"")
		write(w, 401, map[string]any{"error": "your credential is not good: " + quoted, "headers": r.Header})
	case path == "/oauth/token":
		write(w, 200, map[string]any{"access_token": d.secrets["oauth2 access token"], "token_type": "Bearer", "expires_in": 3600, "you": quoted})
	case path == "/model/v1/chat/completions":
		d.model(w, r, body)
	case path == "/refusing-model/v1/chat/completions":
		write(w, 401, map[string]any{"error": map[string]any{"message": "Incorrect API key provided: " + quoted, "type": "invalid_request_error", "code": "invalid_api_key"}})
	default:
		d.vault(w, r, body, quoted)
	}
}

// quote is all that a request says, as a server may write it into an error.
func quote(r *http.Request, body []byte) string {
	text := r.Method + " " + r.URL.String()
	for name, values := range r.Header {
		text += fmt.Sprintf("\n%s: %s", name, strings.Join(values, ", "))
	}
	return text + "\n" + string(body)
}

// note remembers which secrets a request has, also in what is derived of them.
func (d *leakDouble) note(r *http.Request, quoted string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hits[r.URL.Path]++
	for _, name := range findSecrets(quoted, d.secrets) {
		d.used[name] = true
	}
	if auth := r.Header.Get("Authorization"); strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=AKID") {
		d.used["sigv4 secret key"] = true // it is not sent: what it signs is
		if strings.Contains(auth, "/secretsmanager/") {
			d.used["aws secret key"], d.used["sigv4 secret key"] = true, d.used["sigv4 secret key"] && strings.Contains(r.URL.Path, "sigv4")
		}
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		d.used["mtls key"] = true
	}
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// model is an OpenAI-compatible endpoint: its first turn calls all tools, its
// second answers.
func (d *leakDouble) model(w http.ResponseWriter, _ *http.Request, body []byte) {
	var in struct {
		Stream   bool                    `json:"stream"`
		Messages []struct{ Role string } `json:"messages"`
		Tools    []struct {
			Function struct{ Name string } `json:"function"`
		} `json:"tools"`
	}
	_ = json.Unmarshal(body, &in)
	message, finish := map[string]any{"role": "assistant", "content": "All were called."}, "stop"
	if in.Messages[len(in.Messages)-1].Role != "tool" {
		var calls []any
		for i, t := range in.Tools {
			calls = append(calls, map[string]any{"index": i, "id": fmt.Sprintf("call_%d", i), "type": "function",
				"function": map[string]any{"name": t.Function.Name, "arguments": "{}"}})
		}
		message, finish = map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}, "tool_calls"
	}
	usage := map[string]int{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	if !in.Stream {
		write(w, 200, map[string]any{"id": "c", "object": "chat.completion", "model": "m", "usage": usage,
			"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish}}})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, chunk := range []map[string]any{
		{"choices": []any{map[string]any{"index": 0, "delta": message, "finish_reason": nil}}},
		{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": finish}}},
		{"choices": []any{}, "usage": usage},
	} {
		chunk["id"], chunk["object"], chunk["model"] = "c", "chat.completion.chunk", "m"
		data, _ := json.Marshal(chunk)
		fmt.Fprintf(w, "data: %s\n\n", data)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// vault speaks the wire of five vaults.
func (d *leakDouble) vault(w http.ResponseWriter, r *http.Request, body []byte, quoted string) {
	path := r.URL.Path
	value := func(name string) (string, bool) {
		for known, v := range d.vaulted {
			if strings.HasSuffix(name, known) {
				return v, true
			}
		}
		return "", false
	}
	switch {
	case strings.HasPrefix(path, "/v1/sys/internal/ui/mounts/"):
		write(w, 200, map[string]any{"data": map[string]any{"path": "secret/", "type": "kv", "options": map[string]string{"version": "2"}}})
	case path == "/v1/auth/approle/login":
		write(w, 200, map[string]any{"auth": map[string]any{"client_token": d.secrets["vault token"], "lease_duration": 3600}})
	case strings.HasPrefix(path, "/v1/secret/data/"):
		if v, ok := value(path); ok {
			write(w, 200, map[string]any{"data": map[string]any{"data": map[string]string{"key": v}}})
			return
		}
		write(w, 403, map[string]any{"errors": []string{"permission denied: " + quoted}})
	case r.Header.Get("X-Amz-Target") == "secretsmanager.GetSecretValue":
		var in struct{ SecretId string }
		_ = json.Unmarshal(body, &in)
		if v, ok := value(in.SecretId); ok {
			write(w, 200, map[string]any{"SecretString": v})
			return
		}
		write(w, 400, map[string]any{"__type": "AccessDeniedException", "message": "denied: " + quoted})
	case strings.HasSuffix(path, "/.well-known/openid-configuration"):
		write(w, 200, map[string]string{"issuer": d.URL + "/tenant/v2.0", "authorization_endpoint": d.URL + "/tenant/oauth2/v2.0/authorize", "token_endpoint": d.URL + "/tenant/oauth2/v2.0/token"})
	case path == "/tenant/oauth2/v2.0/token":
		write(w, 200, map[string]any{"token_type": "Bearer", "expires_in": 3599, "access_token": d.secrets["azure access token"]})
	case strings.HasPrefix(path, "/secrets/") && r.Header.Get("Authorization") == "":
		w.Header().Set("WWW-Authenticate", `Bearer authorization="`+d.URL+`/tenant", resource="https://vault.azure.net"`)
		write(w, 401, nil)
	case strings.HasPrefix(path, "/secrets/"):
		if v, ok := value(strings.TrimSuffix(path, "/")); ok {
			write(w, 200, map[string]any{"value": v, "id": d.URL + path})
			return
		}
		write(w, 403, map[string]any{"error": map[string]string{"code": "Forbidden", "message": quoted}})
	case path == "/gcp/token":
		write(w, 200, map[string]any{"access_token": d.secrets["google access token"], "token_type": "Bearer", "expires_in": 3599})
	case strings.HasPrefix(path, "/v1/projects/"):
		if v, ok := value(strings.TrimSuffix(path, "/versions/latest:access")); ok {
			write(w, 200, map[string]any{"payload": map[string]any{"data": []byte(v)}})
			return
		}
		write(w, 403, map[string]any{"error": map[string]any{"status": "PERMISSION_DENIED", "message": quoted}})
	case path == "/v1/vaults":
		write(w, 200, []any{map[string]string{"id": titleID("Agents")}})
	case strings.HasSuffix(path, "/items"):
		title, _ := strings.CutPrefix(r.URL.Query().Get("filter"), `title eq "`)
		write(w, 200, []any{map[string]string{"id": titleID(strings.TrimSuffix(title, `"`))}})
	case strings.HasPrefix(path, "/v1/vaults/"):
		for name, v := range d.vaulted {
			if strings.HasSuffix(path, "/"+titleID(name)) {
				write(w, 200, map[string]any{"fields": []any{map[string]string{"id": "password", "purpose": "PASSWORD", "value": v}}})
				return
			}
		}
		write(w, 403, map[string]any{"status": 403, "message": quoted})
	default:
		write(w, 404, map[string]string{"not here": quoted})
	}
}

// titleID makes an id of 1Password's form of a title.
func titleID(title string) string {
	sum := sha1.Sum([]byte(title))
	return hex.EncodeToString(sum[:])[:26]
}

// servicePrivateKey is the key of a service account of Google's.
func servicePrivateKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
