package agents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

// with runs f beside a handler that is served as agent.shouter.
func with(handler mesh.Handler, f func(node *mesh.Node)) {
	srv, err := natsd.New(natsd.Config{InProcessOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := srv.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	conn, err := nats.Connect("", srv.InProcess())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	node, err := mesh.New(conn, mesh.Config{Entity: "human.ada"})
	if err != nil {
		log.Fatal(err)
	}

	doc, err := aaif.Parse([]byte(`{"sc_standard": "SC-006", "agent": {"name": "Shouter", "goal": "Say it louder."}}`), aaif.Options{})
	if err != nil {
		log.Fatal(err)
	}
	agent, err := agents.New(doc, agents.Options{Handler: handler})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- agent.Run(ctx, node) }()
	f(node)
	stop()
	if err := <-served; err != nil {
		log.Fatal(err)
	}
}

// A Go function on Go values does an agent's work.
func Example_typed() {
	type in struct {
		Text string `json:"text"`
	}
	type out struct {
		Text string `json:"text"`
	}
	handler := mesh.Typed(func(_ context.Context, in in) (out, error) {
		if in.Text == "" {
			return out{}, envelope.Errorf(envelope.CodeInputSchema, "there is nothing to shout")
		}
		return out{strings.ToUpper(in.Text)}, nil
	})
	with(handler, func(node *mesh.Node) {
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.shouter", "text.shout", json.RawMessage(`{"text":"hello"}`))
		result, err := node.Send(context.Background(), task, mesh.SendOptions{Retries: 20})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(result.Payload))
	})
	// Output: {"text":"HELLO"}
}

// The raw form sees the whole task, and can stream.
func Example_raw() {
	handler := mesh.HandlerFunc(func(_ context.Context, task *mesh.Task) (json.RawMessage, error) {
		if err := task.EmitText("taking a breath"); err != nil {
			return nil, err
		}
		return json.RawMessage(`{"shouted":` + string(task.Envelope.Payload) + `}`), nil
	})
	with(handler, func(node *mesh.Node) {
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.shouter", "text.shout", json.RawMessage(`{"text":"hello"}`))
		result, err := node.Send(context.Background(), task, mesh.SendOptions{
			Retries: 20,
			OnStream: func(e *envelope.Envelope) error {
				fmt.Println(string(e.Payload))
				return nil
			},
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(result.Payload))
	})
	// Output:
	// {"seq":1,"text":"taking a breath"}
	// {"shouted":{"text":"hello"}}
}
