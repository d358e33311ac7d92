package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Check is one thing that has to hold for the process to be ready.
type Check struct {
	Name   string         `json:"name"`
	OK     bool           `json:"ok"`
	Why    string         `json:"why,omitempty"` // in words, where it does not hold or not well
	Detail map[string]any `json:"detail,omitempty"`
}

// Report is what /readyz answers.
type Report struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

// Alive is what /healthz answers.
type Alive struct {
	Status  string    `json:"status"` // "alive"
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// Config is what a [Server] answers with.
type Config struct {
	Alive   Alive
	Checks  func() []Check // called for each request, from several goroutines; it must return at once
	Metrics http.Handler   // nil: there is no /metrics
	Logger  *slog.Logger
}

// Server answers on one address.
type Server struct {
	listener net.Listener
	server   *http.Server
	done     chan error
}

// Listen opens the address and answers from then on.
func Listen(addr string, cfg Config) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	s := &Server{listener: l, done: make(chan error, 1), server: &http.Server{
		Handler:           handler(cfg),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}}
	go func() { s.done <- s.server.Serve(l) }()
	return s, nil
}

// URL is where the server answers.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Close stops it, after requests that have begun have been answered, within a
// second.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.server.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func handler(cfg Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, cfg.Alive)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := ReportOf(cfg.Checks())
		status := http.StatusOK
		if !r.Ready {
			status = http.StatusServiceUnavailable
		}
		answer(w, status, r)
	})
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
	return mux
}

// ReportOf sums checks up: all of them must hold.
func ReportOf(checks []Check) Report {
	r := Report{Ready: true, Checks: checks}
	for _, c := range checks {
		r.Ready = r.Ready && c.OK
	}
	return r
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who asked is gone
}
