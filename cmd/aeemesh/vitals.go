package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/health"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/sdnotify"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// vitals report the state of the process: to a service manager by sd_notify,
// and to orchestrators and monitoring over HTTP.
type vitals struct {
	app     *session.App
	listen  string
	metrics *health.Metrics // nil: no metrics are collected
	notify  sdnotify.Notifier
	checks  atomic.Pointer[func() []health.Check]
	server  *health.Server
	stop    chan struct{} // closed to stop reporting to the watchdog
	wait    sync.WaitGroup
}

// processStarted is when this process started.
var processStarted = time.Now().UTC()

func (p *vitals) add(flags *pflag.FlagSet) {
	flags.StringVar(&p.listen, "health-listen", "", "serve /healthz, /readyz and /metrics (Prometheus) over HTTP on this `address`, such as 127.0.0.1:8223; port 0 takes a free one (default none)")
	session.BindEnv(flags, "health-listen", "AEEMESH_HEALTH_LISTEN")
}

// begin opens the address, so that the process can be probed from its start; it
// is not ready then. The caller ends the process if begin fails.
func (p *vitals) begin(a *session.App) error {
	p.app, p.notify, p.stop = a, sdnotify.New(a.Env, os.Getpid()), make(chan struct{})
	p.look(func() []health.Check { return []health.Check{{Name: "nats", Why: "not connected yet"}} })
	a.AwaitsKeys = func(conn *nats.Conn) {
		p.look(func() []health.Check {
			return []health.Check{health.Check(worker.CheckConn(conn)), {Name: "keys", Why: "waiting for the mesh's shared keys: nothing is served until they are read"}}
		})
	}
	p.wait.Go(func() { p.notify.Watch(p.stop, func() { p.report() }) })
	if p.listen == "" {
		return nil
	}
	var err error
	if p.metrics, err = health.NewMetrics(version()); err != nil {
		return err
	}
	p.server, err = health.Listen(p.listen, health.Config{
		Alive:  health.Alive{Status: "alive", Version: version(), PID: os.Getpid(), Started: processStarted},
		Checks: func() []health.Check { return p.report().Checks }, Metrics: p.metrics.Handler(), Logger: a.Log,
	})
	if err != nil {
		return err
	}
	a.Term.Tell(term.Event{Msg: "health", Attrs: []any{"url", p.server.URL()}, Style: term.StyleFaint}, "health checks on %s", p.server.URL())
	return nil
}

// readers returns the readers of the process's metrics, beside collectors.
func (p *vitals) readers() []sdkmetric.Reader {
	if p.metrics == nil {
		return nil
	}
	return []sdkmetric.Reader{p.metrics.Reader()}
}

// look sets the checks that apply from now on.
func (p *vitals) look(checks func() []health.Check) { p.checks.Store(&checks) }

func (p *vitals) report() health.Report { return health.ReportOf((*p.checks.Load())()) }

// tell reports to the service manager, if there is one.
func (p *vitals) tell(states ...string) {
	if err := p.notify.Tell(states...); err != nil {
		p.app.Log.Warn("service manager not notified", "err", err)
	}
}

// serves reports that the process is ready and what it serves.
func (p *vitals) serves(what string) { p.tell(sdnotify.Ready, sdnotify.Status("serving %s", what)) }

// ends reports that the process stops, within at most the given time.
func (p *vitals) ends(within time.Duration) {
	p.tell(sdnotify.Stopping, sdnotify.Extend(within+10*time.Second), sdnotify.Status("draining"))
}

func (p *vitals) end() {
	close(p.stop)
	p.wait.Wait()
	if p.server == nil {
		return
	}
	if err := p.server.Close(); err != nil {
		p.app.Log.Warn("health checks not closed", "err", err)
	}
}

// healthURL is the address of a process on this machine that was started with
// --health-listen.
func healthURL(listen, path string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 {
		return "", fmt.Errorf("port %q cannot be asked", port)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + path, nil
}

// keyChecks returns a check of the key directory if something is wrong with it. The process stays
// ready if it can read the directory, even without some of its keys. A nil keeper, before the
// process has started, adds nothing.
func keyChecks(k *session.KeyKeeper) []health.Check {
	if k == nil || k.Trouble() == "" {
		return nil
	}
	return []health.Check{{Name: "keys", OK: !k.Blind(), Why: k.Trouble()}}
}
