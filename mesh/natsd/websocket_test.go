package natsd_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// Finding 14 of the security review: a page of any origin got the mesh.
func TestWebsocketsAreForTheOriginsThatAreAllowed(t *testing.T) {
	t.Parallel()
	const own, mine, evil = "own", "https://app.example", "https://evil.example"
	for _, tt := range []struct {
		name    string
		allowed []string
		status  map[string]int
	}{
		{"none", nil, map[string]int{"": 101, own: 101, mine: 403, evil: 403, "null": 403}},
		{"one", []string{mine}, map[string]int{"": 101, mine: 101, "https://app.example:443": 101, evil: 403, "http://app.example": 403, "https://app.example.evil.example": 403}},
		{"any", []string{natsd.AnyOrigin}, map[string]int{"": 101, own: 101, mine: 101, evil: 101}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, natsd.Config{Websocket: &natsd.Websocket{Port: natsd.RandomPort, NoTLS: true, AllowedOrigins: tt.allowed}})
			for origin, want := range tt.status {
				if origin == own {
					u, err := url.Parse(srv.WebsocketURL())
					if err != nil {
						t.Fatal(err)
					}
					origin = "http://" + u.Host
				}
				if got := natstest.Handshake(t, srv.WebsocketURL(), origin); got != want {
					t.Errorf("Origin %q: status %d, want %d", origin, got, want)
				}
			}
		})
	}
}

func TestOriginsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for _, origin := range []string{"", "app.example", "ftp://app.example", "https://", "https://app.example/path", "null"} {
		_, err := natsd.New(natsd.Config{Websocket: &natsd.Websocket{Port: natsd.RandomPort, NoTLS: true, AllowedOrigins: []string{origin}}})
		if err == nil || !strings.Contains(err.Error(), "must be a scheme and a host") {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
