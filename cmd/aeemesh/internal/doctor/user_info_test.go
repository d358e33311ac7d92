package doctor

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// An answer without data, as a server's that could not find the user, or another program's on a server
// without a system account, does not mean that the user may do everything.
func TestAnAnswerWithoutDataTellsNoPermissions(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte("no_system_account: true"), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := natstest.Run(t, natsd.Config{ConfigFile: conf, Port: natsd.RandomPort})
	nc := natstest.Conn(t, srv)
	d := &doctor{app: &session.App{}, conn: nc, inbox: true}
	var answer atomic.Value
	if _, err := nc.Subscribe("$SYS.REQ.USER.INFO", func(m *nats.Msg) {
		if m.Reply != "" {
			m.Respond([]byte(answer.Load().(string)))
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		answer string
		told   bool
	}{
		{`{"server":{"name":"n"},"error":{"code":400}}`, false},
		{`{"data":{"user":"x","account":""}}`, false},
		{`{}`, false},
		{`no JSON`, false},
		{`{"data":{"user":"x","account":"APP"}}`, true},
	} {
		answer.Store(tt.answer)
		if info, err := d.userInfo(context.Background()); tt.told != (err == nil) {
			t.Errorf("%s: %+v, %v", tt.answer, info, err)
		}
	}
}

// At a leaf node the hub answers too: it tells the permissions of the leaf node's connection. The
// first answer may be its.
func TestThePermissionsAreThoseThatTheUsersServerTells(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(conf, []byte("no_system_account: true"), 0o600); err != nil {
		t.Fatal(err)
	}
	nc := natstest.Conn(t, natstest.Run(t, natsd.Config{ConfigFile: conf, Port: natsd.RandomPort}))
	d := &doctor{app: &session.App{}, conn: nc, inbox: true}
	if _, err := nc.Subscribe("$SYS.REQ.USER.INFO", func(m *nats.Msg) {
		m.Respond([]byte(`{"server":{"id":"HUB"},"data":{"user":"leaf","account":"APP"}}`))
		m.Respond([]byte(`{"server":{"id":"` + nc.ConnectedServerId() + `"},"data":{"user":"ada","account":"APP"}}`))
	}); err != nil {
		t.Fatal(err)
	}
	if info, err := d.userInfo(t.Context()); err != nil || info.Data.User != "ada" {
		t.Errorf("%+v, %v", info, err)
	}
}
