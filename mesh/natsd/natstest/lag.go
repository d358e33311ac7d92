package natstest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Lag answers the direct gets of a stream in place of the server, as the replicas of a cluster
// would. lags reports of the first, second, … get of the last message on a subject whether a
// replica answers it that does not have the message yet. A get of several messages finds none.
// Requests to the stream's leader are answered by the server.
func Lag(t testing.TB, nc *nats.Conn, stream string, lags func(get int) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.AllowDirect = false // only the answers below
	if s, err = js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	none := func(m *nats.Msg) { _ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}}}) }
	to, gets := "$JS.API.DIRECT.GET."+stream, 0
	for subj, answer := range map[string]nats.MsgHandler{
		to: none,
		to + ".>": func(m *nats.Msg) {
			gets++
			last, err := s.GetLastMsgForSubject(t.Context(), strings.TrimPrefix(m.Subject, to+"."))
			if err != nil || lags(gets) {
				none(m)
				return
			}
			h := nats.Header{
				natsjs.StreamHeader: {stream}, natsjs.SubjectHeader: {last.Subject}, natsjs.SequenceHeader: {strconv.FormatUint(last.Sequence, 10)},
				natsjs.TimeStampHeaer: {last.Time.UTC().Format(time.RFC3339Nano)},
			}
			for name, values := range last.Header {
				h[name] = values
			}
			_ = m.RespondMsg(&nats.Msg{Data: last.Data, Header: h})
		},
	} {
		sub, err := nc.Subscribe(subj, answer)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sub.Unsubscribe() })
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}
