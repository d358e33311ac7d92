package api

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// A subject that is written again before its first message was read is not left out, even if
// its new message is behind those of the next batch.
func TestTheLastOfEachSubjectAreReadWhileTheyChange(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	js, err := natsjs.New(natstest.Conn(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	pages := [][]string{{"s.a 1", "s.b 2"}, {"s.b 4"}, {"s.c 5"}} // s.c was at 3
	server := natstest.Conn(t, srv)
	if _, err := server.Subscribe("$JS.API.DIRECT.GET.S", func(m *nats.Msg) {
		if len(pages) == 0 {
			return
		}
		for _, text := range pages[0] {
			var subj, seq string
			_, _ = fmt.Sscan(text, &subj, &seq)
			_ = server.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{
				natsjs.StreamHeader: {"S"}, natsjs.SubjectHeader: {subj}, natsjs.SequenceHeader: {seq}, natsjs.TimeStampHeaer: {time.Now().UTC().Format(time.RFC3339Nano)},
			}})
		}
		pages = pages[1:]
		_ = server.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{
			"Status": {"204"}, "Nats-Num-Pending": {strconv.Itoa(min(len(pages), 1))}, "Nats-UpTo-Sequence": {strconv.Itoa(5 - len(pages))},
		}})
	}); err != nil {
		t.Fatal(err)
	}
	if err := server.Flush(); err != nil {
		t.Fatal(err)
	}
	all, err := Last(t.Context(), js, "S", "s.*")
	var got []string
	for _, m := range all {
		got = append(got, fmt.Sprint(m.Subject, " ", m.Seq))
	}
	if want := []string{"s.a 1", "s.b 4", "s.c 5"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
