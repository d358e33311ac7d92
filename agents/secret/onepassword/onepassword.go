package onepassword

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// Config says where the Connect server is.
type Config struct {
	Address string           `json:"address"` // its URL, such as http://connect:8080
	Token   secret.Reference `json:"token"`   // the server's token, read at each call
	// CAFile is a PEM file of authorities to trust instead of the system's.
	CAFile string `json:"ca_file,omitzero"`

	// HTTPClient reaches the server. Default: one made by [secret.HTTPClient].
	HTTPClient *http.Client `json:"-"`
}

// Vault reads from 1Password. It is safe for concurrent use.
type Vault struct {
	cfg    Config
	lookup secret.Lookup
}

// New makes a Vault. Its only I/O is reading the CAFile.
func New(cfg Config, lookup secret.Lookup) (*Vault, error) {
	u, err := url.Parse(cfg.Address)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || u.User != nil || u.RawQuery != "":
		return nil, errors.New("address: a URL such as http://connect:8080 is needed")
	case cfg.Token == "":
		return nil, errors.New("token: it is missing")
	}
	cfg.Address = strings.TrimSuffix(cfg.Address, "/")
	if cfg.HTTPClient == nil {
		if cfg.HTTPClient, err = secret.HTTPClient(cfg.CAFile); err != nil {
			return nil, err
		}
	}
	return &Vault{cfg: cfg, lookup: lookup}, nil
}

// id matches the ids of vaults and items; any other text is a title.
var id = pattern.Of(`^[a-z0-9]{26}$`)

// An item is an item in Connect's form.
type item struct {
	ID       string `json:"id"`
	Version  int    `json:"version"`
	Sections []struct {
		ID    string `json:"id"`
		Label string `json:"label"`
	} `json:"sections"`
	Fields []struct {
		ID      string `json:"id"`
		Label   string `json:"label"`
		Purpose string `json:"purpose"`
		Value   string `json:"value"`
		Section struct {
			ID string `json:"id"`
		} `json:"section"`
	} `json:"fields"`
}

// Read reads a field of an item.
func (v *Vault) Read(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
	path, copied := strings.CutPrefix(ref.Path, "op://")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	key := ref.Key
	if copied && len(parts) > 2 && key == "" {
		key, parts = strings.Join(parts[2:], "/"), parts[:2]
	}
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		return secret.Secret{}, secret.Errorf(secret.ErrInvalid, ref, "a path is a vault and an item, with a slash between them")
	}
	token, err := v.lookup(ctx, v.cfg.Token)
	if err != nil {
		return secret.Secret{}, secret.Errorf(secret.ErrUnavailable, ref, "its credential for the sign-in cannot be read: %v", err)
	}
	q := query{v, ctx, ref, token}
	vault, err := q.find("/v1/vaults", parts[0], "vault")
	if err != nil {
		return secret.Secret{}, err
	}
	items := "/v1/vaults/" + vault + "/items"
	it, err := q.find(items, parts[1], "item")
	if err != nil {
		return secret.Secret{}, err
	}
	var whole item
	if err := q.get(items+"/"+it, nil, &whole); err != nil {
		return secret.Secret{}, err
	}
	if ref.Version != "" && ref.Version != "latest" && ref.Version != strconv.Itoa(whole.Version) {
		return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "a Connect server gives the current version alone, which is %d", whole.Version)
	}
	return whole.field(ref, key)
}

// field finds a field by a document's key.
func (i *item) field(ref aaif.VaultRef, key string) (secret.Secret, error) {
	section, label, both := strings.Cut(key, "/")
	sections := map[string]bool{}
	for _, s := range i.Sections {
		if both && (s.ID == section || s.Label == section) {
			sections[s.ID] = true
		}
	}
	values := map[string]bool{}
	for _, f := range i.Fields {
		var is bool
		switch {
		case key == "":
			is = f.Purpose == "PASSWORD" || f.Purpose == "" && f.ID == "credential"
		case f.ID == key || f.Label == key:
			is = true
		case both:
			is = sections[f.Section.ID] && (f.ID == label || f.Label == label)
		}
		if is {
			values[f.Value] = true
		}
	}
	switch {
	case len(values) == 0 && key == "":
		return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "the item has neither password nor credential: name a field")
	case len(values) == 0:
		return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "the item has no such field")
	case len(values) > 1:
		return secret.Secret{}, secret.Errorf(secret.ErrInvalid, ref, "the item has %d such fields: name section/field, or the field's id", len(values))
	}
	for value := range values {
		if value != "" {
			return secret.New(value), nil
		}
	}
	return secret.Secret{}, secret.Errorf(secret.ErrNotFound, ref, "it is empty")
}

// A query makes the requests of one Read.
type query struct {
	v     *Vault
	ctx   context.Context
	ref   aaif.VaultRef
	token secret.Secret
}

// find returns the id of a vault or item by its title or id.
func (q query) find(list, name, what string) (string, error) {
	if id.RE().MatchString(name) {
		return name, nil
	}
	if strings.ContainsAny(name, `"\`) {
		return "", secret.Errorf(secret.ErrInvalid, q.ref, `a title with " or \ cannot be asked for: give the id`)
	}
	var found []struct {
		ID string `json:"id"`
	}
	if err := q.get(list, url.Values{"filter": {`title eq "` + name + `"`}}, &found); err != nil {
		return "", err
	}
	switch {
	case len(found) == 0:
		return "", secret.Errorf(secret.ErrNotFound, q.ref, "there is no such %s", what)
	case len(found) > 1:
		return "", secret.Errorf(secret.ErrInvalid, q.ref, "there are %d such %ss: give the id", len(found), what)
	case !id.RE().MatchString(found[0].ID):
		return "", secret.Errorf(secret.ErrUnavailable, q.ref, "the answer is not that of a Connect server")
	}
	return found[0].ID, nil
}

func (q query) get(path string, values url.Values, to any) error {
	req, err := http.NewRequestWithContext(q.ctx, http.MethodGet, q.v.cfg.Address+path+"?"+values.Encode(), nil)
	if err != nil {
		return secret.Errorf(secret.ErrInvalid, q.ref, "it is no part of a URL")
	}
	req.Header.Set("Authorization", "Bearer "+q.token.Reveal())
	resp, err := q.v.cfg.HTTPClient.Do(req)
	if err != nil {
		return secret.Failed(q.ref, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return secret.Failed(q.ref, err)
	case resp.StatusCode != http.StatusOK:
		return secret.Errorf(secret.OfStatus(resp.StatusCode), q.ref, "status %d", resp.StatusCode)
	case json.Unmarshal(body, to) != nil:
		return secret.Errorf(secret.ErrUnavailable, q.ref, "the answer is not that of a Connect server")
	}
	return nil
}
