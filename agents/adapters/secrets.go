package adapters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/awssm"
	"github.com/aeemesh/aeemesh/agents/secret/azurekv"
	"github.com/aeemesh/aeemesh/agents/secret/command"
	"github.com/aeemesh/aeemesh/agents/secret/file"
	"github.com/aeemesh/aeemesh/agents/secret/gcpsm"
	"github.com/aeemesh/aeemesh/agents/secret/hashicorp"
	"github.com/aeemesh/aeemesh/agents/secret/onepassword"
	"github.com/aeemesh/aeemesh/agents/subprocess"
)

// Secrets is section secrets: which of the worker's own environment variables
// documents may read.
type Secrets struct {
	// Env are the variables that a document's auth.env_var may name: whole
	// names, or patterns such as BILLING_*. Default none. NATS_* and AEEMESH_*
	// are never permitted.
	Env []string `json:"env,omitzero"`
}

// Vault is one entry of section vaults: the vault for a provider of documents' vault_ref. Exactly
// one kind must be set. The kind need not be the provider's own, so a folder of files can replace
// any vault.
type Vault struct {
	// Allow are the entries that documents may name, as PATH, PATH#KEY,
	// PATH?version=VERSION or PATH?version=VERSION#KEY: "*" is any text within
	// one part of a path, "**" any text at all. At least one is needed. For a
	// command, keys and versions must be named.
	Allow []string `json:"allow"`
	// CacheSeconds is how long a secret is cached. Default 30; 0 reads it at
	// each call.
	CacheSeconds *float64 `json:"cache_seconds,omitzero"`
	// TimeoutSeconds is the timeout of one read. Default 10.
	TimeoutSeconds float64 `json:"timeout_seconds,omitzero"`

	HashiCorp   *hashicorp.Config   `json:"hashicorp,omitzero"` // OpenBao, too
	AWS         *awssm.Config       `json:"aws,omitzero"`
	Azure       *azurekv.Config     `json:"azure,omitzero"`
	GCP         *gcpsm.Config       `json:"gcp,omitzero"`
	OnePassword *onepassword.Config `json:"onepassword,omitzero"`
	File        *file.Config        `json:"file,omitzero"`
	Command     *command.Config     `json:"command,omitzero"`
}

// SecretRef names the source of a credential of the configuration itself, such as a model's API
// key: exactly one member must be set. Vault is one of section vaults; any of its paths may be
// read, because Allow applies to documents only.
type SecretRef struct {
	Env   string         `json:"env,omitzero"`
	File  string         `json:"file,omitzero"`
	Vault *aaif.VaultRef `json:"vault,omitzero"`
}

// IsZero reports whether no member is set.
func (r SecretRef) IsZero() bool { return r == SecretRef{} }

// openSecrets reads sections secrets and vaults. It connects to nothing.
func (s *Set) openSecrets(bad *problems) {
	s.secrets = &secret.Set{Env: s.opts.Env, AllowEnv: s.cfg.Secrets.Env, Vaults: map[aaif.VaultProvider]secret.Vault{}}
	s.vaults = map[aaif.VaultProvider]secret.Vault{}
	for i, pattern := range s.cfg.Secrets.Env {
		at := jsontext.Pointer("/secrets/env").AppendToken(strconv.Itoa(i))
		if pattern == "" {
			bad.note(at, errors.New("a name is empty"))
		}
		if _, err := path.Match(pattern, ""); err != nil {
			bad.note(at, fmt.Errorf("%s is no pattern", pattern))
		}
	}
	read := secret.Operator(s.opts.Env)
	lookup := func(ctx context.Context, r secret.Reference) (secret.Secret, error) {
		got, err := read(ctx, r)
		s.secrets.Redactor().Add(got)
		return got, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Vaults)) {
		cfg := s.cfg.Vaults[name]
		v, err := cfg.open(name, lookup, s.opts.Env)
		if err != nil {
			bad.note(jsontext.Pointer("/vaults").AppendToken(string(name)), err)
			continue
		}
		if cfg.Command != nil {
			s.registerCredentials(cfg.Command.Env)
		}
		s.secrets.Vaults[name] = secret.Guard(v, cfg.options(cfg.Allow))
		s.vaults[name] = secret.Guard(v, cfg.options([]string{"**?version=**#**"}))
	}
}

func (c Vault) options(allow []string) secret.Options {
	o := secret.Options{Allow: allow, Strict: c.Command != nil, Timeout: seconds(c.TimeoutSeconds)}
	if c.CacheSeconds != nil {
		if o.TTL = seconds(*c.CacheSeconds); o.TTL == 0 {
			o.TTL = -1
		}
	}
	if c.Command != nil && c.TimeoutSeconds == 0 && c.Command.TimeoutSeconds > 0 {
		o.Timeout = seconds(c.Command.TimeoutSeconds)
	}
	return o
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// open makes the vault of an entry.
func (c Vault) open(name aaif.VaultProvider, lookup secret.Lookup, env func(string) (string, bool)) (secret.Vault, error) {
	if !slices.Contains(aaif.VaultProviders(), name) {
		return nil, fmt.Errorf("documents know no such provider: it is one of %v", aaif.VaultProviders())
	}
	if len(c.Allow) == 0 || slices.Contains(c.Allow, "") {
		return nil, errors.New(`allow: name the paths that documents may read, or "**" for all`)
	}
	if c.TimeoutSeconds < 0 || c.CacheSeconds != nil && *c.CacheSeconds < 0 {
		return nil, errors.New("seconds cannot be negative")
	}
	var kinds []func() (secret.Vault, error)
	add := func(given bool, open func() (secret.Vault, error)) {
		if given {
			kinds = append(kinds, open)
		}
	}
	add(c.HashiCorp != nil, func() (secret.Vault, error) { return hashicorp.New(*c.HashiCorp, lookup) })
	add(c.AWS != nil, func() (secret.Vault, error) { return awssm.New(*c.AWS, lookup) })
	add(c.Azure != nil, func() (secret.Vault, error) { return azurekv.New(*c.Azure, lookup) })
	add(c.GCP != nil, func() (secret.Vault, error) { return gcpsm.New(*c.GCP, lookup) })
	add(c.OnePassword != nil, func() (secret.Vault, error) { return onepassword.New(*c.OnePassword, lookup) })
	add(c.File != nil, func() (secret.Vault, error) { return file.New(*c.File) })
	add(c.Command != nil, func() (secret.Vault, error) {
		cfg := *c.Command
		cfg.Getenv = env
		return command.New(cfg)
	})
	if len(kinds) != 1 {
		return nil, errors.New("exactly one of hashicorp, aws, azure, gcp, onepassword, file and command says which vault it is")
	}
	return kinds[0]()
}

// checkSecrets returns why a tool's credential can never be read, and what
// would permit it.
func (s *Set) checkSecrets(entry *aaif.Tool) error {
	err := s.secrets.Check(entry.Auth)
	switch a := entry.Auth; {
	case a == nil || a.Type == "" || a.Type == aaif.AuthNone:
		return nil
	case a.VaultRef != nil && err != nil:
		return fmt.Errorf("auth: %w (vaults.%s.allow in the configuration)", err, secret.Clip(string(a.VaultRef.Provider)))
	case a.VaultRef != nil || a.EnvVar == "":
		return nil
	case err != nil && !s.secrets.AllowsEnv(a.EnvVar) && !subprocess.MeshOwn(a.EnvVar):
		return fmt.Errorf("auth: %w (--allow-env %s, or secrets.env in the configuration)", err, secret.Clip(a.EnvVar))
	case err == nil:
		_, err = s.secrets.Variable(a.EnvVar) // the environment does not change, so it can be read now
	}
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	return nil
}

// Secret reads a credential that the configuration itself names. It also
// becomes known to the Redactor.
func (s *Set) Secret(ctx context.Context, r SecretRef) (secret.Secret, error) {
	if err := s.checkRef(r); err != nil {
		return secret.Secret{}, err
	}
	var got secret.Secret
	var err error
	switch {
	case r.Vault != nil:
		got, err = s.vaults[r.Vault.Provider].Read(ctx, *r.Vault)
	case r.File != "":
		got, err = secret.Operator(nil)(ctx, secret.Reference("file:"+r.File))
	default:
		got, err = secret.Operator(s.opts.Env)(ctx, secret.Reference("env:"+r.Env))
	}
	s.know(got)
	return got, err
}

// checkRef returns what is wrong with a SecretRef, without reading anything.
func (s *Set) checkRef(r SecretRef) error {
	given := 0
	for _, is := range []bool{r.Env != "", r.File != "", r.Vault != nil} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("exactly one of env, file and vault names a credential")
	case r.Vault != nil:
		if _, there := s.cfg.Vaults[r.Vault.Provider]; !there {
			return fmt.Errorf("section vaults has no %s", secret.Clip(string(r.Vault.Provider)))
		}
		return secret.CheckRef(*r.Vault)
	}
	return nil
}

// minKey is the length below which a model's API key counts as a plain word,
// such as "ollama", which is used for servers without keys.
const minKey = 8

// know registers a model's API key with the Redactor.
func (s *Set) know(key secret.Secret) {
	if len(key.Reveal()) >= minKey {
		s.secrets.Redactor().Add(key)
	}
}

// env looks up a variable for the runtime itself: API keys, and settings that
// are not secret, such as a region, a project, or the path of a file.
func (s *Set) env(name string) (string, bool) {
	value, ok := s.opts.Env(name)
	if credentialName.RE().MatchString(name) && name != googleCredentials {
		s.know(secret.New(value))
	}
	return value, ok
}

// Vaults returns the configured providers of documents' vault_ref, in order.
func (s *Set) Vaults() []aaif.VaultProvider { return s.secrets.Providers() }

// Redactor returns a Redactor that knows every credential that this set has
// returned.
func (s *Set) Redactor() *secret.Redactor { return s.secrets.Redactor() }
