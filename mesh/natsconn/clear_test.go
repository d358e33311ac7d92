package natsconn

import "testing"

// A connection without TLS to another machine is one in clear.
func TestLocalAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"": true, "pipe": true, "127.0.0.1:4222": true, "[::1]:4222": true,
		"10.0.0.7:4222": false, "[2001:db8::1]:4222": false, "nats.example:4222": false, "4222": false,
	} {
		if got := local(addr); got != want {
			t.Errorf("%q: %v, want %v", addr, got, want)
		}
	}
}
