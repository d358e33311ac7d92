package schemas

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// told is a learner that tells all clients the same, and learns nothing.
type told struct{ view *evolve.View }

func (l told) View(context.Context, string, sdsi.Sender) (v *evolve.View, cohort, client string) {
	return l.view, "", ""
}
func (l told) Observe(string, sdsi.Sender, sdsi.Seen) <-chan struct{} { return nil }
func (l told) Told(string, sdsi.Sender, []string)                     {}

// An agent may have learned more keys than one patch has room for, and all are shown.
func TestManyLearnedKeysAreShown(t *testing.T) {
	t.Parallel()
	tpl, err := template.Parse([]byte(`{"schema_id":"tram_v1","scenario":"tram","keys":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	rules := evolve.Config{Anonymity: 2, MinClients: 2, MinHeat: 10, MaxTrials: 50, MaxKeys: 100}
	p, err := evolve.New(rules, "test")
	if err != nil {
		t.Fatal(err)
	}
	wish := func(i int, at time.Time) string {
		name, v := fmt.Sprintf("wish_%d", i), make([]float32, 60)
		v[i] = 1
		for _, c := range []string{"agent.a", "agent.b"} {
			p.Observe(evolve.Observation{Client: evolve.Client(c), Fragments: []evolve.Fragment{{Text: "a kayak", Vector: v}}}, at)
		}
		for _, c := range p.Ripe(at) {
			if err := p.Propose(c, template.Key{Name: name, Type: template.Boolean, Description: "Is it wanted?"}, tpl, "", at); err != nil {
				t.Fatal(err)
			}
		}
		return name
	}
	var uses []evolve.Use
	then := now.Add(-8 * 24 * time.Hour)
	for i := range 30 {
		name := wish(i, then)
		uses = append(uses, evolve.Use{Key: name})
		if err := p.Vouch(name, "human.ops", then); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		p.Observe(evolve.Observation{Client: evolve.Client(fmt.Sprint(i)), Keys: uses}, then.Add(time.Hour))
	}
	p.Advance(now) // they are stable
	for i := range 30 {
		wish(30+i, now)
	}
	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: "agent.trams", Templates: []*template.Template{tpl}})
	if err != nil {
		t.Fatal(err)
	}
	desk.Learn(told{p.View()})
	srv := natstest.Run(t, natsd.Config{})
	node, err := mesh.New(natstest.Conn(t, srv), mesh.Config{Entity: "agent.trams"})
	if err != nil {
		t.Fatal(err)
	}
	ready, done := make(chan struct{}), make(chan error, 1)
	agent := mesh.Agent{Entity: "agent.trams", Ready: func() { close(ready) }, Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) { return nil, nil })}
	if err := desk.Attach(&agent); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { done <- node.Serve(ctx, agent) }()
	t.Cleanup(func() { stop(); natstest.Within(t, "the end", done) })
	natstest.Within(t, "the agent", ready)

	var out, words natstest.Buffer
	env := func(string) string { return "" }
	a := &session.App{Env: env, Stdin: strings.NewReader(""), Term: term.New(&out, &words, env), ByEnv: map[string]bool{}}
	a.StartTelemetry = func(context.Context) (*session.Telemetry, error) {
		return &session.Telemetry{Stop: func() {}}, nil
	}
	root := &cobra.Command{Use: "aeemesh", SilenceErrors: true, SilenceUsage: true}
	a.AddConnectFlags(root.PersistentFlags())
	root.AddCommand(showCommand(a))
	root.SetArgs([]string{"show", "agent.trams", "--sign", "none", "--nats", srv.ClientURL()})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "wish_"); n != 60 {
		t.Errorf("%d keys are shown:\n%s", n, out.String())
	}
}
