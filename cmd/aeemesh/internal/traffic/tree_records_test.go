package traffic

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A tree of which a part could not be read is printed, and is an error: a script must not take it
// for the whole. It is none for a user who may not read runs, and where there are none.
func TestATreeThatCouldNotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	const domain, state = "$JS.test.API.", "KV_aee_state"
	refuse := func(to ...string) func(*testing.T, *nats.Msg, context.CancelFunc) bool {
		return func(t *testing.T, m *nats.Msg, _ context.CancelFunc) bool {
			if !slices.ContainsFunc(to, func(name string) bool { return strings.Contains(m.Subject, name) }) {
				return false
			}
			if err := m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"500"}, "Description": {"out of order"}}, Data: []byte(`{"error":{"code":500,"err_code":10000,"description":"out of order"}}`)}); err != nil {
				t.Error(err)
			}
			return true
		}
	}
	for name, c := range map[string]struct {
		without string // this stream
		denied  bool   // the user may not read runs
		answer  func(t *testing.T, request *nats.Msg, interrupt context.CancelFunc) (answered bool)
		code    envelope.Code // "": no error
		printed bool
	}{
		"read":                           {printed: true},
		"no store of runs":               {without: state, printed: true},
		"no permission":                  {denied: true, printed: true},
		"a failing store":                {answer: refuse("DIRECT.GET." + state), code: outcome.CodeFailed, printed: true},
		"a failing store, and no events": {without: jetstream.StreamBus, answer: refuse(state), code: outcome.CodeFailed},
		"events that cannot be read":     {answer: refuse(jetstream.StreamBus), code: outcome.CodeFailed},
		"no events, and no runs":         {without: jetstream.StreamBus, code: envelope.CodeNotFound},
		"interrupted": {answer: func(_ *testing.T, m *nats.Msg, interrupt context.CancelFunc) bool {
			if !strings.Contains(m.Subject, "DIRECT.GET."+state) {
				return false
			}
			interrupt()
			return true
		}, code: outcome.CodeInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := natsd.User{Name: "viewer", Password: "pw"}
			if c.denied {
				user.Permissions = &natsd.Permissions{Publish: natsd.Subjects{Deny: []string{domain + "DIRECT.GET." + state + ".>"}}}
			}
			srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{{Name: "admin", Password: "pw"}, user}})
			admin := natstest.Conn(t, srv, nats.UserInfo("admin", "pw"))
			ours, err := natsjs.New(admin)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jetstream.Apply(t.Context(), ours, jetstream.Options{}); err != nil {
				t.Fatal(err)
			}
			e := envelope.New(envelope.TypeEvent, "agent.a", "bus.mesh.task", intents.TaskStarted, json.RawMessage(`{"task":"task-0001","sender":"human.ada","run":"0f4c0000"}`))
			e.Corr = "corr-0001"
			data, err := e.AppendJSON(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := admin.Publish(e.To, data); err != nil {
				t.Fatal(err)
			}
			natstest.Eventually(t, "the event is stored", func() bool { // the server stores what it has received a little later
				bus, err := ours.Stream(t.Context(), jetstream.StreamBus)
				if err == nil {
					_, err = bus.GetLastMsgForSubject(t.Context(), e.To)
				}
				return err == nil
			})
			if c.without != "" {
				if err := ours.DeleteStream(t.Context(), c.without); err != nil {
					t.Fatal(err)
				}
			}

			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			// The requests to a domain of JetStream are answered by the test, or by the server.
			if _, err := admin.Subscribe(domain+">", func(m *nats.Msg) {
				if c.answer != nil && c.answer(t, m, interrupt) {
					return
				}
				to := natsjs.DefaultAPIPrefix + strings.TrimPrefix(m.Subject, domain)
				if err := admin.PublishMsg(&nats.Msg{Subject: to, Reply: m.Reply, Header: m.Header, Data: m.Data}); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := admin.Flush(); err != nil {
				t.Fatal(err)
			}
			conn := natstest.Conn(t, srv, nats.UserInfo(user.Name, user.Password))
			js, err := natsjs.NewWithDomain(conn, "test")
			if err != nil {
				t.Fatal(err)
			}
			var out, words natstest.Buffer
			a := &session.App{Term: term.New(&out, &words, func(string) string { return "" })}
			r := &treeReader{app: a, flags: &TreeFlags{Fold: 8}, conn: conn, js: js, wanted: "corr-0001", quick: inJSON("corr-0001")}
			err = r.once(ctx)
			if code := outcome.Of(err).Code; err != nil && code != c.code || err == nil && c.code != "" {
				t.Errorf("%v, code %q, want %q", err, code, c.code)
			}
			if printed := strings.Contains(out.String(), "agent.a"); printed != c.printed {
				t.Errorf("printed %t, want %t: %s%s", printed, c.printed, out.String(), words.String())
			}
		})
	}
}
