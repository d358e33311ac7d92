package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
)

type line struct {
	Text string `json:"text"`
}

func shout(_ context.Context, in line) (line, error) {
	if in.Text == "" {
		return line{}, envelope.Errorf(envelope.CodeInputSchema, "there is nothing to shout")
	}
	return line{strings.ToUpper(in.Text)}, nil
}

// A Go function is an agent, and a task is sent to it.
func Example() {
	conn, stop := server(natsd.Config{InProcessOnly: true})
	defer stop()
	node, err := mesh.New(conn, mesh.Config{Entity: "human.ada"})
	if err != nil {
		log.Fatal(err)
	}

	ctx, drain := context.WithCancel(context.Background())
	ready, served := make(chan struct{}), make(chan error, 1)
	go func() {
		served <- node.Serve(ctx, mesh.Agent{Entity: "agent.shouter", Handler: mesh.Typed(shout), Ready: func() { close(ready) }})
	}()
	<-ready

	for _, payload := range []string{`{"text": "hello"}`, `{"text": ""}`} {
		task := envelope.New(envelope.TypeTask, "human.ada", "agent.shouter", "text.shout", json.RawMessage(payload))
		result, err := node.Send(ctx, task, mesh.SendOptions{})
		if err != nil {
			fmt.Println(err) // an *envelope.Error
			continue
		}
		fmt.Println(string(result.Payload))
	}
	drain()
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"text":"HELLO"}
	// E_INPUT_SCHEMA: there is nothing to shout
}

// With the durable lane a task is stored, and waits for a worker.
func Example_durable() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	conn, stop := server(natsd.Config{InProcessOnly: true, JetStream: true, StoreDir: dir})
	defer stop()
	js, err := jetstream.New(conn, "")
	if err != nil {
		log.Fatal(err)
	}
	ctx, drain := context.WithCancel(context.Background())
	var m subject.Map // a mesh without a prefix
	if _, err := jetstream.Apply(ctx, js, jetstream.Options{Map: m}); err != nil {
		log.Fatal(err)
	}
	s := jetstream.Open(js, m)
	node, err := mesh.New(conn, mesh.Config{Entity: "human.ada", Durable: &mesh.Durable{
		Queue: s.Queue, Replies: s.Replies, Dead: s.Dead, States: s.States, Clock: s.Clock, Create: true,
	}})
	if err != nil {
		log.Fatal(err)
	}

	task := envelope.New(envelope.TypeTask, "human.ada", "agent.shouter", "text.shout", json.RawMessage(`{"text": "later"}`))
	if _, err := node.Submit(ctx, task, mesh.SubmitOptions{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored")

	served := make(chan error, 1)
	go func() {
		served <- node.Serve(ctx, mesh.Agent{Entity: "agent.shouter", Handler: mesh.Typed(shout)})
	}()
	result, err := node.Result(ctx, "agent.shouter", task.ID, mesh.ResultOptions{Follow: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(result.Payload))
	drain()
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	// Output:
	// stored
	// {"text":"LATER"}
}

// server starts a NATS server in this process, and connects to it.
func server(cfg natsd.Config) (*nats.Conn, func()) {
	srv, err := natsd.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	if err := srv.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	conn, err := nats.Connect("", srv.InProcess())
	if err != nil {
		log.Fatal(err)
	}
	return conn, func() {
		conn.Close()
		srv.Close()
	}
}
