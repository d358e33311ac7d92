package adapters

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/aeemesh/aeemesh/agents"
)

// A document cannot make the worker send requests into the operator's own
// network: neither by a name that resolves to an internal address, nor by a
// redirect of an external server.
func TestDocumentsDoNotPointInsideByName(t *testing.T) {
	t.Parallel()
	var inside atomic.Int32
	var port string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/redirect/") {
			http.Redirect(w, r, "http://inside.example:"+port+"/v1", http.StatusTemporaryRedirect)
			return
		}
		inside.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(completion))
	}))
	t.Cleanup(srv.Close)
	_, port, _ = net.SplitHostPort(srv.Listener.Addr().String())
	name := "http://inside.example:" + port
	resolver := loopbackNames(t)
	for _, api := range []API{APIOpenAI, APIAnthropic, APIGoogle} {
		for what, c := range map[string]struct {
			base           string
			allow, private []string
			reached        bool
		}{
			"by its name":                   {base: name},
			"by its name, the address only": {base: name, private: []string{"127.0.0.1"}},
			"by its name, the name only":    {base: name, allow: []string{name}},
			"by a redirect":                 {base: srv.URL + "/redirect", allow: []string{srv.URL}},
			"the name and the address":      {base: name, allow: []string{name}, private: []string{"inside.example"}, reached: true},
			"the literal address":           {base: srv.URL, allow: []string{srv.URL}, reached: true},
		} {
			var cfg Config
			cfg.Models.Providers = map[string]Provider{"lab": {API: api}}
			cfg.Outbound.Allow, cfg.Outbound.Private, cfg.Outbound.Resolver = c.allow, c.private, resolver
			s, err := New(cfg, Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			m, _, err := s.Model(definition(t, `"provider": "custom", "provider_id": "lab", "preferred": "m", "base_url": "`+c.base+`"`), agents.Options{})
			if err != nil {
				t.Fatal(err)
			}
			before := inside.Load()
			_, err = m.Generate(t.Context(), hello(), nil)
			if reached := inside.Load() > before; reached != c.reached || !reached && err == nil {
				t.Errorf("%s, %s: reached %v, %v", api, what, reached, err)
			}
		}
	}
}

// loopbackNames resolves every name to 127.0.0.1, over real DNS.
func loopbackNames(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-ended })
	go func() {
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) == 0 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}
