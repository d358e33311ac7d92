package natsd_test

import (
	"context"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/nats-io/nats.go"
)

func Example() {
	srv, err := natsd.New(natsd.Config{InProcessOnly: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := srv.Start(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()

	nc, err := nats.Connect("", srv.InProcess())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	_, _ = nc.Subscribe("agent.echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	msg, err := nc.Request("agent.echo", []byte("hello"), 5*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(msg.Data))
	// Output: hello
}
