package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// programFor is the variable that makes this test binary the program, with a server's URL.
const programFor = "AEEMESH_TEST_EMBEDDED"

func TestMain(m *testing.M) {
	if url := os.Getenv(programFor); url != "" {
		os.Args = []string{os.Args[0], "-nats", url}
		main()
		return
	}
	os.Exit(m.Run())
}

// SIGTERM, with which platforms end a program, drains: the agent says that it leaves.
func TestTheProgramDrainsOnSIGTERM(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM")
	}
	srv := natstest.Run(t, natsd.Config{})
	conn := natstest.Conn(t, srv)
	events, err := conn.SubscribeSync("bus.mesh.agent")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wait := func(intent string) {
		t.Helper()
		for {
			msg, err := events.NextMsgWithContext(within)
			if err != nil {
				t.Fatalf("%s: %v", intent, err)
			}
			if e, err := envelope.Parse(msg.Data); err == nil && e.Intent == intent {
				return
			}
		}
	}
	program := exec.CommandContext(within, os.Args[0])
	program.Env = append(os.Environ(), programFor+"="+srv.ClientURL())
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	wait(intents.AgentJoined)
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil {
		t.Fatal(err)
	}
	wait(intents.AgentLeft)
}

// The program answers a task on both lanes, and ends when it is interrupted.
func TestTheProgramHostsItsAgent(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{JetStream: true})
	conn := natstest.Conn(t, srv)
	js, err := natsjs.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, srv.ClientURL()) }()
	s := jetstream.Open(js, subject.Map{})
	client, err := mesh.New(conn, mesh.Config{Entity: "human.ada", Durable: &mesh.Durable{Queue: s.Queue, Replies: s.Replies, Dead: s.Dead, States: s.States, Clock: s.Clock}})
	if err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	task := func() *envelope.Envelope {
		return envelope.New(envelope.TypeTask, "human.ada", "agent.word_counter", "agent.word_counter.run", json.RawMessage(`{"text":"one two three"}`))
	}
	stored := task()
	if _, err := client.Submit(within, stored, mesh.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	durable, err := client.Result(within, stored.To, stored.ID, mesh.ResultOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.Send(within, task(), mesh.SendOptions{Retries: 20})
	if err != nil {
		t.Fatal(err)
	}
	for lane, reply := range map[string]*envelope.Envelope{"durable": durable, "live": live} {
		var got count
		if err := json.Unmarshal(reply.Payload, &got); err != nil || got.Words != 3 {
			t.Errorf("%s: %s, %v", lane, reply.Payload, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
