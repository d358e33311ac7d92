package worker

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// After a failure an agent with the template of its document alone does not ask the mesh for
// versions until its template is being published again: not while other agents have all places.
func TestAnAgentThatWaitsToPublishDoesNotAskTheMesh(t *testing.T) {
	t.Parallel()
	nc := natstest.Conn(t, natstest.Run(t, natsd.Config{}))
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close() // each request fails at once
	tram, err := template.Parse([]byte(`{"schema_id":"tram_v1","scenario":"tram","keys":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	desk, err := sdsi.NewDesk(sdsi.DeskConfig{Entity: "agent.trams", Templates: []*template.Template{tram}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{Agents: []Agent{{As: "agent.trams", Handler: mesh.HandlerFunc(func(context.Context, *mesh.Task) (json.RawMessage, error) { return nil, nil })}}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &publisher{w: w, store: jetstream.NewTemplates(js, subject.Map{}), places: make(chan struct{}, 1)}
		p.places <- struct{}{}
		go p.keepOn(ctx, &hosted{desk: desk})
		synctest.Wait()
		if _, err := desk.Publish(ctx); err != nil { // it does nothing without a store
			t.Errorf("the desk asks the mesh: %v", err)
		}
		cancel()
	})
}
