package soak

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
)

// repeats simulates a network that delivers requests twice: every second request to the
// receiver, chosen at random, is repeated unchanged within two leases. That must not
// create a second run. Streams of replies are not repeated.
type repeats struct {
	next  http.Handler
	ctx   context.Context // ends the repeats
	lease time.Duration
	wait  sync.WaitGroup
}

// ServeHTTP passes a request on, once or twice.
func (r *repeats) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if strings.HasSuffix(req.URL.Path, "/replies") || rand.IntN(2) > 0 {
		r.next.ServeHTTP(w, req)
		return
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, 8<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	again := req.Clone(r.ctx)
	again.Body = io.NopCloser(bytes.NewReader(body))
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.wait.Go(func() {
		if pause.For(r.ctx, rand.N(2*r.lease)) {
			r.next.ServeHTTP(&unread{header: http.Header{}}, again)
		}
	})
	r.next.ServeHTTP(w, req)
}

// unread is a response that is discarded.
type unread struct{ header http.Header }

// Header returns the response's headers.
func (u *unread) Header() http.Header { return u.header }

// WriteHeader drops the status.
func (u *unread) WriteHeader(int) {}

// Write drops the body.
func (u *unread) Write(p []byte) (int, error) { return len(p), nil }
