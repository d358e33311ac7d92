package jetstream_test

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/nats-io/nats.go"
)

// A key that stateID accepts is the key of the run that it returns.
func FuzzStateID(f *testing.F) {
	for _, s := range []string{"agent.x.6ba7b810-9dad-11d1-80b4-00c04fd430c8", "agent.gr=C3=B6=C3=9Fe.a=2Eb", "agent.x", "agent..x", "agent.=", "agent.x.=", "=24JS.x.y", "a.b._x", "..."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		id, err := jetstream.StateID(key)
		if err != nil {
			return
		}
		if back := jetstream.StateKey(id); back != key {
			t.Fatalf("%q is %+v, whose key is %q", key, id, back)
		}
		if err := id.Validate(); err != nil {
			t.Fatalf("%q is %+v: %v", key, id, err)
		}
	})
}

// An answer of a server is decoded or refused; a decoded message has the answer's data.
func FuzzReadMessage(f *testing.F) {
	for _, s := range []string{
		`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{"subject":"$KV.aee_state.agent.x.r","seq":7,"hdrs":"TkFUUy8xLjANCkE6IGINCg0K","data":"eA==","time":"2026-11-20T10:00:00.000000001Z"}}`,
		`{"type":"x","error":{"code":404,"err_code":10037,"description":"no message found"}}`,
		`{"message":{"subject":"\"data\":\"eA==","seq":1}}`, `{"message":{"data":"`, `{"message":{"data":"!"}}`, `{"data":""}`, ``, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		before := string(answer)
		m, err := jetstream.ReadMessage(answer)
		if string(answer) != before {
			t.Fatal("the answer was written to")
		}
		if err == nil && len(m.Data) > 0 && !strings.Contains(before, `"data":"`) {
			t.Fatalf("%q has the data %q", before, m.Data)
		}
	})
}

// Any publisher can set headers: a reference is complete, or ignored.
func FuzzObjectOf(f *testing.F) {
	for _, s := range []string{"sha256:00 12 agent.x.r/ABC", "", "x", "a -1 b", "a 1 ", " 1 x", "a 9999999999999999999 b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		o, ok := jetstream.ObjectOf(nats.Header{jetstream.HeaderObject: {header}})
		if ok && (o.Size < 0 || o.Name == "" || o.Digest == "") {
			t.Fatalf("%q is %+v", header, o)
		}
	})
}
