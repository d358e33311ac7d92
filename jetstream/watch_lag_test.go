package jetstream_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A watch does not go back to what a replica has that lags behind: a revoked key would count again,
// and a new agent would be gone.
func TestWatchIsNotDeceivedByAReplicaThatLagsBehind(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	srv := natstest.Run(t, natsd.Config{})
	server := natstest.Conn(t, srv)
	began := time.Now().UTC()
	type message struct{ key, value string }
	var mu sync.Mutex
	all, lagging := []message{{"k", "old"}, {"k", "revoked"}, {"new", "1"}}, 0
	send := func(to string, seq int) {
		m := all[seq-1]
		_ = server.PublishMsg(&nats.Msg{Subject: to, Data: []byte(m.value), Header: nats.Header{
			natsjs.StreamHeader: {"KV_aee_keys"}, natsjs.SubjectHeader: {"$KV.aee_keys." + m.key}, natsjs.SequenceHeader: {strconv.Itoa(seq)},
			natsjs.TimeStampHeaer: {began.Add(time.Duration(seq) * time.Second).Format(time.RFC3339Nano)},
		}})
	}
	stored := func() int {
		if lagging > 0 {
			lagging--
			return 1
		}
		return len(all)
	}
	for subj, answer := range map[string]func(to string, end int){
		"$JS.API.DIRECT.GET.KV_aee_keys.>": send,
		"$JS.API.DIRECT.GET.KV_aee_keys": func(to string, end int) {
			for seq := 1; seq <= end; seq++ {
				if seq == end || all[seq-1].key != all[seq].key {
					send(to, seq)
				}
			}
			_ = server.PublishMsg(&nats.Msg{Subject: to, Header: nats.Header{"Status": {"204"}}})
		},
	} {
		if _, err := server.Subscribe(subj, func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			answer(m.Reply, stored())
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Flush(); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, jetstream.NewKeys(connect(t, srv), subject.Map{}))
	waitFor(t, "the records", w.is(map[string]string{"k": "revoked", "new": "1"}))
	mu.Lock()
	lagging = 3
	mu.Unlock()
	waitFor(t, "the replica", func() bool { mu.Lock(); defer mu.Unlock(); return lagging == 0 })
	mu.Lock()
	all = append(all, message{"last", "1"})
	mu.Unlock()
	waitFor(t, "the last record", w.is(map[string]string{"k": "revoked", "new": "1", "last": "1"}))
	w.mu.Lock()
	defer w.mu.Unlock()
	if want := []string{"k=revoked", "new=1", "last=1"}; !slices.Equal(w.said, want) {
		t.Errorf("said %q, want %q", w.said, want)
	}
}
