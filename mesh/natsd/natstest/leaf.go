package natstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// Leaf starts a hub and a leaf node, whose clients share the subjects of one account. Each has
// JetStream, in the domains hub and edge, with so many bytes of storage; 0: nats-server's default.
// They are closed when the test ends. users are of the leaf node, where every other client may do
// everything.
func Leaf(t testing.TB, store int64, users ...natsd.User) (hub, leaf *natsd.Server) {
	t.Helper()
	dir, port := StoreDir(t), hold(t)
	// The accounts of the two systems differ. So the leaf node passes on no request to JetStream's API
	// that names no domain.
	const accounts = "accounts { SYS: { users: [ { user: sys, password: s } ] }, APP: { jetstream: enabled, users: [ { user: app, password: a }%s ] } }\n" +
		"system_account: SYS\nno_auth_user: app\n"
	run := func(domain, users, links string) *natsd.Server {
		conf := filepath.Join(dir, domain+".conf")
		if err := os.WriteFile(conf, []byte(fmt.Sprintf(accounts, users)+links), 0o600); err != nil {
			t.Fatal(err)
		}
		return Run(t, natsd.Config{ConfigFile: conf, Name: domain, Port: natsd.RandomPort, JetStream: true, Domain: domain, MaxStore: store, StoreDir: filepath.Join(dir, domain)})
	}
	var permitted strings.Builder
	for _, u := range users {
		fmt.Fprintf(&permitted, ", { user: %q, password: %q, permissions: { publish: { allow: %s }, subscribe: { allow: %s } } }",
			u.Name, u.Password, list(u.Permissions.Publish.Allow), list(u.Permissions.Subscribe.Allow))
	}
	hub = run("hub", "", fmt.Sprintf("leafnodes { listen: \"127.0.0.1:%d\" }\n", port))
	leaf = run("edge", permitted.String(), fmt.Sprintf("leafnodes { remotes: [ { url: \"nats://app:a@127.0.0.1:%d\", account: APP } ] }\n", port))
	return hub, leaf
}

// list is a list of strings in a server's configuration.
func list(all []string) string {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, " %q,", s)
	}
	return "[" + b.String() + " ]"
}
