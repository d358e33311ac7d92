package mesh_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Finding 19 of the security review: what the server may have signed as a nonce must not
// verify as an envelope, so no key is for both.
func TestNoKeyIsForTheConnectionAndForEnvelopes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := pair.Seed()
	public, _ := pair.PublicKey()
	_, secret, err := nkeys.DecodeSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	both, err := sign.NewSigner("both", sign.Ed25519, secret)
	if err != nil {
		t.Fatal(err)
	}
	apart, key, err := sign.NewKey("apart", sign.Ed25519, ">")
	if err != nil {
		t.Fatal(err)
	}
	_, shared, err := sign.NewKey("shared", sign.HS256, ">")
	if err != nil {
		t.Fatal(err)
	}
	account, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.NewUserClaims(public).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	nkeyFile := file("user.nk", seed)
	const nowhere = "nats://127.0.0.1:1" // it is refused before anything is dialled
	for name, c := range map[string]natsconn.Config{
		"nkey":    {NKey: nkeyFile},
		"creds":   {Creds: file("user.creds", creds)},
		"context": {Options: []nats.Option{nats.UserJWTAndSeed(token, string(seed))}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		c.URL, c.OnStatus = nowhere, func(natsconn.Status) { cancel() } // one attempt is enough
		c.SigningKeys = []sign.Key{shared, key, both.Key()}
		if _, err := natsconn.Connect(ctx, c); !errors.Is(err, natsconn.ErrKeyServesTwice) {
			t.Errorf("%s: %v, want ErrKeyServesTwice", name, err)
		}
		c.SigningKeys = c.SigningKeys[:2]
		if _, err := natsconn.Connect(ctx, c); !errors.Is(err, nats.ErrNoServers) {
			t.Errorf("%s, with other keys: %v, want a try to connect", name, err)
		}
		cancel()
	}

	// Who connects without a list is refused when the key is to sign.
	srv := natstest.Run(t, natsd.Config{Nkeys: []natsd.NkeyUser{{Public: public}}, Users: []natsd.User{{Name: "ada", Password: "secret"}}})
	nc, err := natsconn.Connect(t.Context(), natsconn.Config{URL: srv.ClientURL(), NKey: nkeyFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := mesh.New(nc, mesh.Config{Signer: both}); !errors.Is(err, natsconn.ErrKeyServesTwice) {
		t.Errorf("New: %v, want ErrKeyServesTwice", err)
	}
	node, err := mesh.New(nc, mesh.Config{Signer: apart})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := node.Serve(ctx, mesh.Agent{Entity: reviewer, Handler: echo, Signer: both}); !errors.Is(err, natsconn.ErrKeyServesTwice) {
		t.Errorf("Serve: %v, want ErrKeyServesTwice", err)
	}
	byPassword, err := natsconn.Connect(t.Context(), natsconn.Config{URL: srv.ClientURL(), User: "ada", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(byPassword.Close)
	if _, err := mesh.New(byPassword, mesh.Config{Signer: both}); err != nil {
		t.Errorf("the same key over another connection: %v", err)
	}
}
