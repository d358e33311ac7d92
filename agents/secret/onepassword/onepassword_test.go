package onepassword_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/onepassword"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

const (
	token   = "eyJhbGciOiJFUzI1NiJ9.connect-double.T0k3n"
	vaultID = "ytrfte14kw1uex5txaore1emkz"
	itemID  = "2fcbqwe9ndg175zg2dzwftvkpa"
	mapID   = "3fcbqwe9ndg175zg2dzwftvkpb"
	noneID  = "4fcbqwe9ndg175zg2dzwftvkpc"
	lockID  = "5fcbqwe9ndg175zg2dzwftvkpd"
)

// double speaks Connect's API, as the vendor's OpenAPI document has it.
type double struct {
	*httptest.Server
	down atomic.Bool
}

func start(t *testing.T) *double {
	d := &double{}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

type object = map[string]any

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(status int) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(object{"status": status, "message": "Invalid bearer token " + r.Header.Get("Authorization")})
	}
	list := func(titles map[string][]string) {
		title, _ := strings.CutPrefix(r.URL.Query().Get("filter"), `title eq "`)
		out := []object{}
		for _, id := range titles[strings.TrimSuffix(title, `"`)] {
			out = append(out, object{"id": id, "title": title, "vault": object{"id": vaultID}})
		}
		_ = json.NewEncoder(w).Encode(out)
	}
	items := "/v1/vaults/" + vaultID + "/items"
	switch {
	case d.down.Load():
		fail(500)
	case r.Header.Get("Authorization") != "Bearer "+token:
		fail(401)
	case r.URL.Path == "/v1/vaults":
		list(map[string][]string{"Agents": {vaultID}, "Twins": {vaultID, noneID}, "Odd": {"../../x"}})
	case r.URL.Path == items:
		list(map[string][]string{"Plain": {itemID}, "Send Grid": {mapID}, "Locked": {lockID}})
	case r.URL.Path == items+"/"+itemID:
		_ = json.NewEncoder(w).Encode(object{"id": itemID, "version": 2, "fields": []object{
			{"id": "username", "purpose": "USERNAME", "label": "username", "value": "me"},
			{"id": "password", "purpose": "PASSWORD", "label": "password", "value": secrettest.PlainValue}}})
	case r.URL.Path == items+"/"+mapID:
		_ = json.NewEncoder(w).Encode(object{"id": mapID, "version": 7, "sections": []object{{"id": "s1", "label": "live"}, {"id": "s2", "label": "test"}}, "fields": []object{
			{"id": "f1", "label": secrettest.MemberKey, "value": secrettest.MemberValue, "section": object{"id": "s1"}},
			{"id": "f2", "label": "twice", "value": "live-value", "section": object{"id": "s1"}},
			{"id": "f3", "label": "twice", "value": "test-value", "section": object{"id": "s2"}},
			{"id": "f4", "label": "hollow", "value": ""}}})
	case r.URL.Path == items+"/"+lockID:
		fail(403)
	default:
		fail(404)
	}
}

func open(t *testing.T, d *double) *onepassword.Vault {
	t.Helper()
	v, err := onepassword.New(onepassword.Config{Address: d.URL + "/", Token: "env:OP"}, func(context.Context, secret.Reference) (secret.Secret, error) { return secret.New(token), nil })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ref(path, key, version string) aaif.VaultRef {
	return aaif.VaultRef{Provider: aaif.Vault1Password, Path: path, Key: key, Version: version}
}

func TestVaultPassesTheSuite(t *testing.T) {
	t.Parallel()
	for form, at := range map[string]func(title, id string) string{
		"titles":   func(title, _ string) string { return "Agents/" + title },
		"ids":      func(_, id string) string { return vaultID + "/" + id },
		"op paths": func(title, _ string) string { return "op://Agents/" + title },
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			secrettest.Run(t, func(t *testing.T) secrettest.Subject {
				d := start(t)
				return secrettest.Subject{Vault: open(t, d), Plain: ref(at("Plain", itemID), "", "2"), Member: ref(at("Send Grid", mapID), secrettest.MemberKey, "latest"),
					Missing: ref(at("None", noneID), "", ""), MissingVersion: ref(at("Plain", itemID), "", "1"), Denied: ref(at("Locked", lockID), "", ""),
					Credentials: map[string]string{"token": token}, Break: func() { d.down.Store(true) }}
			})
		})
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	v := open(t, start(t))
	for _, tt := range []struct {
		path, key, want string
		kind            error
	}{
		{"Agents/Plain", "username", "me", nil},
		{"op://Agents/Plain/username", "", "me", nil},
		{"op://Agents/Send Grid/test/twice", "", "test-value", nil},
		{"Agents/Send Grid", "live/twice", "live-value", nil},
		{"Agents/Send Grid", "s2/f3", "test-value", nil},
		{"Agents/Send Grid", "twice", "", secret.ErrInvalid},
		{"Agents/Send Grid", "hollow", "", secret.ErrNotFound},
		{"Agents/Send Grid", "", "", secret.ErrNotFound},
		{"Agents/Plain/username", "", "", secret.ErrInvalid},
		{"Agents", "", "", secret.ErrInvalid},
		{"Twins/Plain", "", "", secret.ErrInvalid},
		{"None/Plain", "", "", secret.ErrNotFound},
		{"Odd/Plain", "", "", secret.ErrUnavailable},
		{`Agents" or title eq "x/Plain`, "", "", secret.ErrInvalid},
	} {
		if got, err := v.Read(t.Context(), ref(tt.path, tt.key, "")); got.Reveal() != tt.want || !errors.Is(err, tt.kind) {
			t.Errorf("%s %s: %q, %v; want %q, %v", tt.path, tt.key, got.Reveal(), err, tt.want, tt.kind)
		}
	}
}

func TestTokenAndConfig(t *testing.T) {
	t.Parallel()
	v, err := onepassword.New(onepassword.Config{Address: start(t).URL, Token: "env:OP"}, secret.Operator(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Read(t.Context(), ref("Agents/Plain", "", "")); !errors.Is(err, secret.ErrUnavailable) || !strings.Contains(err.Error(), "env:OP") {
		t.Errorf("without a token: %v", err)
	}
	for _, cfg := range []onepassword.Config{{}, {Address: "http://x"}, {Address: "x", Token: "env:T"}, {Address: "http://x", Token: "env:T", CAFile: "/none"}} {
		if _, err := onepassword.New(cfg, nil); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}
