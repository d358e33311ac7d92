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
	srv := natstest.Run(t, natsd.Config{ConfigFile: conf})
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
