package hashicorp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
)

// Config says where the vault is and how to log in: exactly one of Token,
// AppRole and Kubernetes must be set.
type Config struct {
	// Address is the vault's URL, such as https://vault.internal:8200.
	Address string `json:"address"`
	// Namespace of Vault Enterprise or OpenBao. Default none.
	Namespace string `json:"namespace,omitzero"`
	// CAFile is a PEM file of authorities to trust instead of the system's.
	CAFile string `json:"ca_file,omitzero"`
	// KV is the version of the key/value engine, 1 or 2. Default: requested
	// from the vault.
	KV int `json:"kv,omitzero"`
	// Mount is the engine's mount, if KV is set. Default: the first part of a
	// path.
	Mount string `json:"mount,omitzero"`

	Token      secret.Reference `json:"token,omitzero"`      // such as file:/run/vault/token
	AppRole    *AppRole         `json:"approle,omitzero"`    // auth method approle
	Kubernetes *Kubernetes      `json:"kubernetes,omitzero"` // auth method kubernetes

	// HTTPClient reaches the vault. Default: one made by [secret.HTTPClient].
	HTTPClient *http.Client `json:"-"`
	// Now is the clock for the expiry of tokens. Default [time.Now].
	Now func() time.Time `json:"-"`
}

// AppRole is a login of the auth method approle.
type AppRole struct {
	RoleID   secret.Reference `json:"role_id"`
	SecretID secret.Reference `json:"secret_id,omitzero"` // if the role requires one
	Mount    string           `json:"mount,omitzero"`     // default "approle"
}

// Kubernetes is a login of the auth method kubernetes.
type Kubernetes struct {
	Role  string           `json:"role"`
	Token secret.Reference `json:"token,omitzero"` // default file:/var/run/secrets/kubernetes.io/serviceaccount/token
	Mount string           `json:"mount,omitzero"` // default "kubernetes"
}

const serviceAccountToken = "file:/var/run/secrets/kubernetes.io/serviceaccount/token"

// Vault reads from one Vault or OpenBao. It is safe for concurrent use.
type Vault struct {
	cfg    Config
	lookup secret.Lookup
	client func() *api.Client // login sets its token; a function, because fmt does not print what is behind it
	knows  *secret.Redactor

	turn     chan struct{} // held by the goroutine that logs in
	mu       sync.Mutex
	got      time.Time                // when the token was issued
	renew    time.Time                // when it is to be replaced; zero: never
	ends     time.Time                // zero: the token does not expire
	doubtful bool                     // it was denied something
	retry    time.Time                // no login before it, because of failure
	failure  error                    // of the last login
	denied   map[string]time.Duration // by path: up to which age a token counts as young
	kv       map[string]int           // versions of engines, by mount with its slash
}

// New makes a Vault. Its only I/O is reading the CAFile.
func New(cfg Config, lookup secret.Lookup) (*Vault, error) {
	u, err := url.Parse(cfg.Address)
	ways := 0
	for _, given := range []bool{cfg.Token != "", cfg.AppRole != nil, cfg.Kubernetes != nil} {
		if given {
			ways++
		}
	}
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil:
		return nil, errors.New("address: a URL such as https://vault.internal:8200 is needed")
	case ways != 1:
		return nil, errors.New("exactly one of token, approle and kubernetes says how to log in")
	case cfg.KV < 0 || cfg.KV > 2:
		return nil, errors.New("kv: the versions of the key/value engine are 1 and 2")
	case cfg.Mount != "" && cfg.KV == 0:
		return nil, errors.New("mount: give kv, too")
	case cfg.AppRole != nil && cfg.AppRole.RoleID == "":
		return nil, errors.New("approle: role_id is missing")
	case cfg.Kubernetes != nil && cfg.Kubernetes.Role == "":
		return nil, errors.New("kubernetes: role is missing")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.HTTPClient == nil {
		if cfg.HTTPClient, err = secret.HTTPClient(cfg.CAFile); err != nil {
			return nil, err
		}
	}
	v := &Vault{cfg: cfg, lookup: lookup, knows: &secret.Redactor{}, turn: make(chan struct{}, 1), denied: map[string]time.Duration{}, kv: map[string]int{}}
	client, err := v.connection()
	if err != nil {
		return nil, err
	}
	v.client = func() *api.Client { return client }
	return v, nil
}

// connection makes a client without a token.
func (v *Vault) connection() (*api.Client, error) {
	client := *v.cfg.HTTPClient // a copy, because the library modifies it
	c, err := api.NewClient(&api.Config{Address: v.cfg.Address, HttpClient: &client, MaxRetries: 1,
		MinRetryWait: 50 * time.Millisecond, MaxRetryWait: 250 * time.Millisecond, DisableRedirects: true})
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	c.ClearToken()
	c.ClearNamespace()
	if v.cfg.Namespace != "" {
		c.SetNamespace(v.cfg.Namespace)
	}
	return c, nil
}

// Read reads an entry of a key/value engine.
func (v *Vault) Read(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
	if ref.Version == "latest" {
		ref.Version = ""
	}
	started := v.cfg.Now()
	mount, version := v.mounted(ref)
	got, err := v.read(ctx, ref)
	if err == nil {
		v.permitted(ref.Path)
	}
	if errors.Is(err, secret.ErrDenied) {
		if v.doubt(ref.Path, started) {
			got, err = v.read(ctx, ref)
		}
		err = v.after(ref, err)
	}
	if version != 0 && err != nil && !errors.Is(err, secret.ErrUnavailable) && v.changed(ctx, ref, mount, version) {
		got, err = v.read(ctx, ref)
	}
	return got, err
}

// changed requests the engine of a path again, and reports whether its mount or version has
// changed: a read from an upgraded engine fails as if the entry were missing or denied.
func (v *Vault) changed(ctx context.Context, ref aaif.VaultRef, mount string, version int) bool {
	nowMount, now, err := v.ask(ctx, ref)
	if err != nil || nowMount == mount && now == version {
		return false
	}
	if nowMount != mount {
		v.mu.Lock()
		delete(v.kv, mount)
		v.mu.Unlock()
	}
	return true
}

func (v *Vault) read(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
	if err := v.login(ctx, ref); err != nil {
		return secret.Secret{}, err
	}
	mount, version, err := v.engine(ctx, ref)
	if err != nil {
		return secret.Secret{}, err
	}
	path, query := strings.Trim(ref.Path, "/"), map[string][]string{}
	if version == 2 {
		path = mount + "data/" + strings.TrimPrefix(strings.TrimPrefix(path, mount), "data/")
	}
	if ref.Version != "" {
		if _, err := strconv.ParseUint(ref.Version, 10, 31); err != nil || version != 2 {
			return secret.Secret{}, secret.Errorf(secret.ErrInvalid, ref, "a version is a number, of an engine of version 2")
		}
		query["version"] = []string{ref.Version}
	}
	answer, err := v.client().Logical().ReadWithDataWithContext(ctx, path, query)
	if err != nil {
		return secret.Secret{}, v.failed(ref, err)
	}
	if answer == nil {
		return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "there is no such entry")
	}
	data := answer.Data
	if version == 2 {
		data, _ = data["data"].(map[string]any) // null if the version was deleted
	}
	if data == nil {
		return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "there is no such entry")
	}
	return member(ref, data)
}

// member returns the value in an entry, which is always a map.
func member(ref aaif.VaultRef, data map[string]any) (secret.Secret, error) {
	if ref.Key == "" {
		_, has := data["value"]
		switch {
		case has:
			ref.Key = "value"
		case len(data) == 1:
			for ref.Key = range data {
			}
		default:
			return secret.Secret{}, secret.Errorf(secret.ErrInvalid, ref, "the entry has %d keys, and none is named", len(data))
		}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return secret.Secret{}, secret.Errorf(secret.ErrInvalid, ref, "the entry is no JSON")
	}
	return secret.Member(ref, string(text))
}

// engine returns the mount and the version of the engine of a path.
func (v *Vault) engine(ctx context.Context, ref aaif.VaultRef) (mount string, version int, err error) {
	if v.cfg.KV != 0 {
		path := below(ref)
		first, _, _ := strings.Cut(path, "/")
		if v.cfg.Mount != "" {
			first = strings.Trim(v.cfg.Mount, "/")
		}
		if !strings.HasPrefix(path, first+"/") {
			return "", 0, secret.Errorf(secret.ErrNotFound, ref, "it is not below the mount %s", first)
		}
		return first + "/", v.cfg.KV, nil
	}
	if mount, version := v.mounted(ref); version != 0 {
		return mount, version, nil
	}
	return v.ask(ctx, ref)
}

// below returns the path of an entry without a leading slash and with a slash at its end, to
// compare it with mounts.
func below(ref aaif.VaultRef) string { return strings.Trim(ref.Path, "/") + "/" }

// ask asks the vault for the engine of a path, and remembers it.
func (v *Vault) ask(ctx context.Context, ref aaif.VaultRef) (mount string, version int, err error) {
	path := below(ref)
	answer, err := v.client().Logical().ReadWithContext(ctx, "sys/internal/ui/mounts/"+strings.TrimSuffix(path, "/"))
	if err != nil {
		return "", 0, v.failed(ref, err)
	}
	if answer == nil {
		return "", 0, secret.Errorf(secret.ErrNotFound, ref, "nothing is mounted there")
	}
	mount, _ = answer.Data["path"].(string)
	if !strings.HasSuffix(mount, "/") || !strings.HasPrefix(path, mount) {
		return "", 0, secret.Errorf(secret.ErrUnavailable, ref, "the vault does not say where its engine is mounted")
	}
	version = 1
	if options, ok := answer.Data["options"].(map[string]any); ok && fmt.Sprint(options["version"]) == "2" {
		version = 2
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kv[mount] = version
	return mount, version, nil
}

// mounted returns the longest known mount of a path. The version is 0 if none is known.
func (v *Vault) mounted(ref aaif.VaultRef) (mount string, version int) {
	path := below(ref)
	v.mu.Lock()
	defer v.mu.Unlock()
	for m, n := range v.kv {
		if strings.HasPrefix(path, m) && len(m) > len(mount) {
			mount, version = m, n
		}
	}
	return mount, version
}

// failed converts an error of the library. The vault's text is scrubbed of
// everything that was sent.
func (v *Vault) failed(ref aaif.VaultRef, err error) error {
	var resp *api.ResponseError
	if !errors.As(err, &resp) {
		return secret.Failed(ref, err)
	}
	words := ""
	if len(resp.Errors) > 0 && !resp.RawError {
		words = ": " + secret.Clip(v.knows.Scrub(strings.Join(resp.Errors, "; ")))
	}
	return secret.Errorf(secret.OfStatus(resp.StatusCode), ref, "status %d%s", resp.StatusCode, words)
}
