package azurekv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// Config lists the vaults, and says how to authenticate.
type Config struct {
	// URLs are the vaults, such as https://myvault.vault.azure.net. A path that
	// is only a name is looked up in the first.
	URLs []string `json:"urls"`
	// TenantID, ClientID and ClientSecret authenticate as an application.
	// Default: the SDK's default credential; ClientID alone chooses a managed
	// identity.
	TenantID     string           `json:"tenant_id,omitzero"`
	ClientID     string           `json:"client_id,omitzero"`
	ClientSecret secret.Reference `json:"client_secret,omitzero"`
	// AuthorityHost replaces https://login.microsoftonline.com, for other clouds.
	AuthorityHost string `json:"authority_host,omitzero"`
	// AnyDomain sends tokens also to vaults whose URL is not in the domain that
	// they request tokens for. Default: such a vault gets none.
	AnyDomain bool `json:"any_domain,omitzero"`

	// HTTPClient reaches Azure. Default: one made by [secret.HTTPClient].
	HTTPClient *http.Client `json:"-"`
}

// Vault reads from Azure Key Vault. It is safe for concurrent use.
type Vault struct {
	cfg    Config
	lookup secret.Lookup

	mu      sync.Mutex
	signed  secret.Secret                       // the client secret with which the clients were made
	clients func() map[string]*azsecrets.Client // by URL; nil until the first read
}

// New makes a Vault. It does no I/O.
func New(cfg Config, lookup secret.Lookup) (*Vault, error) {
	if len(cfg.URLs) == 0 {
		return nil, errors.New("urls: a vault such as https://myvault.vault.azure.net is missing")
	}
	cfg.URLs = append([]string(nil), cfg.URLs...)
	for i, raw := range cfg.URLs {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return nil, fmt.Errorf("urls/%d: the URL of a vault is https:// and its host", i)
		}
		cfg.URLs[i] = "https://" + strings.ToLower(u.Host)
	}
	if cfg.ClientSecret != "" && (cfg.TenantID == "" || cfg.ClientID == "") {
		return nil, errors.New("client_secret: tenant_id and client_id are missing")
	}
	if cfg.HTTPClient == nil {
		var err error
		if cfg.HTTPClient, err = secret.HTTPClient(""); err != nil {
			return nil, err
		}
	}
	return &Vault{cfg: cfg, lookup: lookup}, nil
}

var nameForm = pattern.Of(`^[0-9a-zA-Z-]+$`)

// locate returns the vault, name and version of a reference.
func (v *Vault) locate(ref aaif.VaultRef) (vault, name, version string, err error) {
	vault, name = v.cfg.URLs[0], ref.Path
	if strings.Contains(ref.Path, "://") {
		vault = ""
		for _, u := range v.cfg.URLs {
			if len(ref.Path) > len(u) && strings.EqualFold(ref.Path[:len(u)], u) && ref.Path[len(u)] == '/' {
				vault, name = u, strings.TrimSuffix(ref.Path[len(u)+1:], "/")
			}
		}
		var is bool
		if name, is = strings.CutPrefix(name, "secrets/"); vault != "" && !is {
			return "", "", "", secret.Errorf(secret.ErrInvalid, ref, "it is not the identifier of a secret")
		}
		if vault == "" {
			return "", "", "", secret.Errorf(secret.ErrNotAllowed, ref, "this vault is not configured here")
		}
	}
	name, version, _ = strings.Cut(name, "/")
	if ref.Version != "" {
		version = ref.Version
	}
	if version == "latest" {
		version = ""
	}
	if len(name) > 127 || !nameForm.RE().MatchString(name) || version != "" && !nameForm.RE().MatchString(version) {
		return "", "", "", secret.Errorf(secret.ErrInvalid, ref, "names and versions of secrets are letters, digits and hyphens")
	}
	return vault, name, version, nil
}

// Read reads a secret.
func (v *Vault) Read(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
	vault, name, version, err := v.locate(ref)
	if err != nil {
		return secret.Secret{}, err
	}
	clients, err := v.connect(ctx, ref)
	if err != nil {
		return secret.Secret{}, err
	}
	got, err := clients[vault].GetSecret(ctx, name, version, nil)
	if err != nil {
		return secret.Secret{}, failed(ref, err)
	}
	if got.Value == nil {
		return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "it is empty")
	}
	return secret.Member(ref, *got.Value)
}

// connect makes the clients when they are first needed, and again when the
// client secret has changed.
func (v *Vault) connect(ctx context.Context, ref aaif.VaultRef) (map[string]*azsecrets.Client, error) {
	var key secret.Secret
	if v.cfg.ClientSecret != "" {
		var err error
		if key, err = v.lookup(ctx, v.cfg.ClientSecret); err != nil {
			return nil, secret.Errorf(secret.ErrUnavailable, ref, "its credential for the sign-in cannot be read: %v", err)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.clients != nil && v.signed.Equal(key) {
		return v.clients(), nil
	}
	options := policy.ClientOptions{Transport: v.cfg.HTTPClient,
		Retry: policy.RetryOptions{MaxRetries: 1, RetryDelay: 50 * time.Millisecond, MaxRetryDelay: 250 * time.Millisecond}}
	if v.cfg.AuthorityHost != "" {
		options.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: v.cfg.AuthorityHost}
	}
	credential, err := v.credential(key, options)
	if err != nil {
		return nil, secret.Errorf(secret.ErrUnavailable, ref, "there is nothing to sign in with")
	}
	clients := make(map[string]*azsecrets.Client)
	for _, u := range v.cfg.URLs {
		c, err := azsecrets.NewClient(u, credential, &azsecrets.ClientOptions{ClientOptions: options, DisableChallengeResourceVerification: v.cfg.AnyDomain})
		if err != nil {
			return nil, secret.Errorf(secret.ErrUnavailable, ref, "the client cannot be made")
		}
		clients[u] = c
	}
	v.signed, v.clients = key, func() map[string]*azsecrets.Client { return clients }
	return clients, nil
}

func (v *Vault) credential(key secret.Secret, options policy.ClientOptions) (azcore.TokenCredential, error) {
	switch other := v.cfg.AuthorityHost != ""; {
	case !key.IsZero():
		return azidentity.NewClientSecretCredential(v.cfg.TenantID, v.cfg.ClientID, key.Reveal(),
			&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: other})
	case v.cfg.ClientID != "":
		return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ClientOptions: options, ID: azidentity.ClientID(v.cfg.ClientID)})
	default:
		return azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: options, TenantID: v.cfg.TenantID, DisableInstanceDiscovery: other})
	}
}

var codeForm = pattern.Of(`^[A-Za-z]+$`)

// failed converts an error of the SDK. Its text contains whole answers, so only
// status and code are used.
func failed(ref aaif.VaultRef, err error) error {
	var auth *azidentity.AuthenticationFailedError
	var resp *azcore.ResponseError
	switch {
	case errors.As(err, &auth) && auth.RawResponse != nil:
		return secret.Errorf(secret.OfStatus(auth.RawResponse.StatusCode), ref, "sign-in: status %d", auth.RawResponse.StatusCode)
	case errors.As(err, &resp):
		words := fmt.Sprintf("status %d", resp.StatusCode)
		if len(resp.ErrorCode) <= 60 && codeForm.RE().MatchString(resp.ErrorCode) {
			words += " " + resp.ErrorCode
		}
		return secret.Errorf(secret.OfStatus(resp.StatusCode), ref, "%s", words)
	}
	return secret.Failed(ref, err)
}
