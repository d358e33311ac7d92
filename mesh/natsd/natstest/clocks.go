package natstest

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Suspended returns the time at which the machine's clocks are after it was suspended for d
// at t, a time of time.Now: its wall clock went on, its monotonic clock did not.
// A negative d is a wall clock that was set back.
func Suspended(t time.Time, d time.Duration) time.Time {
	out := t
	// While it has a monotonic reading, the first word of a time holds the seconds of the
	// wall clock from bit 30 on. No function changes it alone.
	*(*uint64)(unsafe.Pointer(&out)) += uint64(d/time.Second) << 30
	if out.Sub(t) != 0 || !out.Round(0).Equal(t.Round(0).Add(d.Truncate(time.Second))) {
		panic(fmt.Sprintf("natstest: this Go keeps times in another form: %v is %v after a suspension of %v", t, out, d))
	}
	return out
}

// ClockAhead returns a JetStream that answers nothing but what time it is: a clock made of it says
// that the server is ahead of this machine.
func ClockAhead(t testing.TB, srv *natsd.Server, ahead time.Duration) natsjs.JetStream {
	t.Helper()
	nc, prefix := Conn(t, srv), nats.NewInbox()
	if _, err := nc.Subscribe(prefix+".>", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"ts":"` + time.Now().Add(ahead).Format(time.RFC3339Nano) + `"}`))
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	js, err := natsjs.NewWithAPIPrefix(nc, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
