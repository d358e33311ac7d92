package jetstream_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/jetstream/internal/replay"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// The clock of the stream's leader was set back, or another server with another clock became the
// leader: a message has an earlier time than one before it. It is not a message of a new stream.
func TestReplayRepeatsNothingAfterAClockWasSetBack(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, natsd.Config{})
	server := natstest.Conn(t, srv)
	began := time.Now().UTC()
	type message struct {
		subject, data string
		seconds       int
	}
	var mu sync.Mutex
	all, gets := []message{{"bus.a", "A", 100}, {"bus.b", "B", 104}, {"bus.a", "C", 101}, {"bus.b", "D", 102}}, 0
	at := func(i int) time.Time { return began.Add(time.Duration(all[i].seconds) * time.Second) }
	if _, err := server.Subscribe("$JS.API.DIRECT.GET.AEE_BUS", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if gets++; gets == 12 {
			all = append(all, message{"bus.a", "E", 103})
		}
		var query struct {
			Seq   int       `json:"seq"`
			Since time.Time `json:"start_time"`
			Next  string    `json:"next_by_subj"`
			Batch int       `json:"batch"`
		}
		if err := json.Unmarshal(m.Data, &query); err != nil {
			t.Error(err)
		}
		found := 0
		for i := max(query.Seq, 1) - 1; i < len(all) && found < query.Batch; i++ {
			if found == 0 && at(i).Before(query.Since) {
				continue
			}
			if query.Since = (time.Time{}); all[i].subject != query.Next {
				continue
			}
			found++
			_ = m.RespondMsg(&nats.Msg{Data: []byte(all[i].data), Header: nats.Header{
				natsjs.StreamHeader: {"AEE_BUS"}, natsjs.SubjectHeader: {all[i].subject}, natsjs.SequenceHeader: {strconv.Itoa(i + 1)},
				natsjs.TimeStampHeaer: {at(i).Format(time.RFC3339Nano)},
			}})
		}
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"204"}}})
	}); err != nil {
		t.Fatal(err)
	}
	if err := server.Flush(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	var got []string
	opts := replay.Options{Filters: map[string][]string{"AEE_BUS": {"bus.a"}}, Follow: true, Look: 5 * time.Millisecond}
	for m, err := range replay.Messages(ctx, connect(t, srv), opts) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, string(m.Data)); got[len(got)-1] == "E" {
			cancel()
		}
	}
	if want := []string{"A", "C", "E"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
