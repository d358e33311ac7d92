package aimocktest

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"sync"
	"testing"
)

// Request is a request as the adapter sent it.
type Request struct {
	Method string
	URI    string // path and query, as sent
	Header http.Header
	Body   []byte
}

// recorder is a proxy before aimock. It stores requests, and adds the stage to
// them. aimock's own journal has requests in another form.
type recorder struct {
	url      string
	mu       sync.Mutex
	requests []Request
}

func newRecorder(t testing.TB, s *Server, stage string) *recorder {
	r := &recorder{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(s.url)
			p.Out.Header.Set("X-AIMock-Context", stage)
			p.Out.Header.Set("X-AIMock-Strict", "true") // a missing turn is an error; aimock must not invent an answer
		},
		Transport:     s.client.Transport,
		FlushInterval: -1, // flush at once, so that streams are streamed
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, "cannot read the request", http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		r.requests = append(r.requests, Request{Method: req.Method, URI: req.RequestURI, Header: req.Header.Clone(), Body: bytes.Clone(body)})
		r.mu.Unlock()
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.ContentLength = int64(len(body))
		req.TransferEncoding = nil
		proxy.ServeHTTP(w, req)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

func (r *recorder) all() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}
