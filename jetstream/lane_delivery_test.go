package jetstream_test

import (
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
)

func TestAckSubjects(t *testing.T) {
	t.Parallel()
	const want = "S C 2 17 4 2026-11-21T00:51:33.621513917Z"
	for _, s := range []string{
		"$JS.ACK.S.C.2.17.5.1795222293621513917.4",
		"$JS.ACK._.accounthash.S.C.2.17.5.1795222293621513917.4", // 2.14: with domain and account
		"$JS.ACK.hub.accounthash.S.C.2.17.5.1795222293621513917.4.random",
	} {
		if got, err := jetstream.ParseAck(s); err != nil || got != want {
			t.Errorf("%s: %s, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "$JS.ACK.", "$JS.ACK.S.C.2.17.5.1.", "$JS.ACK.S.C.2.17.5.1", "$JS.ACK.S.C.2.17.5.x.4", "$JS.ACK.S.C.-2.17.5.1.4", "$JS.ACK.S..2.17.5.1.4",
		"$JS.ACK.S.C.2.17.5.1.4.5", "$JS.ACK.S.C.2.17.5.1.18446744073709551616", "$JS.ACK.a.b.S.C.2.17.5.1.4.r.r.r.r", "$JS.ACK.*.C.2.17.5.1.4", "$JS.API.S.C.2.17.5.1.4",
		"$JS.ACK.S C.D.2.17.5.1.4",
	} {
		if got, err := jetstream.ParseAck(s); err == nil {
			t.Errorf("%q was read as %s", s, got)
		}
	}
}

func FuzzAckSubject(f *testing.F) {
	f.Add("$JS.ACK.S.C.2.17.5.1795222293621513917.4")
	f.Add("$JS.ACK.hub.accounthash.S.C.2.17.5.1795222293621513917.4.random")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := jetstream.ParseAck(s); err == nil && (!strings.HasPrefix(s, "$JS.ACK.") || strings.ContainsAny(s, " *>\r\n")) {
			t.Errorf("%q was read", s)
		}
	})
}
