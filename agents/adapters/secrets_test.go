package adapters

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

const allVaults = `
secrets: {env: [BILLING_*, SENDGRID_API_KEY]}
vaults:
  hashicorp_vault:
    allow: [secret/agents/**]
    cache_seconds: 0
    hashicorp: {address: "https://vault.internal:8200", namespace: team-a, kubernetes: {role: aeemesh}}
  aws_secretsmanager:
    allow: ["agents/*"]
    aws: {region: eu-west-1}
  azure_keyvault:
    allow: ["https://myvault.vault.azure.net/secrets/*"]
    azure: {urls: ["https://myvault.vault.azure.net"], tenant_id: t, client_id: c, client_secret: "env:AZURE_SECRET"}
  gcp_secretmanager:
    allow: ["**"]
    timeout_seconds: 3
    gcp: {project: p-1, credentials: "file:/run/key.json"}
  1password:
    allow: [Agents/*]
    onepassword: {address: "http://connect:8080", token: "file:/run/op"}
  custom:
    allow: ["*"]
    command: {command: [pass, show, "{path}"], timeout_seconds: 20}
`

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func newSet(t *testing.T, text string, env func(string) (string, bool)) *Set {
	t.Helper()
	cfg, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg, Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestEveryVaultCanBeConfigured(t *testing.T) {
	t.Parallel()
	s := newSet(t, allVaults, nil)
	want := slices.Sorted(slices.Values(aaif.VaultProviders()))
	if got := s.Vaults(); !slices.Equal(got, want) {
		t.Errorf("vaults %v, want %v", got, want)
	}
	if got := newSet(t, "", nil).Vaults(); len(got) != 0 {
		t.Errorf("without a configuration there are vaults: %v", got)
	}
}

func TestSecretsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"vaults: {keepass: {allow: ['**'], file: {dir: /x}}}":                                                  "no such provider",
		"vaults: {custom: {file: {dir: /x}}}":                                                                  "/vaults/custom/allow: name",
		"vaults: {custom: {allow: ['**']}}":                                                                    "exactly one of",
		"vaults: {custom: {allow: ['**'], file: {dir: /x}, gcp: {}}}":                                          "exactly one of",
		"vaults: {custom: {allow: ['**'], cache_seconds: -1, file: {dir: /x}}}":                                "negative",
		"vaults: {custom: {allow: ['**'], file: {dir: /x, dri: /y}}}":                                          "/vaults/custom/file/dri is not known",
		"vaults: {custom: {allow: ['**'], command: {command: ['{path}']}}}":                                    "choose the program",
		"secrets: {env: ['']}":                                                                                 "/secrets/env",
		"vaults: {hashicorp_vault: {allow: ['**'], hashicorp: {address: 'https://v', token: hvs.h0td0g}}}":     "never the credential itself",
		"vaults: {1password: {allow: ['**'], onepassword: {address: 'http://c', token: 'hvs.h0td0g:x'}}}":      "never the credential itself",
		"vaults: {azure_keyvault: {allow: ['**'], azure: {urls: ['http://v.example']}}}":                       "/vaults/azure_keyvault: urls/0",
		"vaults: {hashicorp_vault: {allow: ['**'], hashicorp: {address: 'https://v', token: 'env:T', kv: 4}}}": "kv",
	} {
		cfg, err := Read([]byte(text))
		if err == nil {
			_, err = New(cfg, Options{})
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "h0td0g") {
			t.Errorf("%s:\n%v, want %q", text, err, want)
		}
	}
}

// A document reads what it is allowed to; the configuration itself reads any path of
// its vaults; and both become known to the Redactor.
func TestDocumentsAndTheOperatorReadVaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"agents/mail": "mail-secret-1", "models/openai": "model-secret-2", "key": "file-secret-3\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newSet(t, "secrets: {env: [BILLING, UNSET]}\nvaults: {hashicorp_vault: {allow: [agents/*], file: {dir: "+dir+"}}}", env("BILLING", "env-secret-4", "OPENAI_API_KEY", "env-secret-5", "SHORT_API_KEY", "ollama"))
	ref := func(path string) *aaif.VaultRef { return &aaif.VaultRef{Provider: aaif.VaultHashiCorp, Path: path} }
	for _, tt := range []struct {
		auth aaif.Auth
		want string
		kind error
	}{
		{aaif.Auth{VaultRef: ref("agents/mail")}, "mail-secret-1", nil},
		{aaif.Auth{VaultRef: ref("models/openai")}, "", secret.ErrNotAllowed},
		{aaif.Auth{EnvVar: "BILLING"}, "env-secret-4", nil},
		{aaif.Auth{EnvVar: "OPENAI_API_KEY"}, "", secret.ErrNotAllowed},
		{aaif.Auth{EnvVar: "UNSET"}, "", secret.ErrNotFound},
	} {
		tt.auth.Type = aaif.AuthBearer
		if got, err := s.secrets.Resolve(t.Context(), &tt.auth); got.Reveal() != tt.want || !errors.Is(err, tt.kind) {
			t.Errorf("%+v: %q, %v", tt.auth, got.Reveal(), err)
		}
		_, err := s.Open(&aaif.Tool{Name: "t", Protocol: aaif.ProtocolHTTP, Endpoint: "https://api.example/x", Auth: &tt.auth})
		if err == nil || tt.kind != nil && !errors.Is(err, tt.kind) { // without a kind it is the host that is not allowed
			t.Errorf("%+v: a tool with it is opened with %v", tt.auth, err)
		}
		if errors.Is(tt.kind, secret.ErrNotAllowed) && !strings.Contains(err.Error(), "configuration") {
			t.Errorf("nothing says what would allow it: %v", err)
		}
	}
	for want, r := range map[string]SecretRef{"model-secret-2": {Vault: ref("models/openai")}, "file-secret-3": {File: dir + "/key"}, "env-secret-5": {Env: "OPENAI_API_KEY"}} {
		if got, err := s.Secret(t.Context(), r); err != nil || got.Reveal() != want {
			t.Errorf("%+v: %q, %v", r, got.Reveal(), err)
		}
	}
	for _, r := range []SecretRef{{}, {Env: "A", File: "b"}, {Env: "UNSET"}, {File: dir + "/none"}, {Vault: &aaif.VaultRef{Provider: aaif.VaultCustom, Path: "x"}}, {Vault: ref("../x")}} {
		if got, err := s.Secret(t.Context(), r); err == nil || !got.IsZero() {
			t.Errorf("%+v is read", r)
		}
	}
	var o agents.Options
	s.Use(&o)
	if v, ok := o.Secret("SHORT_API_KEY"); !ok || v != "ollama" {
		t.Errorf("the runtime's own look-up gives %q", v)
	}
	for _, known := range []string{"mail-secret-1", "env-secret-4", "model-secret-2", "file-secret-3", "env-secret-5"} {
		if !o.Redactor.Holds(known) {
			t.Errorf("%s is not known", known)
		}
	}
	if o.Redactor.Holds("served by ollama") {
		t.Error("a word that stands for a model's key is taken out of texts")
	}
}

// A credential in a program's environment is recognized whatever its variable is called: by its
// form, or because documents may read it as one. Other values are not redacted.
func TestCredentialsOfProgramsAreKnownByTheirForm(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"programs: {env: %s}", "vaults: {custom: {allow: ['a?version=latest#b'], command: {command: [/bin/true], env: %s}}}", "mcp_servers: {it: {command: [/bin/true], env: %s}}"} {
		s := newSet(t, "secrets: {env: [BILL*]}\n"+fmt.Sprintf(config, "[BILLING, DB, HOOK, REPO, 'AUTH=ghp_0123456789abcdefghij0123456789', REGION, BILLED=yearly]"), env(
			"BILLING", "bill-ing-4", "DB", "postgres://app:pa%24s-w0rd@db.example/orders", "HOOK", "https://h.example/x?api_key=k3y-value",
			"REPO", "https://x9Kd82mQz71pLw04@git.example/r", "REGION", "eu-central-1"))
		for _, known := range []string{"bill-ing-4", "postgres://app:pa%24s-w0rd@db.example/orders", "pa$s-w0rd", "pa%24s-w0rd", "https://h.example/x?api_key=k3y-value", "k3y-value", "x9Kd82mQz71pLw04", "ghp_0123456789abcdefghij0123456789"} {
			if got := s.Redactor().Scrub("it is " + known); got != "it is "+secret.Redacted {
				t.Errorf("%s: %s becomes %q", config, known, got)
			}
		}
		const said = "orders of app are in db.example, in eu-central-1, yearly"
		if got := s.Redactor().Scrub(said); got != said {
			t.Errorf("%s: redacted: %s", config, got)
		}
	}
}

// No program gets a copy of the worker's own keys to the mesh, also not by an operator's mistake. A
// key of its own may be set.
func TestProgramsGetNoKeysToTheMesh(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"programs: {env: %s}", "vaults: {custom: {allow: ['a?version=latest#b'], command: {command: [/bin/true], env: %s}}}", "mcp_servers: {it: {command: [/bin/true], env: %s}}"} {
		for _, name := range []string{"NATS_CREDS", "aeemesh_state_key"} {
			cfg, err := Read([]byte(fmt.Sprintf(config, "[LANG, "+name+"]")))
			if err == nil {
				_, err = New(cfg, Options{})
			}
			if err == nil || !strings.Contains(err.Error(), "1") || !strings.Contains(err.Error(), name+" may let a process into the mesh, and is not copied") {
				t.Errorf("%s: %s: %v", config, name, err)
			}
		}
		newSet(t, fmt.Sprintf(config, "['NATS_CREDS=/etc/own.creds']"), nil)
	}
}

// What was registered later, such as access tokens and the secrets of vaults, does not push out the
// credentials of programs, which are registered once.
func TestCredentialsOfProgramsStayKnown(t *testing.T) {
	t.Parallel()
	s := newSet(t, "mcp_servers: {it: {command: [/bin/true], env: ['AUTH=ghp_0123456789abcdefghij0123456789']}}", nil)
	for i := range secret.MaxKnown + 1 {
		s.Redactor().Add(secret.New(fmt.Sprintf("token-%d", i)))
	}
	if got := s.Redactor().Scrub("it is ghp_0123456789abcdefghij0123456789"); got != "it is "+secret.Redacted {
		t.Errorf("the result has %q", got)
	}
}

// Values of the environment that are not credentials are not redacted.
func TestARegionIsNoSecret(t *testing.T) {
	t.Parallel()
	set := map[string]string{"AWS_REGION": "eu-central-1", "AWS_BEARER_TOKEN_BEDROCK": "bedrock-api-key-of-ours", "GOOGLE_CLOUD_PROJECT": "our-project",
		"GOOGLE_CLOUD_LOCATION": "europe-west4", "GOOGLE_APPLICATION_CREDENTIALS": "/etc/google.json"}
	s, err := New(Config{}, Options{Env: func(name string) (string, bool) { v, ok := set[name]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	def := &aaif.Definition{Agent: aaif.Agent{Model: &aaif.Model{Provider: aaif.ProviderBedrock, Preferred: "m", Fallbacks: []aaif.Fallback{{Provider: "vertex_ai", Model: "m"}}}}}
	var opts agents.Options
	s.Use(&opts)
	if _, _, err := s.Model(def, opts); err != nil {
		t.Fatal(err)
	}
	const said = "a bucket in eu-central-1 of our-project, europe-west4, by /etc/google.json"
	if got := s.Redactor().Scrub(said); got != said {
		t.Errorf("redacted: %s", got)
	}
	if got := s.Redactor().Scrub("bedrock-api-key-of-ours"); strings.Contains(got, "ours") {
		t.Errorf("a key is left in: %s", got)
	}
}
