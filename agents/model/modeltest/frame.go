package modeltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
)

// hi is a request that every model can answer.
var hi = &model.Request{Model: "m", Messages: []model.Message{model.User("hi")}}

// Serve starts a server for a test, and returns its URL.
func Serve(t *testing.T, h http.Handler) string {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// A Frame tests what all adapters of protocols over HTTP have in common, beside [Run]: servers that
// cannot be reached, are slow or redirect, keys, and wrong addresses.
type Frame struct {
	// New makes an adapter for a server. A timeout of 0, and a key that is nil, stand for the
	// adapter's defaults and for the key that HasKey finds.
	New func(t *testing.T, url string, timeout time.Duration, key func(context.Context) (string, error)) model.Model
	// Double starts a server that plays turns.
	Double func(t *testing.T, turns ...Turn) *httptest.Server
	// Fine is the body of a good answer, Path the beginning of the paths of requests.
	Fine, Path string
	// Server is what errors call a server at 127.0.0.1. Default: its address.
	Server string
	// HasKey reports whether a text contains the key, or a part of it.
	HasKey func(text string) bool
	// Sent returns the key in the headers of a request; nil: keys are not compared.
	Sent func(http.Header) string
	// Refused makes an adapter with a wrong address, and returns the error, which says Rest, too; nil:
	// addresses are not tested.
	Refused func(url string) error
	Rest    []string
}

// Run runs the tests.
func (f Frame) Run(t *testing.T) {
	tests := map[string]func(*testing.T){"unreachable": f.unreachable, "timeout": f.timeout, "origin": f.origin}
	if f.Sent != nil {
		tests["key"] = f.key
	}
	if f.Refused != nil {
		tests["address"] = f.address
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func (f Frame) unreachable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	_, err := f.New(t, srv.URL, 0, nil).Generate(t.Context(), hi, nil)
	want := "cannot reach 127.0.0.1: "
	if f.Server != "" {
		want = "cannot reach " + f.Server + ": "
	}
	if !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), want) || f.HasKey(err.Error()) || strings.Contains(err.Error(), f.Path) {
		t.Errorf("error %v", err)
	}
}

func (f Frame) timeout(t *testing.T) {
	m := f.New(t, f.Double(t, Turn{Hang: true, Text: "it began "}).URL, 30*time.Millisecond, nil)
	for _, onDelta := range []func(model.Delta) error{nil, func(model.Delta) error { return nil }} {
		_, err := m.Generate(t.Context(), hi, onDelta)
		var e *model.Error
		if !errors.Is(err, model.ErrUnavailable) || !errors.As(err, &e) || e.Message != "no complete answer within 30ms" {
			t.Errorf("error %v", err)
		}
	}
}

// The request and its key stay at the origin of the address.
func (f Frame) origin(t *testing.T) {
	elsewhere := &recorder{body: f.Fine}
	url := Serve(t, elsewhere)
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusFound} {
		_, err := f.New(t, Serve(t, http.RedirectHandler(url+f.Path, status)), 0, nil).Generate(t.Context(), hi, nil)
		if !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "redirect") || f.HasKey(err.Error()) {
			t.Errorf("HTTP %d: error %v", status, err)
		}
	}
	if sent := elsewhere.all(); len(sent) != 0 {
		t.Errorf("the request went elsewhere: %v", sent)
	}
}

// The key is read at each call.
func (f Frame) key(t *testing.T) {
	server := &recorder{body: f.Fine}
	key := ""
	var keyErr error
	m := f.New(t, Serve(t, server), 0, func(context.Context) (string, error) { return key, keyErr })
	keys := []string{"first", "second", ""}
	for _, key = range keys {
		if _, err := m.Generate(t.Context(), hi, nil); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, h := range server.all() {
		got = append(got, f.Sent(h))
	}
	if !slices.Equal(got, keys) {
		t.Errorf("sent %q, want %q", got, keys)
	}
	keyErr = errors.New("environment variable LLM_KEY is not set")
	_, err := m.Generate(t.Context(), hi, nil)
	if !errors.Is(err, model.ErrAuth) || !errors.Is(err, keyErr) || !strings.Contains(err.Error(), "LLM_KEY") || len(server.all()) != 3 {
		t.Errorf("error %v after %d requests", err, len(server.all()))
	}
	keyErr = fmt.Errorf("read it: %w", &model.Error{Kind: model.ErrUnavailable, Message: "the vault does not answer"})
	var failed *model.Error
	if _, err := m.Generate(t.Context(), hi, nil); !errors.As(err, &failed) || failed.Kind != model.ErrUnavailable || len(server.all()) != 3 {
		t.Errorf("a key that cannot be read now: error %v after %d requests", err, len(server.all()))
	}
}

func (f Frame) address(t *testing.T) {
	for base, want := range map[string]string{
		"ftp://x/v1":                "want http:// or https://",
		"localhost:11434/v1":        "want http:// or https://",
		"http://":                   "and a host",
		"http://u:" + "secret@h/v1": "no user",
		"http://h/v1?key=secret":    "no user, query",
		"http://h:secret:port/v1":   "not a URL",
	} {
		err := f.Refused(base)
		for _, want := range append(slices.Clone(f.Rest), want) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one that says %q", base, err, want)
			}
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the URL: %v", base, err)
		}
	}
}

// recorder gives one answer, and records the headers of requests.
type recorder struct {
	body string
	mu   sync.Mutex
	got  []http.Header
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.got = append(r.got, req.Header.Clone())
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, r.body) // the client has gone, or gets it
}

func (r *recorder) all() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}
