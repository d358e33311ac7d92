package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope/pause"
)

// A call is one external effect: one line of the effect log. A service in the soak's own
// process keeps the log. No fault touches it: an effect in the log has happened.
type call struct {
	N     int       `json:"n"`   // the order of all calls, from 1
	Key   string    `json:"key"` // the idempotency key
	Run   string    `json:"run"`
	Epoch uint64    `json:"epoch"` // of the owner that called
	Step  int       `json:"step"`  // its place in the chain, from 0
	Once  bool      `json:"once"`  // by a tool that is not safe to repeat
	At    time.Time `json:"at"`
	From  string    `json:"from,omitempty"` // the system of the worker that called; "" for a program

	// Receipt is the answer to the caller: the number of the first call with the same
	// key, as a service answers that supports idempotency keys.
	Receipt int `json:"receipt"`
}

// effects is the service and its log.
type effects struct {
	srv  *http.Server
	addr string
	wait sync.WaitGroup

	// delay is how long one call takes.
	delay func() time.Duration

	mu    sync.Mutex
	n     int
	first map[string]int // by key
	byRun map[string][]call
	log   *os.File
}

func newEffects(log *os.File, delay func() time.Duration) (*effects, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &effects{addr: l.Addr().String(), delay: delay, first: map[string]int{}, byRun: map[string][]call{}, log: log}
	e.srv = &http.Server{Handler: e, ReadHeaderTimeout: 10 * time.Second}
	e.wait.Go(func() { e.srv.Serve(l) })
	return e, nil
}

func (e *effects) close() {
	e.srv.Close()
	e.wait.Wait()
}

// ServeHTTP records a call, waits for its delay, and answers with the receipt.
func (e *effects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&c); err != nil || c.Key == "" {
		http.Error(w, "not a call", http.StatusBadRequest)
		return
	}
	c = e.note(c)
	pause.For(r.Context(), e.delay())
	json.NewEncoder(w).Encode(c)
}

// note records a call: from then on it has happened.
func (e *effects) note(c call) call {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n++
	c.N, c.At = e.n, time.Now()
	if e.first[c.Key] == 0 {
		e.first[c.Key] = c.N
	}
	c.Receipt = e.first[c.Key]
	e.byRun[c.Run] = append(e.byRun[c.Run], c)
	if e.log != nil {
		json.NewEncoder(e.log).Encode(c)
	}
	return c
}

// of returns the calls of a run so far.
func (e *effects) of(run string) []call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]call(nil), e.byRun[run]...)
}

// forget drops the calls of a run that has been judged.
func (e *effects) forget(run string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.byRun[run] {
		delete(e.first, c.Key)
	}
	delete(e.byRun, run)
}

// cause is called by the worker: it has one effect.
func cause(ctx context.Context, addr string, c call) (receipt int, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	// net/http resends a request by itself only if it can read the body again, so this
	// body cannot be read again: the log would show a second effect.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the effect log answered %s", res.Status)
	}
	var done call
	if err := json.NewDecoder(res.Body).Decode(&done); err != nil {
		return 0, err
	}
	return done.Receipt, nil
}
