package natsd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ErrClosed is returned by Start on a server that was started or closed before.
var ErrClosed = errors.New("nats server was started or closed before")

// A Server is one embedded nats-server.
type Server struct {
	cfg Config

	log *logger
	up  atomic.Pointer[running] // nil until started

	mu    sync.Mutex // held for all of Start and of Close
	spent bool       // started or closed
	srv   embedded
	lock  *os.File
}

// embedded has the methods of a *server.Server that this package uses. If [Server] had fields or
// methods with types of nats-server, each package that uses it would compile nats-server's generic
// types again: 70 kB of code, a fifth of a second.
type embedded interface {
	Name() string
	ClientURL() string
	WebsocketURL() string
	MonitorAddr() *net.TCPAddr
	InProcessConn() (net.Conn, error)
	Shutdown()
	WaitForShutdown()
}

// running is what is known of a server once it has started. It stays after
// Close, so that a test can start another one in its place.
type running struct {
	srv                       embedded
	cfg                       Config // with the ports that were chosen
	name, client, ws, monitor string
	storeDir                  string
	syncAlways                bool
	syncInterval              time.Duration
}

// New checks the configuration and reports all its problems at once. It does no
// I/O.
func New(cfg Config) (*Server, error) {
	if err := cfg.problems(); err != nil {
		return nil, fmt.Errorf("nats server configuration: %w", err)
	}
	return &Server{cfg: cfg, log: newLogger(cfg.Logger)}, nil
}

// startTimeout bounds [Server.Start] if its context has no deadline. Opening a large store takes
// long.
const startTimeout = 30 * time.Second

// Start starts the server and returns when it accepts connections. When it
// fails nothing is left running. A server starts once.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spent {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("start nats server: %w", err)
	}
	s.spent = true
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.start(ctx); err != nil {
		s.close()
		return fmt.Errorf("start nats server: %w", err)
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	opts, err := options(&s.cfg)
	if err != nil {
		return err
	}
	if opts.JetStream {
		if s.lock, err = lockStore(opts.StoreDir); err != nil {
			return err
		}
	}
	asked := opts.Clone() // nats-server writes the ports that the system chose into opts
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.srv = srv
	srv.SetLoggerV2(s.log, s.log.debug(), false, false)

	// Server.Start returns once the listeners are open, or after a fatal word.
	started := make(chan struct{})
	go func() {
		srv.Start()
		close(started)
	}()
	select {
	case <-started:
	case <-ctx.Done():
		srv.Shutdown()
		<-started
		return fmt.Errorf("not ready: %w", context.Cause(ctx))
	}
	select {
	case err := <-s.log.fatal:
		return explain(srv, asked, err)
	default:
	}
	s.up.Store(describe(srv, s.cfg, opts))
	return nil
}

// explain adds the cause to a fatal error about a port, which nats-server reports as text, so that
// errors.Is(err, syscall.EADDRINUSE) holds. opts has the configured ports: a port that the system
// chose was free then, and another process may use it by now.
func explain(srv *server.Server, opts *server.Options, fatal error) error {
	ports := []struct {
		what, host string
		port       int
	}{
		{"listen for clients", opts.Host, opts.Port},
		{"listen for websockets", opts.Websocket.Host, opts.Websocket.Port},
		{"listen for monitoring", opts.HTTPHost, opts.HTTPPort},
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	for _, p := range ports {
		if p.port <= 0 || opts.DontListen && p.what == ports[0].what {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(p.host, strconv.Itoa(p.port)))
		if err != nil {
			return fmt.Errorf("%s: %w", p.what, err)
		}
		l.Close()
	}
	return fatal
}

// Close stops the server and returns when it is down. Calling it again does
// nothing.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent = true
	s.close()
}

func (s *Server) close() {
	if s.srv != nil {
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
	}
	if s.lock != nil {
		_ = unlock(s.lock) // it ends with the process at the latest
		s.lock = nil
	}
}

// describe notes what the listeners and the configuration file made of the
// configuration.
func describe(srv *server.Server, cfg Config, opts *server.Options) *running {
	r := &running{srv: srv, cfg: cfg, name: srv.Name()}
	if !opts.DontListen {
		r.client = reachable(srv.ClientURL())
		fixPort(&r.cfg.Port, r.client)
	}
	if opts.Websocket.Port != 0 {
		r.ws = reachable(srv.WebsocketURL())
		if cfg.Websocket != nil {
			w := *cfg.Websocket
			fixPort(&w.Port, r.ws)
			r.cfg.Websocket = &w
		}
	}
	if a := srv.MonitorAddr(); a != nil {
		r.monitor = reachable("http://" + net.JoinHostPort(opts.HTTPHost, strconv.Itoa(a.Port)))
		fixPort(&r.cfg.MonitorPort, r.monitor)
	}
	if opts.JetStream {
		r.storeDir, r.syncAlways = opts.StoreDir, opts.SyncAlways
		if !opts.SyncAlways {
			r.syncInterval = opts.SyncInterval
		}
	}
	return r
}

// reachable replaces the address that means "all addresses", to which clients cannot
// connect, with this machine's own.
func reachable(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return u.String()
}

func fixPort(port *int, raw string) {
	if *port != RandomPort {
		return
	}
	if u, err := url.Parse(raw); err == nil {
		if p, err := strconv.Atoi(u.Port()); err == nil {
			*port = p
		}
	}
}

// started is what is known of the server; before Start, nothing.
func (s *Server) started() *running {
	if r := s.up.Load(); r != nil {
		return r
	}
	return &running{cfg: s.cfg}
}

// ClientURL is where clients connect: nats://127.0.0.1:4222, or tls://… . It is
// empty before Start, and when the server is in process only.
func (s *Server) ClientURL() string { return s.started().client }

// WebsocketURL is where websocket clients connect, or empty.
func (s *Server) WebsocketURL() string { return s.started().ws }

// MonitorURL is where nats-server's monitoring is served, or empty.
func (s *Server) MonitorURL() string { return s.started().monitor }

// Name is the server's name, given or made up. It is empty before Start.
func (s *Server) Name() string { return s.started().name }

// StoreDir is JetStream's store directory. It is empty before Start and
// without JetStream.
func (s *Server) StoreDir() string { return s.started().storeDir }

// SyncClass says when stored messages reach the disk: always before they are
// acknowledged, or every interval. Both are zero without JetStream.
func (s *Server) SyncClass() (always bool, interval time.Duration) {
	r := s.started()
	return r.syncAlways, r.syncInterval
}

// Config is the configuration with the ports that were chosen at random, so
// that a server can be started again where clients look for it.
func (s *Server) Config() Config { return s.started().cfg }

// InProcess is a client's option to connect without the network:
//
//	nats.Connect("", srv.InProcess())
//
// Such a connection is subject to the same authorization as any other.
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s) }

// InProcessConn makes one connection; it is what [nats.InProcessServer] asks
// for.
func (s *Server) InProcessConn() (net.Conn, error) {
	srv := s.started().srv
	if srv == nil {
		return nil, errors.New("nats server is not started")
	}
	return srv.InProcessConn()
}
