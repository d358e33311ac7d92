package ack

import (
	"strings"
	"testing"
	"time"
)

func TestAckSubjects(t *testing.T) {
	t.Parallel()
	want := Subject{Stream: "S", Consumer: "C", Delivered: 2, Seq: 17, Pending: 4, Stored: time.Date(2026, 11, 21, 0, 51, 33, 621513917, time.UTC)}
	for _, s := range []string{
		"$JS.ACK.S.C.2.17.5.1795222293621513917.4",
		"$JS.ACK._.accounthash.S.C.2.17.5.1795222293621513917.4", // 2.14: with domain and account
		"$JS.ACK.hub.accounthash.S.C.2.17.5.1795222293621513917.4.random",
	} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "$JS.ACK.", "$JS.ACK.S.C.2.17.5.1.", "$JS.ACK.S.C.2.17.5.1", "$JS.ACK.S.C.2.17.5.x.4", "$JS.ACK.S.C.-2.17.5.1.4", "$JS.ACK.S..2.17.5.1.4",
		"$JS.ACK.S.C.2.17.5.1.4.5", "$JS.ACK.S.C.2.17.5.1.18446744073709551616", "$JS.ACK.a.b.S.C.2.17.5.1.4.r.r.r.r", "$JS.ACK.*.C.2.17.5.1.4", "$JS.API.S.C.2.17.5.1.4",
		"$JS.ACK.S C.D.2.17.5.1.4",
	} {
		if got, err := Parse(s); err == nil {
			t.Errorf("%q was read as %+v", s, got)
		}
	}
}

func FuzzAckSubject(f *testing.F) {
	f.Add("$JS.ACK.S.C.2.17.5.1795222293621513917.4")
	f.Add("$JS.ACK.hub.accounthash.S.C.2.17.5.1795222293621513917.4.random")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := Parse(s); err == nil && (!strings.HasPrefix(s, "$JS.ACK.") || strings.ContainsAny(s, " *>\r\n")) {
			t.Errorf("%q was read", s)
		}
	})
}
