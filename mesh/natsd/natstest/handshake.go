package natstest

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Handshake does a websocket's handshake with this Origin ("" for none), and returns the status.
func Handshake(t testing.TB, ws, origin string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(ws, "ws://", "http://", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
