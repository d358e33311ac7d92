package jetstream_test

import (
	"context"
	"fmt"
	"os"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	check(err)
	defer os.RemoveAll(dir)
	srv, err := natsd.New(natsd.Config{InProcessOnly: true, JetStream: true, StoreDir: dir})
	check(err)
	check(srv.Start(ctx))
	defer srv.Close()
	nc, err := nats.Connect("", srv.InProcess())
	check(err)
	defer nc.Close()
	js, err := natsjs.New(nc)
	check(err)

	m, err := subject.New("acme")
	check(err)
	report, err := jetstream.Apply(ctx, js, jetstream.Options{Map: m, Only: []string{jetstream.StreamJournal}})
	check(err)
	for _, c := range report {
		fmt.Println(c)
	}

	j := jetstream.NewJournal(js, m)
	check(j.Put(ctx, "agent.reviewer", "01JFB2R1JZKQ9V3K8W8Y9W1F2A", []byte(`{"v":"1"}`)))
	envelope, err := j.Get(ctx, "agent.reviewer", "01JFB2R1JZKQ9V3K8W8Y9W1F2A")
	check(err)
	fmt.Println(string(envelope))
	// Output:
	// create AEE_JOURNAL_acme
	// {"v":"1"}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
