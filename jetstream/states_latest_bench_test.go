//go:build unix

package jetstream_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

var benchRuns = flag.Int("runs", 10_000, "of BenchmarkLatest: how many runs are stored")

// The first page of a list of runs, of all runs and of those in one status, in a mesh
// whose runs are mostly of one short step (one in fifty has documents), and in one where
// every run has three documents. A fifth of a per mille awaits approval, one per mille has failed.
func BenchmarkLatest(b *testing.B) {
	for name, documents := range map[string]int{"short": 50, "documents": 1} {
		b.Run(name, func(b *testing.B) {
			srv := natstest.Run(b, natsd.Config{JetStream: true, MaxStore: 30 << 30})
			js, err := natsjs.New(natstest.Conn(b, srv), natsjs.WithPublishAsyncMaxPending(2000))
			if err != nil {
				b.Fatal(err)
			}
			apply(b, js, jetstream.Options{Only: states, Limits: map[string]jetstream.Limits{jetstream.BucketState: {MaxBytes: -1}}})
			fillRuns(b, js, *benchRuns, documents)
			s := jetstream.NewStates(js, subject.Map{})
			for _, status := range []aaif.RunStatus{"", aaif.RunAwaitingApproval, aaif.RunFailed, aaif.RunRunning} {
				b.Run("status="+string(status), func(b *testing.B) {
					began := cpuTime(b)
					defer func() { b.ReportMetric(float64((cpuTime(b)-began).Milliseconds())/float64(b.N), "cpu-ms/op") }()
					for b.Loop() {
						n := 0
						for _, err := range s.Latest(b.Context(), "", func(s aaif.RunStatus) bool { return status == "" || s == status }) {
							if err != nil {
								b.Fatal(err)
							}
							if n++; n == 50 {
								break
							}
						}
					}
				})
			}
		})
	}
}

// cpuTime is what this process has used, the server included.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fillRuns stores n runs of 50 agents. One run of so many has documents, of 2 KB.
func fillRuns(b *testing.B, js natsjs.JetStream, n, documents int) {
	b.Helper()
	seq := 0
	publish := func(subj, key string, over int, data []byte, h nats.Header) int {
		h.Set(natsjs.ExpectedStreamHeader, "KV_aee_state")
		h.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.Itoa(over))
		h.Set(natsjs.ExpectedLastSubjSeqSubjHeader, "$KV.*."+key)
		if _, err := js.PublishMsgAsync(&nats.Msg{Subject: subj + key, Data: data, Header: h}, natsjs.WithStallWait(time.Minute)); err != nil {
			b.Fatal(err)
		}
		seq++
		return seq
	}
	memory, reply := bytes.Repeat([]byte("x"), 1200), bytes.Repeat([]byte("y"), 450)
	for i := range n {
		task := fmt.Sprint("task", i)
		c := state.New(fmt.Sprintf("agent.a%d", i%50), task, "")
		c.Mesh.Task = []byte(`{"payload":"` + string(memory) + `"}`)
		key := jetstream.StateKey(c.ID())
		status, of, over := aaif.RunCompleted, 0, 0
		if i%documents == 0 {
			of = 3
		}
		switch {
		case i%5003 == 17:
			status, of = aaif.RunAwaitingApproval, 2
		case i%1009 == 23:
			status, of = aaif.RunFailed, 2
		case i%20011 == 29:
			status, of = aaif.RunRunning, 2
		}
		for d := range of {
			if c.Doc.Status = aaif.RunRunning; d == of-1 {
				c.Doc.Status = status
			}
			data, err := state.Codec{}.Encode(c)
			if err != nil {
				b.Fatal(err)
			}
			over = publish("$KV.aee_state.", key, over, data, nats.Header{
				jetstream.HeaderStatus: {string(c.Doc.Status)}, jetstream.HeaderWork: {strconv.Itoa(i + 1)},
				jetstream.HeaderCorr: {jetstream.CorrDigest("corr of " + task)},
			})
		}
		if !state.Terminal(status) {
			continue
		}
		h := nats.Header{jetstream.HeaderStatus: {string(status)}, jetstream.HeaderWork: {strconv.Itoa(i + 1)}}
		if of == 0 {
			end, err := json.Marshal(state.End{TaskID: task, Epoch: 1})
			if err != nil {
				b.Fatal(err)
			}
			h.Set(jetstream.HeaderEnd, string(end))
		}
		publish("$KV.aee_reply.", key, over, reply, h)
	}
	<-js.PublishAsyncComplete()
	stream, err := js.Stream(b.Context(), "KV_aee_state")
	if err != nil {
		b.Fatal(err)
	}
	if have := stream.CachedInfo().State; have.Msgs != uint64(seq) {
		b.Fatalf("%d of %d messages are stored", have.Msgs, seq)
	}
	b.Logf("%d runs: %d messages, %d MiB", n, seq, stream.CachedInfo().State.Bytes>>20)
}
