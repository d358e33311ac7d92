package chunks

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/jetstream/internal/api"
)

// A replica that lags behind may have a part of an object. That the object is moved, and then
// deleted, is decided by what the leader has.
func TestAnObjectIsMovedThoughAReplicaLagsBehind(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx, nc := t.Context(), s.js.Conn()
	const name = "agent_a.run1/t1"
	data := bytes.Repeat([]byte("0123456789abcdef"), Size/8) // two chunks
	meta, err := json.Marshal(natsjs.ObjectInfo{ObjectMeta: natsjs.ObjectMeta{Name: name}, Size: uint64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	const chunks = "$O.documents.C.t1"
	for _, m := range []nats.Msg{{Subject: chunks, Data: data[:Size]}, {Subject: chunks, Data: data[Size:]}, {Subject: "$O.documents.M.x", Data: meta}} {
		if _, err := s.js.PublishMsg(ctx, &m); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := s.js.Stream(ctx, s.Stream())
	if err != nil {
		t.Fatal(err)
	}
	// The replica answers in place of the server. It has all but the second chunk.
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = false
	if stream, err = s.js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	sub, err := nc.Subscribe("$JS.API.DIRECT.GET."+s.Stream(), func(m *nats.Msg) {
		var query struct {
			Seq  uint64 `json:"seq"`
			Next string `json:"next_by_subj"`
		}
		if err := json.Unmarshal(m.Data, &query); err != nil {
			t.Error(err)
		}
		stored, err := stream.GetMsg(ctx, max(1, query.Seq), natsjs.WithGetMsgSubject(query.Next))
		if err != nil || stored.Sequence == 2 {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}})
			return
		}
		for _, answer := range []*nats.Msg{{Data: stored.Data, Header: nats.Header{
			natsjs.StreamHeader: {s.Stream()}, natsjs.SubjectHeader: {stored.Subject}, natsjs.SequenceHeader: {strconv.FormatUint(stored.Sequence, 10)},
			natsjs.TimeStampHeaer: {stored.Time.UTC().Format(time.RFC3339Nano)},
		}}, {Header: nats.Header{"Status": {"204"}, "Nats-Num-Pending": {"0"}}}} {
			_ = m.RespondMsg(answer)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Move(ctx); err != nil {
		t.Fatal(err)
	}
	_ = sub.Unsubscribe()
	cfg.AllowDirect = true
	if _, err := s.js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(ctx, Object(name, data)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("moved: %d bytes of %d, %v", len(got), len(data), err)
	}
	subjects, err := api.Subjects(ctx, s.js, s.Stream(), "$O.documents.>")
	for subj := range subjects {
		if !strings.HasPrefix(subj, "$O.documents.C.agent_a.run1.t1.") {
			t.Errorf("left: %s", subj)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
