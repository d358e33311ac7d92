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

// Check is a condition for the process to be ready.
type Check struct {
	Name   string         `json:"name"`
	OK     bool           `json:"ok"`
	Why    string         `json:"why,omitempty"` // the reason, if the check failed or is degraded
	Detail map[string]any `json:"detail,omitempty"`
}

// Report is the answer of /readyz.
type Report struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

// Alive is the answer of /healthz.
type Alive struct {
	Status  string    `json:"status"` // "alive"
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// Config holds the data of a [Server]'s answers.
type Config struct {
	Alive   Alive
	Checks  func() []Check // called for each request, possibly by several goroutines; it must not block
	Metrics http.Handler   // nil: /metrics does not exist
	Logger  *slog.Logger
}

// Server serves on one address.
type Server struct {
	listener net.Listener
	server   *http.Server
	done     chan error
}

// Listen opens the address and starts serving.
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

// URL is the server's URL.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Close stops the server. Requests that have begun are answered, within a
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

// ReportOf summarises checks: the process is ready if all pass.
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
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}
